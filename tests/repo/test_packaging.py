"""The package `vaswani`: its commands, its place beside other programs, and a wheel that holds nothing else."""

import importlib.metadata
import itertools
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import vaswani
from tests.repo.test_layout import LINKED as ROOMS
from vaswani.__main__ import ROOT as CODE
from vaswani.__main__ import own_configs

ROOT = Path(__file__).parent.parent.parent


def run(*command: object, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True)


def test_a_command_is_run_by_its_name() -> None:
    vaswani = (sys.executable, "-m", "vaswani")
    assert "\n  infer.translate        Translates standard input, line by line" in run(*vaswani, "--help").stdout
    same = [run(*start, "infer.align", "--help").stdout for start in (vaswani, (sys.executable, "-m"))]
    assert same[0] == same[1] != ""
    for name, advice in (("trian", "did you mean train?"), ("xyzzy", "vaswani --help lists them")):
        unknown = run(*vaswani, name)
        assert (unknown.returncode, unknown.stderr) == (2, f"error: there is no command {name!r}; {advice}\n")


def test_it_works_beside_files_of_the_same_names(tmp_path: Path) -> None:
    """A program of the user's has its own data.py, train/ and configs/, imported before or after ours."""
    for name in ("data", "model", "train"):
        (tmp_path / f"{name}.py").write_text("own = True")
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "mine.py").write_text("own = True")
    (tmp_path / "installed").mkdir()
    (tmp_path / "installed" / "vaswani").symlink_to(ROOT / "vaswani")
    ours = "sys.path += ['installed']; from vaswani import load_run; import vaswani.train.loop"
    for code in (f"import data, configs.mine; {ours}", f"{ours}; import data, configs.mine"):
        code = f"import sys; {code}; assert data.own and configs.mine.own and load_run"
        done = run(sys.executable, "-c", code, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")


def test_the_version_is_told_by_the_package_its_command_and_the_citation() -> None:
    done = run(sys.executable, "-m", "vaswani", "--version", cwd=ROOT)
    assert done.stdout == f"vaswani {vaswani.__version__}\n"
    assert f"\nversion: {vaswani.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_wheel_holds_one_package_whose_commands_run(tmp_path: Path) -> None:
    source, environment = tmp_path / "source", tmp_path / "environment"
    source.mkdir()
    for name in (*ROOMS, "vaswani"):
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    try:
        found = importlib.metadata.version("setuptools")
    except importlib.metadata.PackageNotFoundError:  # from Python 3.12 on a new environment has none
        found = "0"
    modern = int(found.partition(".")[0]) >= 77
    isolation = ["--no-build-isolation"] if modern else []  # which would download setuptools
    made = run(*pip, "wheel", "--no-deps", *isolation, "--wheel-dir", tmp_path, source)
    assert made.returncode == 0, made.stderr
    assert run(sys.executable, "-m", "venv", "--without-pip", environment).returncode == 0
    installed = run(*pip, "--python", environment, "install", "--no-deps", next(tmp_path.glob("*.whl")))
    assert installed.returncode == 0, installed.stderr

    (packages,) = environment.glob("lib/python*/site-packages")
    assert {path.name.partition("-")[0] for path in packages.iterdir()} == {"vaswani"}
    rooms = {path.name for path in (packages / "vaswani").iterdir() if path.is_dir()} - {"__pycache__"}
    assert rooms == set(ROOMS)
    files = {path.relative_to(source) for room in ROOMS for path in (source / room).rglob("*") if path.is_file()}
    missing = {file for file in files if not (packages / "vaswani" / file).exists()}
    assert {file for file in missing if file.parent != Path("paper/records")} == set(), "records stay in the clone"
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    vaswani = environment / "bin" / "vaswani"
    (tmp_path / "elsewhere").mkdir()
    helped = run(vaswani, "infer.translate", "--help", cwd=tmp_path / "elsewhere")
    assert helped.returncode == 0 and "--workdir" in helped.stdout
    wrong = ("train", "--config=configs/quickstart.py", "--config.modle.N=2")
    assert "did you mean model.N?" in run(vaswani, *wrong, cwd=tmp_path / "elsewhere").stderr


def test_a_configuration_of_the_code_is_found_in_either_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = CODE / "configs" / "big.py"
    given = ["--config=configs/big.py", "--config", "configs/big.py:x", "-config", "none.py", "configs/big.py"]
    expected = [f"--config={file}", "--config", f"{file}:x", "-config", "none.py", "configs/big.py"]
    assert own_configs(given) == expected


@pytest.mark.parametrize(
    ("name", "too_old"),
    [
        ("ctranslate2", "4.6.2"),  # its encoder has no `head_dim`
        ("rich", "14.3.4"),  # a job inside another has no bar
        ("sentencepiece", "0.2.1"),  # an empty model ends the process
        ("sentencepiece", "0.2.2"),  # an empty text is said to support 260 subwords
        ("tensorflow-datasets", "4.9.9"),  # reads no set with protobuf 7
        ("transformers", "5.2.0"),  # BERT's tokenizer, from a vocabulary alone, keeps capitals, which are then unknown
    ],
)
def test_no_range_has_a_version_that_the_code_cannot_use(name: str, too_old: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = itertools.chain(project["dependencies"], *project["optional-dependencies"].values())
    ranges = [needed.specifier for needed in map(Requirement, lines) if needed.name == name]
    assert ranges and not any(versions.contains(too_old) for versions in ranges)
