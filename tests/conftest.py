"""Sets up every test: CPU, no silent rank promotion, and compiled programs kept between test runs."""

import gc
import os
import platform
import signal
import sys
import warnings
from pathlib import Path

from tests.hurry import XLA_FLAGS
from tests.kept import folder
from vaswani import object_files

# Also for commands in tests:
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["XLA_FLAGS"] = f"{XLA_FLAGS} {os.environ.get('XLA_FLAGS', '')}".strip()  # the last one counts
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder()))
os.environ.setdefault("GLIBC_TUNABLES", "glibc.malloc.hugetlb=0")  # or each training would start twice
if platform.machine() in ("x86_64", "AMD64"):
    os.environ.setdefault("CT2_USE_MKL", "1")  # the other library's int8 overflows where there is no VNNI
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
# A program that another worker has half written is compiled again; commands whose stderr is compared are not to say so.
os.environ.setdefault(
    "PYTHONWARNINGS",
    "ignore:Error reading persistent compilation cache entry:UserWarning,"
    "ignore:Error writing persistent compilation cache entry:UserWarning",
)

import jax
import pytest
from hypothesis import HealthCheck, settings

# In the background of a shell Ctrl-C is ignored, and would be in the commands of tests, too.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).parent.parent

jax.config.update("jax_numpy_rank_promotion", "raise")
object_files.guard()

# A busy machine is no failure, and what fails here must fail again when it is looked into.
settings.register_profile("tests", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Says at once what failed: a run that is stopped before its end may print no summary."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        place = report.longreprtext.rpartition("\n")[2]  # where it failed, and with which error
        print(f"\n{report.nodeid}, {report.when}: {place}", file=sys.stderr, flush=True)
    list_if_it_needs_an_extra(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    list_if_it_needs_an_extra(report)


def list_if_it_needs_an_extra(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Writes what was skipped for want of an extra into the file $NEEDS_EXTRAS: CI runs it once that is installed.

    Workers write, too, since they tell of one only among several files that are skipped for the same reason.
    """
    listed = os.environ.get("NEEDS_EXTRAS")
    if listed and report.skipped and "Skipped: extra " in report.longreprtext:
        with Path(listed).open("a", encoding="utf-8") as file:
            file.write(f"{report.nodeid}\n")


@pytest.fixture(scope="module", autouse=True)
def _no_search_of_what_stays() -> None:
    """Drops the programs of earlier files, and hides what stays of them from the garbage collector.

    Programs of all files together take gigabytes. `run.checkpoint` has the collector search everything after each
    training, which takes the longer the more tests have run.
    """
    jax.clear_caches()
    with warnings.catch_warnings():
        # Garbage in circles is finalised in any order: a file, perhaps, before the generator that would have closed it.
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _flags_of_earlier_tests() -> None:
    """Marks absl flags as parsed: grain reads them, and only a program run by `absl.app` has parsed them."""
    from absl import flags

    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()
