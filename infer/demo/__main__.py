"""Serves a web page for translating: n-best translations with scores, and the attention of every layer and head.

python -m infer.demo --workdir=runs/quickstart
python -m infer.demo --workdir=runs/quickstart,runs/one_head --port=8123      # several runs side by side

Open the address that it prints; Ctrl-C ends it. The page loads nothing from the network and sends text to this process
only, which listens on this machine alone unless --host says otherwise: it has no password, so limit who can reach it.
"""

from absl import flags

from base.errors import UserError
from infer.options import define_decoding_flags, define_run_flags, start


def main(argv: list[str]) -> None:
    """Runs the command; flags below."""
    options = flags.FLAGS
    from infer.demo.answers import Demo
    from infer.demo.server import serve
    from infer.runs import open_run

    workdirs = options.workdir.split(",")
    limits = {name: options[name].value for name in ("beam", "alpha", "extra_length")}
    demo = Demo([open_run(workdir, options.checkpoint) for workdir in workdirs], workdirs, limits)
    try:
        server = serve(demo.answer, options.host, options.port)
    except OSError as error:
        raise UserError(f"--host={options.host} --port={options.port}: {error.strerror}; try another --port") from error
    print(f"http://{options.host}:{server.server_address[1]}/", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    define_run_flags()
    define_decoding_flags()
    flags.DEFINE_string("host", "127.0.0.1", "address to listen on; by default reachable from this machine only")
    flags.DEFINE_integer("port", 8000, "port to listen on; 0 takes a free one", lower_bound=0, upper_bound=65535)
    start(main, stray="runs are given as --workdir=DIR[,DIR2]")
