"""The demo's HTTP server: the page, and POST /translate with {"text": ...}. It sends nothing to anyone else."""

import ipaddress
import json
import re
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from base.errors import UserError
from infer.attention.page import script_policy

Answer = Callable[[str], list[dict[str, Any]]]  # JSON values for each run; raises `UserError` for a wrong sentence

PAGE = Path(__file__).with_name("page.html")
LARGEST = 16_384  # bytes of a request's body
DRAINED = 1 << 20  # bytes that are read and forgotten of one that is larger
PATIENCE = 30.0  # seconds that a connection may be silent


def serve(answer: Answer, host: str, port: int) -> ThreadingHTTPServer:
    """Returns a server that listens already; its `serve_forever` sends what `answer` returns for a sentence.

    Raises:
      OSError: the address cannot be listened on.
    """
    page = PAGE.read_text(encoding="utf-8")
    policy = (
        f"default-src 'none'; script-src {script_policy(page)}; style-src 'unsafe-inline'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    handler = type("Bound", (Handler,), {"answer": staticmethod(answer), "page": page.encode(), "policy": policy})
    server = ThreadingHTTPServer((host, port), handler)
    server.daemon_threads = True
    return server


class Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    answer: Answer
    page: bytes
    policy: str
    timeout = PATIENCE

    def do_GET(self) -> None:
        """Sends the page."""
        if not self._is_ours():
            self._refuse(HTTPStatus.FORBIDDEN, "this server answers to its own address only")
        elif self.path != "/":
            self._refuse(HTTPStatus.NOT_FOUND, "there is only /")
        else:
            self._send(HTTPStatus.OK, "text/html; charset=utf-8", self.page)

    def do_POST(self) -> None:
        """Sends the answers for a sentence; any fault of the request is one line of JSON."""
        length = self.headers.get("Content-Length", "")
        size = int(length) if length.isascii() and length.isdigit() and len(length) < 10 else None
        body = self.rfile.read(min(size or 0, DRAINED))  # before any refusal: the client may read only once it has sent
        if not self._is_ours():
            self._refuse(HTTPStatus.FORBIDDEN, "this server answers to its own address only")
        elif self.path != "/translate":
            self._refuse(HTTPStatus.NOT_FOUND, "there is only POST /translate")
        elif self.headers.get_content_type() != "application/json":  # what no form of another site can send
            self._refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the body must be application/json")
        elif size is None:
            self._refuse(HTTPStatus.LENGTH_REQUIRED, "Content-Length is missing, or no number of bytes")
        elif size > LARGEST:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a request has at most {LARGEST:,} bytes")
        else:
            self._translate(body)

    def _translate(self, body: bytes) -> None:
        try:
            request = json.loads(body)
            if not isinstance(request, dict) or not isinstance(request.get("text"), str):
                raise UserError('the body must be {"text": "a sentence"}')
            runs = self.answer(request["text"])
        except UserError as error:
            self._refuse(HTTPStatus.BAD_REQUEST, str(error))
        except (ValueError, RecursionError):
            self._refuse(HTTPStatus.BAD_REQUEST, "the body is not JSON")
        else:
            self._send_json(HTTPStatus.OK, {"runs": runs})

    def _is_ours(self) -> bool:
        """Returns whether the request names this machine: a foreign name may be a page that rebinds its own to it."""
        if not ipaddress.ip_address(self.connection.getsockname()[0]).is_loopback:
            return True
        return re.fullmatch(r"(127\.0\.0\.1|localhost|\[::1\])(:\d+)?", self.headers.get("Host", "")) is not None

    def _refuse(self, status: HTTPStatus, reason: str) -> None:
        self._send_json(status, {"error": reason})

    def _send_json(self, status: HTTPStatus, value: Any) -> None:
        self._send(status, "application/json", json.dumps(value).encode())

    def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(body))),
            ("Content-Security-Policy", self.policy),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
            ("Cache-Control", "no-store"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        """Logs nothing: what is translated is the user's."""
