"""How every command starts and ends: its flags, its errors in one line, its exit status."""

import atexit
import errno
import os
import platform
import re
import signal
import sys
import textwrap
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from difflib import get_close_matches
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from logging import CRITICAL, getLogger
from pathlib import Path
from types import FrameType
from typing import Any

from absl import flags, logging

from vaswani import compiled
from vaswani.errors import UserError, one_line, pip_install
from vaswani.keys import flat, namesake, nearest, suggestion

OUTPUT_CLOSED = 141  # what a shell reports for SIGPIPE
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# In jax's error; the first is absent if a program was given an array that could not be made. This package does not
# import jax.
_EXHAUSTED = ("RESOURCE_EXHAUSTED", "Out of memory")
_UNREACHED = ("Gloo", "NCCL", "heartbeat", "coordination service")  # likewise: one of the other processes is lost
_NO_DEVICE = "Unable to initialize backend"  # likewise: the device is missing, or another process has it
_LESS = (
    "a larger --config.optim.accumulate makes the same updates in less, a smaller --batch_tokens the same searches; "
    "validation and scoring read a line whole: leave out the longest, or break it"
)
_SINGLE = ("string", "string enum", "comma separated list of strings")  # absl's names of flags that have one value
_WIDTH = 100  # characters of a line of --help
_GRACE = 10.0  # seconds that one of several processes, after an error, waits for the others at its exit


def run(
    main: Callable[[list[str]], int | None],
    keys: dict[str, Any] | None = None,
    hint: str = "",
    check: Callable[[Any], None] | None = None,
) -> None:
    """Runs `main` with absl's flags, and exits; a `UserError` is one line on stderr and exit status 2, no traceback.

    So does a wrong flag, a wrong key or value in `--config.KEY=VALUE`, a file that cannot be used, or a disk or memory
    that is full. Ctrl-C exits with 130, and a reader of standard output that stops reading, such as `head`, ends the
    command without a word, with 141.

    Args:
      main: takes the command line without its flags; returns the exit status.
      keys: for a command that has `--config`: every legal config key and an example of its value, nested.
      hint: for a command without arguments: what to write instead of one.
      check: takes the flags, and raises a `UserError` if they do not go together; it runs before `main`'s imports.
    """
    _open_closed_streams()
    with suppress(AttributeError):  # of a stream that is no file
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # names need not be Unicode
    logging.use_absl_handler()
    _handle_ctrl_c()
    try:
        try:
            status = _answer(main, flat(keys or {}), hint, check)
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
    sys.exit(status)


def _answer(
    main: Callable[[list[str]], int | None], known: dict[str, Any], hint: str, check: Callable[[Any], None] | None
) -> int:
    """Prints help or the version if the command line asks for them, or else runs `main`; returns the exit status."""
    asked = set(sys.argv[1:])
    if asked & {"--help", "-help", "-h", "--helpshort"}:
        print(f"{sys.modules['__main__'].__doc__}\n{_listed_flags()}")
        return 0
    if "--version" in asked:
        print(_version())
        return 0
    arguments = _parse(sys.argv, known)
    if hint and len(arguments) > 1:
        raise UserError(f"unexpected argument {arguments[1]!r}; {hint}")
    if check:
        check(flags.FLAGS)
    _quieten()
    compiled.keep()
    return main(arguments) or 0


def _parse(argv: list[str], known: dict[str, Any]) -> list[str]:
    """Parses the flags, and returns the rest of the command line."""
    try:
        rest = flags.FLAGS(argv)
        _check_repeated()
        if "config" in flags.FLAGS and flags.FLAGS["config"].value is not None:
            flags.FLAGS["config"].value.to_dict()  # a missing file only raises here
        return rest
    except Exception as error:  # whatever a config file or a flag may raise
        raise _explain(argv, error, known) from error


def importing(frame: FrameType | None) -> bool:
    """Returns whether a module is being imported in this frame, or in one that waits for it."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _handle_ctrl_c() -> None:
    """Has Ctrl-C raise `KeyboardInterrupt`, unless it is ignored; during an import it ends the process.

    An extension module that is interrupted may crash the process.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        if importing(frame):
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)


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
    another message.
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
    """Returns a one-line error; "" for an error that the user cannot fix."""
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
    """Returns jax's error about the device, in one line: it is full, or cannot be used; "" for any other error."""
    first_line = one_line(message.partition("\n")[0])
    if any(words in first_line for words in _EXHAUSTED):
        return f"there is not enough memory: {first_line}; {_LESS}"
    if not first_line.startswith(_NO_DEVICE):
        return ""
    told, _, choose_another = first_line.partition(" (set JAX_PLATFORMS=")
    if choose_another and "libtpu" in told:
        return f"{told}; a TPU needs the extra tpu: {pip_install('tpu')}"
    return first_line


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
    """Returns the description of every flag that the command's own code defines, in whichever file."""
    for module, defined in flags.FLAGS.flags_by_module_dict().items():
        if _is_ours(module):
            for flag in defined:
                flags.FLAGS.register_key_flag_for_module(sys.argv[0], flag)
    ours = sorted(flags.FLAGS.get_key_flags_for_module(sys.argv[0]), key=lambda flag: flag.name)
    return "\n".join(["Flags:", *map(_flag_help, ours)])


def _is_ours(module: str) -> bool:
    """Returns whether a module is of this project, or of the package whose command runs, and not of a library."""
    command = sys.modules["__main__"].__spec__
    packages = ("vaswani", command.name.partition(".")[0] if command else "")
    return module.partition(".")[0] in packages


def _flag_help(flag: flags.Flag) -> str:
    """Returns the lines of --help about a flag."""
    name = f"--[no]{flag.name}" if flag.boolean else f"--{flag.name}"
    about = [] if flag.boolean else [flag.parser.syntactic_help]
    is_given = flag.default not in (None, "", []) and flag.default is not False
    if is_given:
        about.append(f"default: {flag.default}")
    notes = "; ".join(filter(None, about))
    in_one_line = " ".join(flag.help.split())  # absl's own additions are indented
    text = f"{name}: {in_one_line}" + (f" ({notes})" if notes else "")
    return textwrap.fill(text, _WIDTH, initial_indent="  ", subsequent_indent="      ", break_on_hyphens=False)


def _config_file(argv: list[str]) -> str:
    """Returns the file that --config=FILE[:ARGUMENT] names, the last if there are several; "" if there is none."""
    file = ""
    for argument, following in pairwise([*argv[1:], ""]):
        flag, equals, value = argument.partition("=")
        if flag in ("--config", "-config"):
            file = (value if equals else following).partition(":")[0]
    return file


def _check_repeated() -> None:
    """Raises a `UserError` if a flag of ours was given twice, so that a value is lost.

    A number, a switch or a key of the config may be given again, to override a script's; the last counts. With two
    files or folders, runs or splits, the first would be silently ignored.
    """
    for module, defined in flags.FLAGS.flags_by_module_dict().items():
        if module != sys.argv[0] and not _is_ours(module):
            continue
        for flag in defined:
            if flag.present > 1 and flag.flag_type() in _SINGLE:
                raise UserError(f"--{flag.name} is given {flag.present} times, and only the last would count: give one")


def _explain(argv: list[str], error: Exception, known: dict[str, Any]) -> UserError:
    if isinstance(error, UserError):
        return error
    groups = {key.rpartition(".")[0] for key in known}
    for argument in argv[1:]:
        match = re.match(r"--?(?:no)?config\.([^=]+)", argument)
        if known and match and match[1] not in known.keys() | groups:
            return UserError(f"--config.{match[1]}: there is no such key{suggestion(match[1], known)}")
    file = _config_file(argv)
    if file and isinstance(error, OSError) and not Path(file).is_file():
        return UserError(f"--config={file}: no such file{_near_config(file)}")
    if isinstance(error, flags.UnrecognizedFlagError):
        return UserError(f"there is no flag --{error.flagname}; {_near_flag(error.flagname, [*known])}")
    lines = str(error).strip().splitlines()
    reason = lines[-1] if lines else ""
    wrong = re.match(r"flag --config\.([^=]+)=(.*?):", str(error)) if isinstance(error, flags.Error) else None
    if wrong and wrong[1] in known:
        return UserError(f"--config.{wrong[1]}={wrong[2]}: wrong type; {_how_to_write(wrong[2], known[wrong[1]])}")
    missing = re.match(r"flag --(\w+)=None: Flag --\1 must have a value", reason)
    if missing:
        value = {"workdir": "DIR"}.get(missing[1], "...")
        return UserError(f"--{missing[1]}={value} is missing; --help lists the flags")
    if isinstance(error, flags.Error) and "parsing config file" not in str(error):
        return UserError(f"{reason}; --help lists the flags")
    kind = "" if isinstance(error, flags.Error) else f"{type(error).__name__}: "
    return UserError(f"--config={file}: {kind}{reason}")


def _how_to_write(text: str, default: Any) -> str:
    """Returns advice on writing a value of the default's type, given a text that spells none."""
    if text[:1] in "\"'" and text[:1] == text[-1:]:
        return f"leave out the quotes: {text[1:-1]}"
    if isinstance(default, bool):
        return "write True or False"
    if isinstance(default, int):
        with suppress(ValueError, OverflowError):
            return f"a whole number has no point and no exponent: {int(float(text))}"
    return f"write, for example, {default!r}"


def _near_config(file: str) -> str:
    """Returns "; did you mean ...?" with the file of configs/ that has nearly this name; "" if there is none."""
    names = [path.stem for path in (Path(__file__).parent / "configs").glob("[a-z]*.py")]
    near = get_close_matches(Path(file).stem, names, n=1, cutoff=0.75)  # high: it may be the user's own file
    return f"; did you mean configs/{near[0]}.py?" if near else ""


def _near_flag(name: str, keys: list[str]) -> str:
    """Returns a suggestion: a similar flag or config key, or else --help."""
    key = namesake(name, keys)
    near = f"config.{key}" if key else nearest(name, [*flags.FLAGS, *(f"config.{each}" for each in keys)])
    return f"did you mean --{near}?" if near else "--help lists the flags"
