"""Every command of the README, of docs/ and of the lab's pages can be typed in a clone, in the order of its page.

Our own commands read their flags, config files and config keys here, and stop where their work would begin. Every file
that they are given is in the repository, or made by a command before it, or said on the page to be the reader's own.
Of other programs only those that are listed here may appear.
"""

import re
import runpy
import tomllib
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.repo.test_layout import tracked
from tests.typed import complaints
from tests.written import Command, commands, files
from vaswani.data.corpora import CORPORA, corpus_folder
from vaswani.run.builtin import names

SPLITS = ("train", "valid", "test")
ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), ROOT / "notebooks" / "README.md"]
PAGES += sorted(ROOT.glob("lab/**/*.md"))

EXTERNAL = {  # programs that are not ours, whose flags no test knows
    *("curl", "git", "pipx", "sh", "sudo", "tar", "uv"),  # to get something
    *(
        "./gcluster",
        "docker",
        "gcloud",
        "gcluster",
        "kubectl",
        "sbatch",
        "srun",
        "xpk",
    ),  # to launch on a cluster; the command that they launch is read as any other
    *("mtdata", "opus_read"),  # for corpora
    *("comet/bin/comet-score", "comet/bin/pip", "sacrebleu", "tensorboard"),
}
SHELL = {"cd", "chmod", "done", "echo", "export", "for", "source", "wait"}
PYTHON = {"python", ".venv/bin/python"}
PIP = {"pip", ".venv/bin/pip"}
NOT_OURS = {"venv"}  # modules after `python -m`
FLAGLESS = {"lab.gpu.page"}
ELSEWHERE_MADE = {"tar xf": "wmt16.en-de.joined-dict.transformer", "make quickstart": "runs/quickstart"}

READS = {"baseline", "gold", "hypothesis", "init", "nbest", "parameters", "parsed", "reference", "runs", "source"}
READS |= {"target", "config.data.tokenizer"}
MAKES = {"explain", "html", "output", "plot"}
SPECIAL = {"config", "corpus", "from", "name", "storage", "workdir", *(f"config.data.{split}" for split in SPLITS)}
TRAINERS = {"train", "train.sweep"}
MAKERS = {*TRAINERS, "infer.convert"}  # make --workdir, given --config or --from; others read it
DOCUMENTS = ("configs/", "lab/studies/")  # where configs are
SPECS = ("chars", "idx", "lines", "parquet", "text", "trees", "tsv")  # corpora in files, SCHEME:FILE
DOWNLOADED = "tfds:"  # and those that data.prepare downloads

# What a reader supplies: where it is used, its name, and the words that introduce it, which stand before it.
OWN = {
    "README.md": {"corpus/": "You need two files", "in.txt": "`in.txt`"},
    "docs/bridges.md": {
        "DIR": "imports a checkpoint of another engine",
        "words.txt": "129 random words",
        **dict.fromkeys(("RUN", "FILE", "IMAGES", "LABELS"), "An imported run"),
    },
    "docs/commands.md": {
        **dict.fromkeys(("D", "D2"), "D and D2 are run folders"),
        **dict.fromkeys(("F", "F.prm"), "F is a file"),
        "in.txt": "`in.txt`",
        "opus-mt-en-de": "`opus-mt-en-de` is a folder",
    },
    "docs/corpora.md": {"all.{en,de}": "`all.en` and `all.de`"},
    "docs/from_tutorials.md": dict.fromkeys(("copy_train.tsv", "copy_valid.tsv"), "`copy_train.tsv` and"),
    "docs/launch.md": {"/shared": "All hosts must share one `--workdir`"},
    "docs/reproduce.md": {
        "RUN": "RUN is the folder of a run",
        "$run": "Score every run of the sweep",
        corpus_folder("wsj"): "Put yours into a folder `wsj/`",
        "FOLDER": "Put yours into any folder",
    },
    "docs/sweeps.md": {"/shared": "`--workdir` in a folder that all machines mount"},
}


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@cache
def written(page: Path) -> list[Command]:
    return commands(page.read_text(encoding="utf-8"))


def bare(words: list[str]) -> list[str]:
    """Returns a command without what may stand before it: `do`, variables, `exec` and `srun`."""
    while words and (words[0] in ("do", "exec", "srun") or re.match(r"[A-Z_]+=", words[0])):
        words = words[1:]
    return words


def ours(command: Command) -> tuple[str, list[str]] | None:
    """Returns the module and the arguments of a command of this repository; None for any other."""
    words = bare(command.words)
    if words and words[0] == "vaswani" and len(words) > 1 and not words[1].startswith("-"):
        return words[1], words[2:]
    if words[:1] and words[0] in PYTHON and words[1] == "-m" and words[2] not in NOT_OURS:
        return words[2], words[3:]
    return None


def mentioned(command: Command) -> bool:
    """Returns whether a sentence only names a command, without arguments: it may need some."""
    found = ours(command)
    return found is not None and not command.fenced and not found[1]


PAGE = """
Type `python -m a --x=1` or `make b`, not `a`.

```
export Z=1
python -m c --y='1 2' [--z=3] \\
  < in > out   # why
echo x | .venv/bin/python -m d && ssh --command='cd e &&
  python -m f'
```

`g.py`, in any folder:

```python
print()
```

```yaml
run: make h
```

```text
no command
```
"""


def test_commands_and_files_are_found_in_a_page() -> None:
    found = commands(PAGE)
    assert [command.line for command in found if not command.fenced] == ["python -m a --x=1", "make b"]
    assert [command.words for command in found if command.fenced] == [
        ["export", "Z=1"],
        ["python", "-m", "c", "--y=1 2", "--z=3"],
        ["echo", "x"],
        [".venv/bin/python", "-m", "d"],
        ["ssh", "--command=cd e &&\n  python -m f"],
        ["cd", "e"],
        ["python", "-m", "f"],
        ["make", "h"],
    ]
    (with_files,) = (command for command in found if command.reads or command.writes)
    assert (with_files.words[2], with_files.reads, with_files.writes) == ("c", ["in"], ["out"])
    assert files(PAGE) == {"g.py": "print()\n"}


def unknown(command: Command) -> list[str]:
    """Returns what of a command there is not: its module, its target of make, or the extras that it installs."""
    program, *arguments = bare(command.words) or ["export"]
    if program == "make":
        targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
        return [f"make has no target {word}" for word in arguments if "=" not in word and word not in targets]
    if program in PIP:
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        wanted = re.findall(r"^\.\[(.*)\]$", "\n".join(arguments), re.MULTILINE)
        named = [extra for several in wanted for extra in several.split(",")]
        return [f"pyproject.toml has no extra {extra}" for extra in named if extra not in extras]
    if found := ours(command):
        path = ROOT.joinpath(*found[0].split("."))
        is_there = path.with_suffix(".py").exists() or (path / "__main__.py").exists()
        return [] if is_there else [f"there is no {found[0]}"]
    known = EXTERNAL | SHELL | PYTHON | {"vaswani"}
    return [] if program in known else [f"is {program!r} a program? List it in EXTERNAL"]


def test_every_program_of_a_page_is_ours_or_listed() -> None:
    wrong = [f"{name(page)}: {what}" for page in PAGES for command in written(page) for what in unknown(command)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
def test_our_commands_understand_their_flags(tmp_path: Path) -> None:
    """A file, folder or optional package that is missing here is the only thing that a command may complain of."""
    for room in ("configs", "lab"):
        (tmp_path / room).symlink_to(ROOT / room)
    places: dict[tuple[str, ...], list[str]] = {}
    for page in PAGES:
        for file, text in files(page.read_text(encoding="utf-8")).items():
            (tmp_path / file).write_text(text, encoding="utf-8")
        for command in written(page):
            if (found := ours(command)) and not mentioned(command) and found[0] not in FLAGLESS:
                places.setdefault((found[0], *found[1]), []).append(f"{name(page)}: {command.line}")
    assert len(places) > 100
    told = dict(zip(places, complaints(list(places), tmp_path), strict=True))
    for module in ("paper", "lab"):  # whose argument is checked where its work begins
        whole = "vaswani.paper" if module == "paper" else module
        known = runpy.run_module(whole, run_name=f"{whole}.__main__")["WHAT"]
        given = {line[1] for line in places if line[0] == module}
        assert given and given <= set(known), f"python -m {module} has no {sorted(given - set(known))}"
    missing = re.compile(r": no such (file|folder)$|: (the package )?\w+ is not installed\b")
    assert [(places[line], text) for line, text in told.items() if text and not missing.search(text)] == []


@cache
def in_the_repository() -> frozenset[str]:
    """Returns the files of a clone, and their folders."""
    files = [path.relative_to(ROOT) for path in tracked()]
    return frozenset(str(path) for file in files for path in (file, *file.parents))


class Use(NamedTuple):
    """What a command needs and leaves: files and folders, and data sets that are downloaded."""

    reads: set[str]
    makes: set[str]
    data_sets: set[str]


def use(command: Command) -> Use:
    """Returns what a command reads and makes, by its flags and redirections."""
    made = Use(set(command.reads), set(command.writes), set())
    found = ours(command)
    if found is None:
        first = " ".join(bare(command.words)[:2])
        made.makes.update(path for start, path in ELSEWHERE_MADE.items() if first.startswith(start))
        return made
    module, arguments = found
    if module == "data.download":
        assert set(arguments) <= CORPORA.keys(), f"python -m data.download has no {set(arguments) - CORPORA.keys()}"
        made.makes.update(map(corpus_folder, arguments))
    given = dict(re.findall(r"^--([\w.]+)=(.*)$", "\n".join(arguments), re.MULTILINE))
    for flag, value in given.items():
        if flag in READS and not re.search(r" |^\d+$", value):  # a sentence, or --nbest=4
            made.reads.add(value.partition(":")[0])
        elif flag in MAKES:
            made.makes.add(value)
        elif flag not in READS | SPECIAL:
            is_file = re.search(r"/|\.[a-z]{2,5}$", value)
            assert not is_file, f"does --{flag} name a file that is read, or one that is made? List it in this test"
    corpora = corpora_of(given)
    made.reads.update(*map(files_of, corpora))
    made.data_sets.update(spec.split(":")[1] for spec in corpora if spec.startswith(DOWNLOADED))
    if "config" in given:
        made.reads.add(given["config"].partition(":")[0])
    if "from" in given:
        made.reads.add(given["from"].partition(":")[2])
    if "workdir" in given:
        is_new = module in MAKERS and given.keys() & {"config", "from"}
        (made.makes if is_new else made.reads).update(given["workdir"].split(","))
    return made


class Reader:
    """Who types the commands of a page in a clone, one after the other, and what he has by then."""

    def __init__(self, page: Path) -> None:
        self.page = name(page)
        self.text = page.read_text(encoding="utf-8")
        self.made = set(files(self.text))
        self.downloaded: set[str] = set()
        if page != PAGES[0]:
            self.made.add("runs/quickstart")  # by the README's first command

    def has(self, path: str, place: int) -> bool:
        """Returns whether a path is in a clone, made by now (or within or around what is), or his own.

        His own is what the page says, before `place`, that he supplies.
        """
        around = {path, *map(str, Path(path).parents)}
        if path in in_the_repository() or path in names() or around & self.made:
            return True
        if any(path in map(str, Path(made).parents) for made in self.made):
            return True
        own = OWN.get(self.page, {}).items()
        return any(words in self.text[:place] for start, words in own if start.rstrip("/") in around)

    def lacks(self, command: Command) -> list[str]:
        """Returns the files and data sets that a command reads and he has not; what it makes he has from now on."""
        used = use(command)
        missing = {path for path in used.reads if not self.has(path, command.place)}
        found = ours(command)
        if found and found[0] == "data.prepare":
            self.downloaded |= used.data_sets
        elif found and found[0] in TRAINERS:
            missing |= used.data_sets - self.downloaded
        self.made |= used.makes
        return sorted(missing)


def imported(file: str) -> str:
    """Returns the name by which a config file is imported."""
    module = file.removesuffix(".py").replace("/", ".")
    return f"vaswani.{module}" if module.startswith("configs.") else module


def corpora_of(given: dict[str, str]) -> list[str]:
    """Returns the corpora that a command reads: those of its config, unless flags name others, and of --corpus."""
    named = {split: given[f"config.data.{split}"] for split in SPLITS if f"config.data.{split}" in given}
    file, _, argument = given.get("config", "").partition(":")
    if file.startswith(DOCUMENTS) and (ROOT / file).is_file():
        get_config = import_module(imported(file)).get_config
        data: Any = (get_config(argument) if argument else get_config()).data
        named = {split: data[split] for split in SPLITS} | named
    return [*named.values(), *(given[key] for key in ("corpus",) if key in given)]


def files_of(spec: str) -> set[str]:
    """Returns the files of a corpus; {en,de} stays as it is written."""
    scheme, _, rest = spec.partition(":")
    if scheme not in SPECS or rest.startswith("grammar:"):
        return set()
    path = re.sub(r":(train|valid|\{[\w,]+\})$", "", rest)
    return set(path.split(",")) if scheme == "idx" else {path}


def test_a_reader_has_what_a_command_reads() -> None:
    wrong = []
    for page in PAGES:
        reader = Reader(page)
        for command in written(page):
            missing = reader.lacks(command)
            wrong += [f"{name(page)}: {command.line}: a reader has no {path} yet" for path in missing]
    assert not wrong, "\n".join(wrong)


def test_the_files_that_a_page_names_exist() -> None:
    wrong = []
    packages = {path.partition("/")[0] for path in in_the_repository() if "/" in path}
    named = re.compile(r"`([\w.-]+/[\w./-]+\.(?:py|md|jsonl?|svg|toml|lock))(:[\w:-]+)?`")
    for page in PAGES:
        for path, argument in named.findall(page.read_text(encoding="utf-8")):
            if "NAME" in path.split("/"):
                continue
            if path.partition("/")[0] in packages and path not in in_the_repository():
                wrong.append(f"{name(page)}: there is no {path}")
            elif path.startswith(DOCUMENTS) and argument and not argument[1:].isupper():
                import_module(imported(path)).get_config(argument[1:])
    assert not wrong, "\n".join(wrong)
