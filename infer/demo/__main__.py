"""Serves a web page for translating: n-best translations with scores, and the attention of every layer and head.

python -m infer.demo --workdir=runs/quickstart
python -m infer.demo --workdir=runs/quickstart,runs/one_head --port=8123      # several runs side by side

Open the address that it prints; Ctrl-C ends it. The page loads nothing from the network and sends text to this process
only, which listens on this machine alone unless --host says otherwise: it has no password, so limit who can reach it.
"""

from absl import flags

from base.command import imported
from infer.options import define_decoding_flags, define_run_flags, start

if __name__ == "__main__":
    define_run_flags()
    define_decoding_flags()
    flags.DEFINE_string("host", "127.0.0.1", "address to listen on; by default reachable from this machine only")
    flags.DEFINE_integer("port", 8000, "port to listen on; 0 takes a free one", lower_bound=0, upper_bound=65535)
    start(imported("infer.demo.command"), hint="runs are given as --workdir=DIR[,DIR2]")
