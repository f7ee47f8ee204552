"""Programs kept between commands: never a wrong result, a traceback or a word on stderr, whatever happens to them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jaxlib
import pytest

from tests.kept import IN_CLONE
from vaswani import compiled
from vaswani.machine import cpus

ROOT = Path(__file__).parent.parent.parent
NOBODY = 65534
CHOICE = "import os; from vaswani import compiled; compiled.keep(); print(os.environ.get(compiled.DIRECTORY))"
PROGRAM = """
import sys
import numpy as np
from vaswani.command import run

X = np.arange(64 * 64, dtype=np.float32).reshape(64, 64) / 4096

def program(x):
    import jax
    for _ in range(3):
        x = jax.nn.softmax(x @ x + 1)
    return x, x.sum(axis=0)

def computed():
    import jax
    jax.clear_caches()
    return b"".join(np.asarray(one).tobytes() for one in jax.jit(program)(X)).hex()
"""
COMPUTE = """
def main(argv):
    import jax
    hits = []
    jax.monitoring.register_event_listener(lambda name, **_: hits.append(name.endswith("/cache_hits")))
    print(computed(), sum(hits))
run(main)
"""
DAMAGE = """
def damages(whole):
    import numpy as np
    rng = np.random.default_rng(0)
    yield b""
    yield rng.bytes(len(whole))
    yield bytes(len(whole))
    for part in (1, 10, len(whole) // 2, len(whole) - 5, len(whole) - 1):
        yield whole[:part]
    for bit in rng.integers(8 * len(whole), size=12):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        yield bytes(changed)

def main(argv):
    import zlib
    from pathlib import Path
    import jax
    right = computed()
    (entry,) = Path(jax.config.jax_compilation_cache_dir).glob("jit_program-*-cache")
    whole = entry.read_bytes()
    other = entry.with_name("jit_program-of-another-shape-cache")
    other.write_bytes(whole)
    for damaged in damages(whole):
        entry.write_bytes(damaged)
        assert computed() == right
        zlib.decompress(entry.read_bytes())
    assert other.read_bytes() == whole
    print("each was repaired")
run(main)
"""


def environment(caches: Path | None, **more: str) -> dict[str, str]:
    """Returns an environment without the tests' own cache."""
    kept = {name: value for name, value in os.environ.items() if "CACHE" not in name}
    there = {} if caches is None else {"XDG_CACHE_HOME": str(caches)}
    return {**kept, "PYTHONPATH": str(ROOT), **there, **more}


def ended(
    code: str, caches: Path | None, more: dict[str, str] | None = None, first: str = ""
) -> subprocess.CompletedProcess[str]:
    """Runs a command, in a process that has done `first`; not by `preexec_fn`, since jax does not like to be forked."""
    become = "import os, sys; os.execv(sys.executable, [sys.executable, '-c', sys.argv[1]])"
    command = [sys.executable, "-c", f"{first}\n{become}", code]
    variables = environment(caches, **(more or {}))
    return subprocess.run(command, cwd="/", env=variables, capture_output=True, text=True)


def python(code: str, caches: Path | None, more: dict[str, str] | None = None, first: str = "") -> str:
    """Returns the output of a command, which must not write to stderr."""
    done = ended(code, caches, more, first)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def compute(caches: Path, before: str = "", first: str = "") -> tuple[str, bool]:
    """Returns what the program computes, and whether it was loaded."""
    result, loaded = python(before + PROGRAM + COMPUTE, caches, first=first).split()
    return result, loaded != "0"


def programs(caches: Path) -> list[Path]:
    return list(caches.glob("vaswani/*-threads/jit_program-*-cache"))


# Where they are kept.


def test_they_are_kept_in_the_users_cache_folder(tmp_path: Path) -> None:
    folder = tmp_path / "vaswani" / f"{cpus()}-threads"
    assert python(CHOICE, tmp_path) == str(folder)
    assert (tmp_path / "vaswani").stat().st_mode & 0o777 == 0o700
    for relative in ("", "caches"):  # as the XDG specification has it, one that is no absolute path is ignored
        home = {"HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": relative}
        assert python(CHOICE, None, home) == str(tmp_path / "home" / ".cache" / "vaswani" / folder.name)


@pytest.mark.skipif(sys.platform != "linux", reason="processors can be chosen on Linux only")
def test_programs_of_other_numbers_of_threads_are_others(tmp_path: Path) -> None:
    """The code of a program depends on it, and the name that jax gives the program does not."""
    processor = min(os.sched_getaffinity(0))
    found = python(CHOICE, tmp_path, first=f"import os; os.sched_setaffinity(0, {{{processor}}})")
    assert found == str(tmp_path / "vaswani" / "1-threads")
    seven = f"from vaswani import compiled; compiled.cpus = lambda: 7; {CHOICE}"
    assert python(seven, tmp_path) == str(tmp_path / "vaswani" / "7-threads")
    inherited = {compiled.DIRECTORY: str(tmp_path / "vaswani" / "64-threads")}
    assert python(CHOICE, tmp_path, inherited) == python(CHOICE, tmp_path)


@pytest.mark.parametrize(
    ("chosen", "found"),
    [
        ({"JAX_COMPILATION_CACHE_DIR": "/mine"}, "/mine"),
        ({"JAX_COMPILATION_CACHE_DIR": ""}, ""),
        ({"JAX_ENABLE_COMPILATION_CACHE": "0"}, "None"),
    ],
)
def test_a_users_own_choice_stays(tmp_path: Path, chosen: dict[str, str], found: str) -> None:
    assert python(CHOICE, tmp_path, chosen) == found
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("chosen", ["'jax_compilation_cache_dir', '/mine'", "'jax_enable_compilation_cache', False"])
def test_a_choice_in_jaxs_own_config_stays(tmp_path: Path, chosen: str) -> None:
    assert python(f"import jax; jax.config.update({chosen}); {CHOICE}", tmp_path) == "None"
    assert list(tmp_path.iterdir()) == []


def test_a_program_that_loads_a_run_keeps_them_unless_told_not_to(tmp_path: Path) -> None:
    code = """
import os
from vaswani import compiled, load_run
for keeps in (False, True, True):
    load_run("builtin:quickstart", keep_programs=keeps)
    print(os.environ.get(compiled.DIRECTORY))
"""
    folder = str(tmp_path / "vaswani" / f"{cpus()}-threads")
    assert python(code, tmp_path).split() == ["None", folder, folder]


def test_nothing_is_kept_where_damage_would_go_unnoticed(tmp_path: Path) -> None:
    (tmp_path / "zstandard.py").touch()
    assert python(CHOICE, tmp_path, {"PYTHONPATH": f"{ROOT}:{tmp_path}"}) == "None"


def test_nothing_is_kept_where_others_may_write(tmp_path: Path) -> None:
    assert python(CHOICE, tmp_path) != "None"
    (tmp_path / "vaswani").chmod(0o775)
    assert python(CHOICE, tmp_path) == "None"
    if os.geteuid() == 0:
        (tmp_path / "vaswani").chmod(0o755)
        os.chown(tmp_path / "vaswani", NOBODY, NOBODY)
        assert python(CHOICE, tmp_path) == "None"


def test_nothing_is_kept_without_a_folder(tmp_path: Path) -> None:
    (tmp_path / "vaswani").touch()
    assert python(CHOICE, tmp_path) == "None"
    assert python(CHOICE, tmp_path / "vaswani") == "None"  # which is a file
    assert python(CHOICE, None, {"HOME": "/dev/null"}) == "None"
    assert python(CHOICE, None, {"HOME": "a folder"}) == "None"


def test_help_and_a_mistyped_flag_keep_nothing(tmp_path: Path) -> None:
    for argument in ("--help", "--no_such_flag"):
        command = [sys.executable, "-m", "infer.translate", argument]
        subprocess.run(command, cwd=ROOT, env=environment(tmp_path), capture_output=True)
    assert list(tmp_path.iterdir()) == []


def test_what_was_used_longest_ago_is_deleted_once_a_day(tmp_path: Path) -> None:
    root = tmp_path / "vaswani"
    for age in range(5):
        program = root / f"{age % 2}-threads" / f"{age}-cache"
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_bytes(bytes(100))
        os.utime(program, (time.time() - age * 3600, time.time() - 10**6))  # read then, long after it was written
    (root / "0-threads" / "notes").write_bytes(bytes(1000))

    def left() -> set[str]:
        return {path.name for path in root.glob("*/*")}

    compiled.limit(root, 300)
    assert left() == {"notes", "0-cache", "1-cache", "2-cache"}
    (root / "0-threads" / "5-cache").write_bytes(bytes(300))
    compiled.limit(root, 300)
    assert len(left()) == 5
    os.utime(root / "limited", (0, time.time() - 25 * 3600))
    compiled.limit(root, 300)
    assert left() == {"notes", "5-cache"}


TESTS_CHOICE = "import os, tests.conftest; from vaswani import compiled; print(os.environ[compiled.DIRECTORY])"


def test_those_of_the_tests_outlive_the_clone(tmp_path: Path) -> None:
    """A fresh clone starts with what another has compiled; the commands that tests start keep theirs there, too."""
    folder = tmp_path / "vaswani" / "tests" / f"{cpus()}-threads"
    assert python(TESTS_CHOICE, tmp_path) == str(folder)
    assert python(CHOICE, tmp_path, {compiled.DIRECTORY: str(folder)}) == str(folder)
    assert python(TESTS_CHOICE, tmp_path, {compiled.DIRECTORY: "/mine"}) == "/mine"
    folder.parent.chmod(0o777)
    assert python(TESTS_CHOICE, tmp_path) == str(IN_CLONE)
    assert python(TESTS_CHOICE, None, {"HOME": "/dev/null"}) == str(IN_CLONE)


# What may happen to them.


def test_a_second_process_loads_what_the_first_compiled(tmp_path: Path) -> None:
    right, loaded = compute(tmp_path)
    assert not loaded and len(programs(tmp_path)) == 1
    assert compute(tmp_path) == (right, True)
    assert compute(tmp_path, before="import jax") == (right, True)  # as in commands whose file is a library, too


@pytest.mark.slow
def test_damaged_programs_are_compiled_again(tmp_path: Path) -> None:
    """Empty, random, cut off, or with one bit changed; the sound ones of other shapes stay."""
    assert python(PROGRAM + DAMAGE, tmp_path) == "each was repaired"


KERNELS = """
import numpy as np
from vaswani import object_files
from vaswani.command import run

def kernels(x):
    import jax
    return [jax.numpy.tan(x[:size]) for size in range(1, 1 + x.size)]  # an object file each, which calls libm

def compiled(many):
    import jax
    from pathlib import Path
    jax.clear_caches()
    jax.jit(kernels)(np.ones(many, np.float32))
    return len([*Path(jax.config.jax_compilation_cache_dir).glob("jit_kernels-*-cache")])
"""
only_jaxlib_0_10 = pytest.mark.skipif(not jaxlib.__version__.startswith("0.10."), reason="later ones load any number")


@only_jaxlib_0_10
def test_more_object_files_than_jaxlib_loads_are_neither_kept_nor_loaded(tmp_path: Path) -> None:
    code = """
def main(argv):
    import jax
    hits = []
    jax.monitoring.register_event_listener(lambda name, **_: hits.append(name.endswith("/cache_hits")))
    object_files.MOST = 4
    assert [compiled(5), compiled(4)] == [0, 1]
    object_files.MOST = 5
    assert compiled(5) == 2  # as a process without the guard would write it
    hits.clear()
    compiled(5)
    assert any(hits)
    hits.clear()
    object_files.MOST = 4
    assert compiled(5) == 1 and not any(hits)
run(main)
"""
    python(KERNELS + code, tmp_path)


@pytest.mark.slow
@only_jaxlib_0_10
def test_a_thousand_object_files_do_not_kill_the_next_launch(tmp_path: Path) -> None:
    """The linker of jaxlib 0.10 recurses over them on a small stack: they compile, and do not load."""
    fast = {"XLA_FLAGS": "--xla_backend_optimization_level=0"}
    for _ in range(2):
        done = ended(f"{KERNELS}\nrun(lambda argv: print(compiled(1002)))", tmp_path, fast)
        assert (done.returncode, done.stdout) == (0, "0\n")  # on a busy machine XLA says on stderr that it is slow


# Has root, too, be refused what permissions forbid.
OBEDIENT = """
import ctypes, sys
drop_from_bounding_set, override_permissions = 24, 1
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(drop_from_bounding_set, override_permissions, 0, 0, 0)
"""
# Lets no file grow beyond 1000 bytes.
NEARLY_FULL = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
"""


@pytest.mark.slow
def test_a_read_only_folder_is_read(tmp_path: Path) -> None:
    right, _ = compute(tmp_path)
    (program,) = programs(tmp_path)
    program.parent.chmod(0o555)
    assert compute(tmp_path, first=OBEDIENT) == (right, True)
    program.write_bytes(b"damaged")
    assert compute(tmp_path, first=OBEDIENT) == (right, False)
    assert program.read_bytes() == b"damaged"
    program.parent.chmod(0o755)
    program.unlink()
    program.parent.chmod(0o555)
    assert compute(tmp_path, first=OBEDIENT) == (right, False)
    assert programs(tmp_path) == []
    program.parent.chmod(0o755)


@pytest.mark.slow
def test_a_full_disk_leaves_no_part_of_a_program(tmp_path: Path) -> None:
    right, _ = compute(tmp_path, first=NEARLY_FULL)
    assert programs(tmp_path) == []
    assert compute(tmp_path) == (right, False)
    assert compute(tmp_path) == (right, True)


@pytest.mark.slow
def test_a_process_killed_while_it_writes_leaves_a_part_that_the_next_replaces(tmp_path: Path) -> None:
    killed_at_the_limit = "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_DFL)"
    killed = ended(killed_at_the_limit + PROGRAM + COMPUTE, tmp_path, first=NEARLY_FULL)
    assert (killed.returncode, killed.stderr) == (-signal.SIGXFSZ, "")
    (program,) = programs(tmp_path)
    assert program.stat().st_size == 1000
    right, loaded = compute(tmp_path)
    assert not loaded and program.stat().st_size > 1000
    assert compute(tmp_path) == (right, True)


@pytest.mark.slow
def test_a_file_in_the_place_of_a_folder(tmp_path: Path) -> None:
    folder = Path(python(CHOICE, tmp_path))
    folder.touch()
    right, loaded = compute(tmp_path)
    folder.unlink()
    assert not loaded and compute(tmp_path) == (right, False)


@pytest.mark.slow
def test_several_processes_of_one_run_keep_nothing_by_themselves(tmp_path: Path) -> None:
    """Those of other machines may need the one that finds its programs to compile with them."""
    connect = """
def main(argv):
    from types import SimpleNamespace
    from unittest import mock
    import portpicker
    from vaswani.run.connect import connect
    address = f"localhost:{portpicker.pick_unused_port()}"
    with mock.patch("jax.process_count", lambda: 2):  # as if there were another
        connect(SimpleNamespace(coordinator=address, processes=1, process=0))
    computed()
run(main)
"""
    python(PROGRAM + connect, tmp_path)
    assert programs(tmp_path) == []
    python(PROGRAM + connect.replace("lambda: 2", "lambda: 1"), tmp_path / "alone")
    assert len(programs(tmp_path / "alone")) == 1
    own = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    python(PROGRAM + connect, tmp_path, own)
    assert len(list(tmp_path.glob("jit_program-*-cache"))) == 1


def started(caches: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM + COMPUTE]
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd="/", env=environment(caches), **streams)


@pytest.mark.slow
def test_processes_that_compile_at_once_agree(tmp_path: Path) -> None:
    for _ in range(3):
        processes = [started(tmp_path) for _ in range(3)]
        outcomes = [process.communicate(timeout=300) for process in processes]
        assert {errors for _, errors in outcomes} == {""}
        assert len({output.split()[0] for output, _ in outcomes}) == 1
    assert compute(tmp_path)[1]
