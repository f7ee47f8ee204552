"""Command-line flags that several commands share."""

from absl import flags
from ml_collections import ConfigDict

from infer.decoding import Decoding, Sampling, allowed, chosen, rule


def define_run_flags() -> None:
    """Defines --workdir and --checkpoint."""
    flags.DEFINE_string("workdir", None, "folder of the run")
    flags.DEFINE_string("checkpoint", None, "latest, STEP, best, average:N, average:N@MINUTES or average-best:N; "
                        "default: config.decode.checkpoint")  # fmt: skip
    flags.mark_flag_as_required("workdir")


def define_decoding_flags() -> None:
    """Defines --beam, --alpha and --extra_length."""
    flags.DEFINE_integer("beam", None, "beam size, 1 is greedy; default: config.decode.beam")
    flags.DEFINE_float("alpha", None, "length penalty; default: config.decode.alpha")
    flags.DEFINE_integer(
        "extra_length", None, "output subwords beyond the source's; default: config.decode.extra_length"
    )
    check("beam", "alpha", "extra_length")


def check(*names: str) -> None:
    """Makes the command line reject values of these flags outside `infer.decoding.LIMITS`."""
    for name in names:
        flags.register_validator(name, lambda value, name=name: allowed(name, value), message=rule(name))


def decoding(config: ConfigDict, *, nbest: int = 1, sampling: Sampling | None = None) -> Decoding:
    """Returns the decoding options of the flags; those not given come from the run's `config.decode`."""
    options = flags.FLAGS
    return chosen(
        config.decode,
        beam=options.beam,
        alpha=options.alpha,
        extra_length=options.extra_length,
        nbest=nbest,
        sampling=sampling,
    )
