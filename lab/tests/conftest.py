"""The lab's tests are set up as those of the reference are."""

from tests.conftest import (
    _flags_of_earlier_tests,
    _no_search_of_what_stays,
    pytest_collectreport,
    pytest_runtest_logreport,
)

__all__ = ["_flags_of_earlier_tests", "_no_search_of_what_stays", "pytest_collectreport", "pytest_runtest_logreport"]
