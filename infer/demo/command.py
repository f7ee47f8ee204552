"""What `python -m infer.demo` does once its flags have been checked."""

import errno
import sys
from typing import Any

from base.errors import UserError
from base.files import folders
from infer.demo.server import listen


def main(options: Any) -> None:
    """Serves the page until Ctrl-C."""
    if not options.host.strip():  # which a socket takes for all addresses
        raise UserError("--host= is empty: name an address; 127.0.0.1 is reachable from this machine only")
    try:
        server = listen(options.host, options.port)
    except (TypeError, UnicodeError) as error:  # of the encoding of host names
        raise UserError(f"--host={options.host!r}: not a host name") from error
    except OSError as error:
        is_the_port = error.errno in (errno.EADDRINUSE, errno.EACCES)
        cure = "try another --port" if is_the_port else "--host must be an address of this machine"
        raise UserError(f"--host={options.host} --port={options.port}: {error.strerror}; {cure}") from error
    print("loading ...", file=sys.stderr, flush=True)
    from infer.demo.answers import Demo  # only now: these load jax, and a port that is taken is refused before
    from infer.runs import open_run

    workdirs = folders("workdir", options.workdir)
    runs = [open_run(workdir, options.checkpoint) for workdir in workdirs]
    search = {name: options[name].value for name in ("beam", "alpha", "extra_length", "stopping")}
    demo = Demo(runs, workdirs, search)
    server.answers = {"/translate": demo.answer, "/warm": demo.warm, "/beam": demo.beam}
    host = f"[{options.host}]" if ":" in options.host else options.host
    print(f"http://{host}:{server.server_address[1]}/", flush=True)
    server.serve_forever()
