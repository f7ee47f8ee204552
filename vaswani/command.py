"""How every command starts and ends: its flags, its errors in one line, its exit status."""

import atexit
import errno
import os
import platform
import re
import sys
import textwrap
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from difflib import get_close_matches
from importlib.metadata import PackageNotFoundError, version
from itertools import zip_longest
from logging import CRITICAL, getLogger
from pathlib import Path
from typing import Any, NamedTuple

from absl import app, flags, logging

from vaswani import compiled, interrupt
from vaswani.errors import UserError, one_line, shown
from vaswani.keys import flat, namesake, nearest, suggestion

OUTPUT_CLOSED = 141  # what a shell reports for SIGPIPE
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# In jax's error; the first is absent if a program was given an array that could not be made. This package does not
# import jax.
_EXHAUSTED = ("RESOURCE_EXHAUSTED", "Out of memory")
_UNREACHED = ("Gloo", "NCCL", "heartbeat", "coordination service")  # likewise: one of the other processes is lost
_NO_DEVICE = "Unable to initialize backend"  # likewise: the device is not there, or another process has it
_LESS = (
    "a larger --config.optim.accumulate makes the same updates in less, a smaller --batch_tokens the same searches; "
    "validation and scoring read a line whole: leave out the longest, or break it"
)
_GROUPS = {  # what --help writes above the flags of a file that several commands share
    "vaswani.infer.options": "The run and its decoding",
    "vaswani.run.unchanged": "The run and its decoding",
    "vaswani.run.connect": "Several processes",
}
_SINGLE = ("string", "string enum", "comma separated list of strings")  # absl's names of flags that have one value
_WIDTH = 100  # characters of a line of --help
_GRACE = 10.0  # seconds that one of several processes, after an error, waits for the others at its exit


def run(
    main: Callable[[list[str]], int | None],
    keys: dict[str, Any] | None = None,
    hint: str = "",
    check: Callable[[Any], None] | None = None,
) -> None:
    """Runs an absl `main`; a `UserError` becomes one line on stderr and exit status 2, without a traceback.

    So does a wrong flag, a wrong key or value in `--config.KEY=VALUE`, a file that cannot be used, or a disk or memory
    that is full. Ctrl-C exits with 130, and a reader of standard output that stops reading, such as `head`, ends the
    command without a word, with 141.

    Args:
      main: takes the command line without its flags; returns the exit status.
      keys: for a command that has `--config`: every legal config key and an example of its value, nested.
      hint: for a command without arguments: what to write instead of one.
      check: takes the flags, and raises a `UserError` if they do not go together; it runs before `main`'s imports.
    """
    known = flat(keys or {})
    with suppress(AttributeError):  # of a stream that is no file
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # names need not be Unicode

    def parse(argv: list[str]) -> CommandLine:
        return _parsed(argv, known)

    def guarded(line: CommandLine) -> int:
        interrupt.while_running()
        try:
            try:
                status = 0
                if not _is_answered(line, hint, check):
                    status = main(line.arguments) or 0
            except (Exception, KeyboardInterrupt) as error:
                told = _told_in_one_line(error)
                if told is None:
                    raise
                status = told
            status = flush_outputs() or status
        except BrokenPipeError:  # of standard error, while writing the one line
            status = flush_outputs() or OUTPUT_CLOSED
        if status:
            atexit.register(_silence)
            _exit_soon(status)
        return status

    _open_closed_streams()
    app.run(guarded, flags_parser=parse)


class CommandLine(NamedTuple):
    """The command line without its flags; or else that help or the version was asked for, or what is wrong."""

    arguments: list[str]
    asks_help: bool = False
    asks_version: bool = False
    fault: UserError | None = None


def _parsed(argv: list[str], known: dict[str, Any]) -> CommandLine:
    """Parses the flags, and returns the rest of the command line."""
    if {"--help", "-help", "-h", "--helpshort"} & set(argv[1:]):
        flags.FLAGS.mark_as_parsed()
        return CommandLine([], asks_help=True)
    if "--version" in argv[1:]:
        flags.FLAGS.mark_as_parsed()
        return CommandLine([], asks_version=True)
    try:
        _check_config_file(argv)
        rest = flags.FLAGS(argv)
        _check_values()
        if "config" in flags.FLAGS and flags.FLAGS["config"].value is not None:
            flags.FLAGS["config"].value.to_dict()  # a missing file only raises here
        return CommandLine(rest)
    except Exception as error:  # whatever a config file or a flag may raise
        if not flags.FLAGS.is_parsed():
            flags.FLAGS.mark_as_parsed()
        return CommandLine([], fault=_explained(argv, error, known))


def _quieten() -> None:
    """Keeps libraries from logging what users need not see, unless --verbosity asks for it."""
    if flags.FLAGS["verbosity"].present:
        return
    # Orbax logs every step at INFO, and logs a page at ERROR about each error that it also raises.
    logging.set_verbosity(logging.FATAL)
    # Only orbax uses asyncio, and what it abandons after an error is logged, or warned of.
    getLogger("asyncio").setLevel(CRITICAL)
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)


def _open_closed_streams() -> None:
    """Opens the null device for each standard stream that is closed.

    The next file to be opened would otherwise have its number, and receive what libraries write to standard error.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, os.fdopen(null, mode, encoding="utf-8", errors="backslashreplace"))


def _silence() -> None:
    """Discards what threads of libraries print about the error while Python ends; it has been told in one line."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _exit_soon(status: int) -> None:
    """Ends one of several processes within `_GRACE` of an error.

    At exit jax would wait five minutes for the others, which may be waiting for this one, and then abort it.
    """
    if status == 2 and _are_several():
        ending = threading.Timer(_GRACE, os._exit, (status,))
        ending.daemon = True
        ending.start()


def flush_outputs() -> int:
    """Flushes both outputs; returns the exit status of a failure, which is one line if the disk is full, or 0.

    An output that cannot be written is replaced by the null device: Python flushes it again at exit, and would print
    a message of its own.
    """
    status = 0
    for stream, name in ((sys.stdout, "standard output"), (sys.stderr, "standard error")):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            status = OUTPUT_CLOSED if isinstance(error, BrokenPipeError) else 2
            if status == 2:
                print(f"error: {name} cannot be written ({error.strerror})", file=sys.stderr)
    return status


def _is_answered(line: CommandLine, hint: str, check: Callable[[Any], None] | None) -> bool:
    """Prints help or the version if the command line asks for them, and returns whether it does.

    Raises:
      UserError: the command line is wrong.
    """
    if line.asks_help:
        print(f"{sys.modules['__main__'].__doc__}\n{_listed_flags()}")
        return True
    if line.asks_version:
        print(_version())
        return True
    if line.fault:
        raise line.fault
    if hint and len(line.arguments) > 1:
        raise UserError(f"unexpected argument {line.arguments[1]!r}; {hint}")
    if check:
        check(flags.FLAGS)
    _quieten()
    compiled.keep()
    return False


def _told_in_one_line(error: BaseException) -> int | None:
    """Tells an error that the user can fix in one line on stderr; returns the exit status, None for any other error."""
    if isinstance(error, KeyboardInterrupt):
        print("interrupted", file=sys.stderr)
        return 130
    if isinstance(error, BrokenPipeError):
        return OUTPUT_CLOSED
    is_full = isinstance(error, OSError) and error.errno in _NO_SPACE
    if is_full and (status := flush_outputs()):
        return status
    line = _line_of(error)
    if not line:
        return None
    print(f"error: {line}", file=sys.stderr)
    return 2


def _line_of(error: BaseException) -> str:
    """Returns what is wrong, in one line; "" of an error that the user cannot fix."""
    match error:
        case UserError():
            return one_line(str(error))
        case RuntimeError():
            return _of_device(str(error)) or _of_others(str(error))
        case MemoryError():
            return f"there is not enough memory: {one_line(str(error)) or 'take less at a time'}"
        case OSError() if error.errno in _NO_SPACE:
            return f"{error.filename or 'standard output'} cannot be written ({error.strerror})"
        case OSError() if error.filename:
            return one_line(f"{error.filename}: {error.strerror}")
    return ""


def _of_device(message: str) -> str:
    """Returns what jax says of the device, in one line: it is full, or cannot be used; "" of any other error."""
    first_line = one_line(message.partition("\n")[0])
    if any(words in first_line for words in _EXHAUSTED):
        return f"there is not enough memory: {first_line}; {_LESS}"
    return first_line if first_line.startswith(_NO_DEVICE) else ""


def _of_others(message: str) -> str:
    """Returns that another process of this run has ended, if jax could not reach one; "" of any other error."""
    first_line = one_line(message.partition("\n")[0])
    if not (_are_several() and any(words in first_line for words in _UNREACHED)):
        return ""
    return f"another process of this run has ended, or cannot be reached: {first_line}"


def _are_several() -> bool:
    """Returns whether this is one of several processes that jax has connected."""
    jax = sys.modules.get("jax")  # this package does not import it
    return jax is not None and jax.distributed.is_initialized()


def _version() -> str:
    """Returns the version of this code, and those that its numbers depend on."""
    versions = []
    for name in ("vaswani", "jax", "flax"):
        try:
            versions.append(f"{name} {version(name)}")
        except PackageNotFoundError:  # a clone that is run from its folder
            versions.append(f"{name} (not installed)")
    return f"{', '.join(versions)}, Python {platform.python_version()}"


def _listed_flags() -> str:
    """Returns the description of every flag that the command's own code defines, in whichever file, in groups."""
    for module, defined in flags.FLAGS.flags_by_module_dict().items():
        if _is_ours(module):
            for flag in defined:
                flags.FLAGS.register_key_flag_for_module(sys.argv[0], flag)
    groups: dict[str, list[str]] = {"Flags": []}
    for flag in sorted(flags.FLAGS.get_key_flags_for_module(sys.argv[0]), key=lambda flag: flag.name):
        title = _GROUPS.get(flags.FLAGS.find_module_defining_flag(flag.name, "") or "", "Flags")
        groups.setdefault(title, []).append(_described(flag))
    paragraphs = ["\n".join([f"{title}:", *lines]) for title, lines in groups.items() if lines]
    return "\n\n".join(paragraphs)


def _is_ours(module: str) -> bool:
    """Returns whether a module is of this project, or of the package whose command runs, and not of a library."""
    command = sys.modules["__main__"].__spec__
    packages = ("vaswani", command.name.partition(".")[0] if command else "")
    return module.partition(".")[0] in packages


def _described(flag: flags.Flag) -> str:
    """Returns what --help says of a flag."""
    name = f"--[no]{flag.name}" if flag.boolean else f"--{flag.name}"
    about = [] if flag.boolean else [flag.parser.syntactic_help]
    is_given = flag.default not in (None, "", []) and flag.default is not False
    if is_given:
        about.append(f"default: {flag.default}")
    notes = "; ".join(filter(None, about))
    in_one_line = " ".join(flag.help.split())  # absl's own additions are indented
    text = f"{name}: {in_one_line}" + (f" ({notes})" if notes else "")
    return textwrap.fill(text, _WIDTH, initial_indent="  ", subsequent_indent="      ", break_on_hyphens=False)


def _check_config_file(argv: list[str]) -> None:
    """Raises a `UserError` if --config is a device or a pipe: it would be read as Python, perhaps for ever."""
    for name in _config_files(argv):
        file = Path(name)
        if file.exists() and not file.is_file():
            raise UserError(f"--config={file}: not a regular file; name one in configs/")


def _config_files(argv: list[str]) -> list[str]:
    """Returns the files that --config=FILE[:ARGUMENT] names; if there are several, the last one counts."""
    files: list[str] = []
    for argument, following in zip_longest(argv[1:], argv[2:]):
        flag, equals, value = argument.partition("=")
        named = value if equals else following
        if flag in ("--config", "-config") and named is not None:
            files.append(named.partition(":")[0])
    return files


def _check_values() -> None:
    """Raises a `UserError` if a flag of ours has lost a value, or is beyond 64 bits, which no library would take.

    A number, a switch or a key of the config may be given again, to replace one of a script; the last counts. Of two
    files or folders, runs or splits, the first would be left out without a word.
    """
    for module, defined in flags.FLAGS.flags_by_module_dict().items():
        if module != sys.argv[0] and not _is_ours(module):
            continue
        for flag in defined:
            if isinstance(flag.value, int) and abs(flag.value) >= 1 << 63:
                raise UserError(f"--{flag.name}={shown(flag.value)}: a number of more than 64 bits")
            if flag.present > 1 and flag.flag_type() in _SINGLE:
                raise UserError(f"--{flag.name} is given {flag.present} times, and only the last would count: give one")


def _explained(argv: list[str], error: Exception, known: dict[str, Any]) -> UserError:
    if isinstance(error, UserError):
        return error
    groups = {key.rpartition(".")[0] for key in known}
    for argument in argv[1:]:
        match = re.match(r"--?(?:no)?config\.([^=]+)", argument)
        if known and match and match[1] not in known.keys() | groups:
            return UserError(f"--config.{match[1]}: there is no such key{suggestion(match[1], known)}")
    files = _config_files(argv)
    file = files[-1] if files else ""
    if files and isinstance(error, OSError) and not Path(file).is_file():
        return UserError(f"--config={file}: no such file{_near_config(file)}")
    if isinstance(error, flags.UnrecognizedFlagError):
        return UserError(f"there is no flag --{error.flagname}; {_near_flag(error.flagname, [*known])}")
    lines = str(error).strip().splitlines()
    reason = lines[-1] if lines else ""
    wrong = re.match(r"flag --config\.([^=]+)=(.*?):", str(error)) if isinstance(error, flags.Error) else None
    if wrong and wrong[1] in known:
        return UserError(f"--config.{wrong[1]}={wrong[2]}: wrong type; write, for example, {known[wrong[1]]!r}")
    missing = re.match(r"flag --(\w+)=None: Flag --\1 must have a value", reason)
    if missing:
        value = {"workdir": "DIR"}.get(missing[1], "...")
        return UserError(f"--{missing[1]}={value} is missing; --help lists the flags")
    if isinstance(error, flags.Error) and "parsing config file" not in str(error):
        return UserError(f"{reason}; --help lists the flags")
    kind = "" if isinstance(error, flags.Error) else f"{type(error).__name__}: "
    return UserError(f"--config={file}: {kind}{reason}")


def _near_config(file: str) -> str:
    """Returns "; did you mean ...?" with the file of configs/ that has nearly this name; "" if there is none."""
    names = [path.stem for path in (Path(__file__).parent / "configs").glob("[a-z]*.py")]
    near = get_close_matches(Path(file).stem, names, n=1, cutoff=0.75)  # high: it may be a file of the user's own
    return f"; did you mean configs/{near[0]}.py?" if near else ""


def _near_flag(name: str, keys: list[str]) -> str:
    """Returns which flag may have been meant, perhaps that of a config key, or where all are listed."""
    key = namesake(name, keys)
    near = f"config.{key}" if key else nearest(name, [*flags.FLAGS, *(f"config.{each}" for each in keys)])
    return f"did you mean --{near}?" if near else "--help lists the flags"
