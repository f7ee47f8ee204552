"""What `python -m infer.demo` does once its flags have been checked."""

from typing import Any

from base.errors import UserError
from infer.demo.answers import Demo
from infer.demo.server import serve
from infer.runs import open_run


def main(options: Any) -> None:
    """Serves the page until Ctrl-C."""
    workdirs = options.workdir.split(",")
    runs = [open_run(workdir, options.checkpoint) for workdir in workdirs]
    search = {name: options[name].value for name in ("beam", "alpha", "extra_length")}
    demo = Demo(runs, workdirs, search)
    try:
        server = serve(demo.answer, options.host, options.port)
    except OSError as error:
        raise UserError(f"--host={options.host} --port={options.port}: {error.strerror}; try another --port") from error
    print(f"http://{options.host}:{server.server_address[1]}/", flush=True)
    server.serve_forever()
