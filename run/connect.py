"""Connects the processes of a run that uses several, by its flags or by what a cluster manager provides."""

from absl import flags

from base.errors import UserError

flags.DEFINE_string("coordinator", None, "HOST:PORT of process 0, if no cluster manager provides it")
flags.DEFINE_integer("processes", None, "number of processes; used with --coordinator", lower_bound=1)
flags.DEFINE_integer("process", None, "index of this process, from 0; used with --coordinator", lower_bound=0)


def connect() -> None:
    """Connects to the other processes of this run; to be called before jax looks for devices.

    Cloud TPU slices, Slurm steps, Open MPI and Kubernetes jobs are detected (`jax.distributed`). Elsewhere the three
    flags are needed, except on a single machine.

    Raises:
      UserError: only some of the flags are given, or the other processes do not answer.
    """
    import jax  # only now: a mistyped flag is answered without it

    given = [flags.FLAGS[name].value for name in ("coordinator", "processes", "process")]
    if given != [None] * 3 and None in given:
        raise UserError("--coordinator, --processes and --process go together: give all three or none")
    if jax.distributed.is_initialized():
        return
    try:
        jax.distributed.initialize(*given)
    except ValueError:
        if given[0] is not None:
            raise
    except RuntimeError as error:
        raise UserError(f"--coordinator={given[0]}: no connection ({str(error).splitlines()[0]})") from error
