"""The demo's HTTP server: the page, and answers to POST of {"text": ..., "target": ...}."""

import io
import ipaddress
import json
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from vaswani.errors import UserError
from vaswani.infer.html import inline_scripts, read_template, script_json, script_policy

Answer = Callable[[str, str], dict[str, Any]]  # of a text and a target to JSON values; `UserError` for a wrong sentence

PAGE = Path(__file__).with_name("page.html")
LARGEST = 65_536  # bytes of a request's body: the page's 10,000 characters have up to 40,000
DRAINED = 1 << 20  # bytes that are read and forgotten of one that is larger
MOST = 32  # connections at a time
PATIENCE = 30.0  # seconds that a client has to send its request, and to take its answer
BUSY = b"""HTTP/1.0 503 Service Unavailable\r
Content-Type: application/json\r
X-Content-Type-Options: nosniff\r
Retry-After: 1\r
\r
{"error": "the server is busy; try again"}"""


def listen(host: str, port: int) -> "Server":
    """Returns a server that has its port already, so that nobody else takes it; clients wait for its `serve_forever`.

    Raises:
      OSError: the address cannot be listened on.
    """
    page = read_template(PAGE)
    policy = (
        f"default-src 'none'; script-src {script_policy(inline_scripts(page))}; style-src 'unsafe-inline'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    handler = type("Bound", (Handler,), {"page": page, "policy": policy})
    return Server((host, port), handler)


class Server(ThreadingHTTPServer):
    """Answers each connection in a thread of its own, `MOST` at a time; one more is refused at once.

    `answers` has what POST to each path returns, `about` what the page reads at first; both are set before
    `serve_forever`. `host` is what the user has named.
    """

    daemon_threads = True
    answers: Mapping[str, Answer] = {}
    about: Mapping[str, Any] = {"runs": [], "examples": []}

    def __init__(self, address: tuple[str, int], handler: type["Handler"]) -> None:
        self.host = address[0].lower()  # as browsers send it
        self._free = threading.Semaphore(MOST)
        if ":" in self.host:
            self.address_family = socket.AF_INET6
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Starts the thread of a connection, or refuses it."""
        if self._free.acquire(blocking=False):
            try:
                super().process_request(request, client_address)
            except RuntimeError:  # no thread could be started, which would have given the place back
                self._free.release()
                raise
            return
        with suppress(OSError):
            request.setblocking(False)
            request.send(BUSY)
            request.recv(LARGEST)  # closing a connection before what has arrived is read would take the answer back
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answers a connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Prints an error's traceback, but nothing about a client that has left or is too slow."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class Request(io.RawIOBase):
    """What a client sends, all of it within `PATIENCE`."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._deadline = time.monotonic() + PATIENCE

    def readable(self) -> bool:
        """Returns True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Raises `TimeoutError` after the deadline."""
        self._connection.settimeout(max(0.001, self._deadline - time.monotonic()))
        return self._connection.recv_into(buffer)


class Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    server: Server
    page: str
    policy: str

    def setup(self) -> None:
        """Opens the connection's two directions."""
        super().setup()
        self.rfile = io.BufferedReader(Request(self.connection))

    def do_GET(self) -> None:
        """Sends the page."""
        if not self._is_ours():
            self.send_error(HTTPStatus.FORBIDDEN, "this server answers to its own address only")
        elif self.path != "/":
            self.send_error(HTTPStatus.NOT_FOUND, "there is only /")
        else:
            page = self.page.replace("__DATA__", script_json(self.server.about))
            self._send(HTTPStatus.OK, "text/html; charset=utf-8", page.encode())

    def do_POST(self) -> None:
        """Sends the answer to a sentence."""
        length = self.headers.get("Content-Length", "")
        size = int(length) if re.fullmatch("[0-9]{1,9}", length) else None
        body = self.rfile.read(min(size or 0, DRAINED))  # before any refusal: the client may read only once it has sent
        if not self._is_ours():
            self.send_error(HTTPStatus.FORBIDDEN, "this server answers to its own address only")
        elif self.path not in self.server.answers:
            self.send_error(HTTPStatus.NOT_FOUND, f"there is only POST {', '.join(self.server.answers)}")
        elif self.headers.get_content_type() != "application/json":  # what no form of another site can send
            self.send_error(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the body must be application/json")
        elif size is None:
            self.send_error(HTTPStatus.LENGTH_REQUIRED, "Content-Length is missing, or no number of bytes")
        elif size > LARGEST:
            self.send_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a request has at most {LARGEST:,} bytes")
        else:
            self._answer(body)

    def _answer(self, body: bytes) -> None:
        try:
            request = json.loads(body)
            fields = request if isinstance(request, dict) else {}
            text = fields.get("text")
            target = fields.get("target", "")
            if not isinstance(text, str) or not isinstance(target, str):
                raise UserError('the body must be {"text": "a sentence"}, with or without "target"')
            answer = self.server.answers[self.path](text, target)
        except UserError as error:
            self.send_error(HTTPStatus.BAD_REQUEST, str(error))
        except (ValueError, RecursionError):
            self.send_error(HTTPStatus.BAD_REQUEST, "the body is not JSON")
        else:
            self._send(HTTPStatus.OK, "application/json", json.dumps(answer).encode())

    def _is_ours(self) -> bool:
        """Returns whether the request names this machine: another name may be a page's, rebound to this machine."""
        here = ipaddress.ip_address(self.connection.getsockname()[0])
        if isinstance(here, ipaddress.IPv6Address):
            here = here.ipv4_mapped or here  # of an IPv4 client of a server that listens on ::
        if not here.is_loopback:
            return True
        host = re.sub(r":\d+$", "", self.headers.get("Host", "")).strip("[]").lower()
        if host in ("localhost", self.server.host):
            return True
        with suppress(ValueError):
            address = ipaddress.ip_address(host)
            return address.is_loopback or address.is_unspecified
        return False

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Sends any refusal, also of the base class, as one line of JSON."""
        reason = HTTPStatus(code).phrase if message is None else message
        self._send(code, "application/json", json.dumps({"error": reason}).encode())

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.connection.settimeout(PATIENCE)
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", self.policy)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        """Logs nothing: what is translated is the user's."""
