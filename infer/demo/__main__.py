"""Serves a web page for translating: n-best translations with scores, and the attention of every layer and head.

python -m infer.demo                                                  # the bundled translator, builtin:tatoeba
python -m infer.demo --workdir=builtin:tatoeba,runs/base --port=8123  # several runs side by side

Open the address that it prints; Ctrl-C ends it. The page loads nothing from the network and sends text to this process
only, which listens on this machine alone unless --host says otherwise: it has no password, so limit who can reach it.
"""

import errno
import sys
from typing import Any

from absl import flags

from vaswani.errors import UserError
from vaswani.files import folders
from vaswani.infer.demo.answers import Demo
from vaswani.infer.demo.server import listen
from vaswani.infer.options import define_decoding_flags, define_run_flags, start
from vaswani.infer.runs import open_run


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

    workdirs = folders("workdir", options.workdir)
    runs = [open_run(workdir, options.checkpoint) for workdir in workdirs]
    search = {name: options[name].value for name in ("beam", "alpha", "extra_length", "stopping")}
    demo = Demo(runs, workdirs, search)
    server.about = demo.about()
    server.answers = {
        "/sentences": demo.sentences,
        "/translate": demo.answer,
        "/warm": demo.warm,
        "/beam": demo.beam,
    }
    host = f"[{options.host}]" if ":" in options.host else options.host
    print(f"http://{host}:{server.server_address[1]}/", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    define_run_flags()
    flags.FLAGS.set_default("workdir", "builtin:tatoeba")
    define_decoding_flags()
    flags.DEFINE_string("host", "127.0.0.1", "address to listen on; by default reachable from this machine only")
    flags.DEFINE_integer("port", 8000, "port to listen on; 0 takes a free one", lower_bound=0, upper_bound=65535)
    start(main, hint="runs are given as --workdir=DIR[,DIR2]")
