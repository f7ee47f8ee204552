"""A test that needs an extra is skipped with the extra's name, or fails if the extra is required."""

import pytest

from tests import extras


@pytest.fixture(autouse=True)
def _one_that_nobody_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(extras.EXTRAS, "no_such_package", "convert")
    monkeypatch.delenv("REQUIRE_EXTRAS", raising=False)


def test_a_missing_package_skips_and_names_its_extra() -> None:
    with pytest.raises(pytest.skip.Exception, match=r"^extra convert: no_such_package is not installed \(pip install"):
        _ = extras.no_such_package


def test_a_required_package_that_is_missing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUIRE_EXTRAS", "tpu,convert")
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        _ = extras.no_such_package


def test_what_is_no_extra_is_no_attribute() -> None:
    with pytest.raises(AttributeError):
        _ = extras.numpy
