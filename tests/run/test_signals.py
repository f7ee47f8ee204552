"""Signals: work that may be abandoned is, unsaved updates are saved first, and a second Ctrl-C exits at once."""

import gc
import importlib
import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import tiny
from vaswani.run import signals
from vaswani.run.signals import Signals

ROOT = Path(__file__).parent.parent.parent

# As deep in the compiler: the main thread waits in C, where no Python handler can run, and has released the GIL.
STUCK = """
import ctypes, sys
mutex, pthread = (ctypes.c_char * 256)(), ctypes.CDLL(None)
pthread.pthread_mutex_lock(mutex)
print("ready", flush=True)
pthread.pthread_mutex_lock(mutex)
"""


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


def wait_until_received(active: Signals) -> None:
    while active.received is None:
        time.sleep(0.001)


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> None:
    """Checks that each test restores the signal handlers, the hook and the wake-up file descriptor."""
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    hook = sys.unraisablehook
    yield
    assert sys.unraisablehook is hook
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    assert signal.set_wakeup_fd(-1) == -1


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_where_nothing_needs_saving_a_signal_exits_with_its_status(
    number: signal.Signals, status: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(signals, "GRACE", 300.0)
    with pytest.raises(SystemExit) as exit_, Signals():
        send(number)
        time.sleep(60)
    assert exit_.value.code == status
    assert capfd.readouterr().err == "\nstopping: there is nothing new to save\n"


def test_work_that_saves_nothing_is_not_said_to(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(signals, "GRACE", 300.0)
    with pytest.raises(SystemExit), Signals(saves=False):
        send(signal.SIGINT)
        time.sleep(60)
    assert capfd.readouterr().err == "\ninterrupted\n"


def test_once_there_is_something_to_save_a_signal_is_noted(capfd: pytest.CaptureFixture) -> None:
    with Signals() as active:
        active.hold()
        assert (active.received, active.exit_code) == (None, 0)
        send(signal.SIGTERM)
        wait_until_received(active)
        send(signal.SIGTERM)  # changes nothing
        time.sleep(0.1)
    assert (active.received, active.exit_code) == (signal.SIGTERM, 143)
    assert capfd.readouterr().err == "\nstopping after this step and its checkpoint (Ctrl-C again to exit at once)\n"


def test_an_attempt_returns_what_it_was_to_return() -> None:
    with Signals() as active:
        active.hold()
        assert active.attempt(divmod, 7, 4) == (1, 3)
        with pytest.raises(ZeroDivisionError):
            active.attempt(divmod, 7, 0)


def test_an_attempt_is_given_up_for_a_signal_wherever_it_is() -> None:
    def work() -> str:
        try:
            send(signal.SIGTERM)
            time.sleep(60)
        except Exception:  # as libraries have it
            time.sleep(60)
        return "done"

    with Signals() as active:
        active.hold()
        started = time.monotonic()
        assert active.attempt(work) is None
        assert active.attempt(work) is None  # not begun at all
        assert time.monotonic() < started + 30
        assert active.exit_code == 143


@contextmanager
def signals_in_gc_callbacks(number: signal.Signals, count: int) -> Iterator[None]:
    """Sends a signal from a gc callback, in the first `count` collections; jax has such a callback, too."""
    left = iter(range(count))

    def callback(phase: str, info: dict[str, int]) -> None:
        if phase == "stop" and next(left, None) is not None:
            send(number)
            for _ in range(1000):  # Python handles the signal here
                pass

    gc.callbacks.append(callback)
    try:
        yield
    finally:
        gc.callbacks.remove(callback)


def collect() -> None:
    gc.collect()


def finalise() -> None:
    class Finalised:
        def __del__(self) -> None:
            send(signal.SIGTERM)
            time.sleep(0.1)

    Finalised()


def drop_a_weak_reference() -> None:
    class Referred:
        pass

    def callback(_: object) -> None:
        send(signal.SIGTERM)
        time.sleep(0.1)

    referred = Referred()
    reference = weakref.ref(referred, callback)
    del referred
    assert reference() is None


def catch_everything() -> None:
    try:
        send(signal.SIGTERM)
        time.sleep(0.1)
    except BaseException:
        pass


@pytest.mark.parametrize("swallow", [collect, finalise, drop_a_weak_reference, catch_everything])
def test_an_attempt_is_given_up_even_if_python_or_a_library_swallows_the_exception(
    swallow: Callable[[], None], capfd: pytest.CaptureFixture
) -> None:
    def work() -> str:
        swallow()
        time.sleep(20)
        return "done"

    with signals_in_gc_callbacks(signal.SIGTERM, 3 if swallow is collect else 0), Signals() as active:
        active.hold()
        assert active.attempt(work) is None
        assert (active.received, active.exit_code) == (signal.SIGTERM, 143)
    assert capfd.readouterr().err == signals.HELD.decode()  # and no traceback


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_where_nothing_needs_saving_a_swallowed_signal_still_cleans_up(
    number: signal.Signals, status: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(signals, "GRACE", 300.0)
    cleaned = []
    with pytest.raises(SystemExit) as exit_, signals_in_gc_callbacks(number, 1), Signals():
        try:
            gc.collect()
            time.sleep(20)
            cleaned.append("too late")
        finally:
            cleaned.append("up")
    assert (exit_.value.code, cleaned) == (status, ["up"])
    assert capfd.readouterr().err == signals.NOTHING_TO_SAVE.decode()


def test_an_import_is_not_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Extension modules, such as jax's, may crash the process if an exception is raised while they are initialised."""
    monkeypatch.setattr(signals, "GRACE", 300.0)
    (tmp_path / "imported_whole.py").write_text(
        "import os\nos.kill(os.getpid(), 15)\nfor _ in range(1000):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SystemExit) as exit_, Signals():
        importlib.import_module("imported_whole")
        assert "imported_whole" in sys.modules
        time.sleep(20)
    assert exit_.value.code == 143
    del sys.modules["imported_whole"]


def test_an_error_that_is_not_a_signal_s_is_still_told_of(capfd: pytest.CaptureFixture) -> None:
    told = []

    class Fails:
        def __del__(self) -> None:
            raise ValueError("of its own")

    before, sys.unraisablehook = sys.unraisablehook, lambda event: told.append(str(event.exc_value))
    try:
        with Signals():
            Fails()
    finally:
        sys.unraisablehook = before
    assert told == ["of its own"]


def test_after_an_attempt_signals_are_only_noted_again() -> None:
    with Signals() as active:
        active.hold()
        active.attempt(divmod, 7, 4)
        send(signal.SIGINT)
        wait_until_received(active)
    assert active.exit_code == 130


def test_of_several_processes_none_stops_alone() -> None:
    """SIGTERM is left to jax's preemption service, and Ctrl-C is passed on to it."""
    arrived: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: arrived.append(number))
    try:
        with Signals(single=False) as active:
            send(signal.SIGTERM)
            active.hold()
            assert active.attempt(lambda: send(signal.SIGINT) or "done") == "done"
            assert arrived == [signal.SIGTERM] * 2
            assert active.received is None
    finally:
        signal.signal(signal.SIGTERM, before)


def stuck(hold: bool) -> subprocess.Popen[str]:
    code = "from vaswani.run.signals import Signals\nwith Signals() as active:\n"
    code += f"    {'active.hold()' if hold else 'pass'}\n"
    code += "".join(f"    {line}\n" for line in STUCK.strip().splitlines())
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(1)  # for the line after it
    return process


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_compiler_is_not_waited_for_where_nothing_needs_saving(number: signal.Signals, status: int) -> None:
    process, started = stuck(hold=False), time.monotonic()
    process.send_signal(number)
    assert process.communicate(timeout=60)[1].strip() == "stopping: there is nothing new to save"
    assert process.returncode == status
    assert time.monotonic() > started + signals.GRACE  # it was the watcher that left


def test_a_second_ctrl_c_waits_for_nothing() -> None:
    process = stuck(hold=True)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert process.stderr.readline() + process.stderr.readline() == signals.HELD.decode()  # at once
    process.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130


def test_an_error_of_cleaning_up_after_a_signal_does_not_hide_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "GRACE", 300.0)
    with pytest.raises(SystemExit) as exit_, Signals():
        try:
            send(signal.SIGTERM)
            time.sleep(60)
        finally:
            raise RuntimeError("release unlocked lock")
    assert exit_.value.code == 143


def test_an_error_before_a_signal_is_told() -> None:
    with pytest.raises(ZeroDivisionError), Signals() as active:
        active.hold()
        send(signal.SIGTERM)
        wait_until_received(active)
        divmod(1, 0)


# As where a signal's exception came between the acquisition of a lock of a library and its release.
WAITING = """
import runpy, sys, threading
lock = threading.Lock()
lock.acquire()
threading.Thread(target=lock.acquire).start()
sys.argv = ["train", *sys.argv[1:]]
runpy.run_module("vaswani.train", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("reached", ["compiling the first step", pytest.param("step 4/", marks=pytest.mark.slow)])
def test_training_ends_after_a_signal_though_a_thread_waits_for_ever(tmp_path: Path, reached: str) -> None:
    cfg = tiny.training_config(tmp_path)
    cfg.steps = 1_000_000
    command = [
        sys.executable,
        "-c",
        WAITING,
        f"--config={tiny.config_file(tmp_path, cfg)}",
        f"--workdir={tmp_path}/run",
    ]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        try:
            for line in process.stderr:
                if line.startswith(reached):
                    break
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 143
    saved = list((tmp_path / "run" / "checkpoints").glob("[0-9]*"))
    assert bool(saved) == (reached == "step 4/")
