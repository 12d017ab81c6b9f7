"""The server of the annotation page: one local page, its state and maps as JSON, and requests with one label each.

It listens on this machine only and never uses the network. It answers only requests that carry the random token of its
address, and come from its own page if a browser sends them.
"""

import base64
import errno
import hmac
import io
import json
import secrets
import socket
import sys
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

from bertsecrets.errors import UserError
from bertsecrets.lab.annotation.colours import FULL_BAR, palette, shades
from bertsecrets.lab.annotation.session import Annotation
from bertsecrets.patterns.classes import CLASSES, GUIDELINES, KEYS

ADDRESS = "127.0.0.1"
PAGE = Path(__file__).parent / "page.html"
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; img-src data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": POLICY,
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",  # the address holds the token
}
LONGEST_REQUEST = 10_000  # bytes
SECONDS = 10  # for reading a whole request, and again for each part of an answer
CONNECTIONS = 32  # at a time


class Server(ThreadingHTTPServer):
    """A server of one annotator's work; its page is at `url`."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, work: Annotation, port: int = 0):
        """
        Args:
            port: of the page; 0 for any free port.

        Raises:
            UserError: the port is out of range, in use or forbidden.
        """
        if not 0 <= port < 2**16:
            raise UserError(f"--port {port} cannot be used: give 1024 to {2**16 - 1}, or leave it out")
        try:
            super().__init__((ADDRESS, port), Handler)
        except OSError as error:
            reason = "in use" if error.errno == errno.EADDRINUSE else f"not available ({error.strerror})"
            raise UserError(f"port {port} is {reason}: name another with --port, or leave it out") from error
        self.work = work
        self.token = secrets.token_urlsafe(24)
        self.lock = threading.Lock()
        self.free = threading.Semaphore(CONNECTIONS)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, or close the connection if there are too many already."""
        if self.free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and make room for another connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print errors, except for a page that was closed or stuck while a request was being answered."""
        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        """The page's address, with the token."""
        return f"http://{ADDRESS}:{self.server_address[1]}/{self.token}/"

    def state(self) -> dict[str, Any]:
        """Return everything that the page shows besides the map."""
        work = self.work
        agreed = work.agreement()
        return {
            "annotator": work.annotator,
            "second": work.second,
            "total": len(work),
            "done": work.done,
            "next": work.open_place(),
            "counts": work.counts,
            "undo": len(work.history),
            "agreement": str(agreed) if agreed else None,
        }

    def constants(self) -> dict[str, Any]:
        """Return what the page needs only once: classes, palette, height of the bars."""
        keys = {name: key for key, name in KEYS.items()}
        return {
            "classes": [{"name": name, "key": keys[name], "guideline": GUIDELINES[name]} for name in CLASSES],
            "palette": palette(),
            "full_bar": FULL_BAR,
        }

    def shown(self, place: int) -> dict[str, Any]:
        """Return one map: shades (base64, row by row), shares of the columns, special places, label."""
        one = self.work.maps[self.work.order[place]]
        return {
            "place": place,
            "tokens": one.tokens,
            "separators": one.separators,
            "shades": base64.b64encode(shades(one.values).tobytes()).decode(),
            "shares": np.round(one.shares, 4).tolist(),
            "special_share": round(one.special_share, 4),
            "label": self.work.labels[place],
        }


class _TimedSocket(io.RawIOBase):
    """What a socket receives until a deadline, however slowly it comes."""

    def __init__(self, connection: socket.socket, seconds: float):
        self.connection, self.deadline = connection, time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Receive some bytes.

        Raises:
            TimeoutError: there are none before the deadline.
        """
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self.connection.settimeout(left)
        return self.connection.recv_into(buffer)


class Handler(BaseHTTPRequestHandler):
    """The requests, one for each connection, below the token.

    GET / (the page), /constants, /state, /map/N; POST /label {place, label} and /undo {}.
    """

    server: Server

    def setup(self) -> None:
        """Bound the time that reading the request takes."""
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(_TimedSocket(self.connection, SECONDS))

    def do_GET(self) -> None:
        """Answer with the page, the state or a map."""
        path = self._path()
        if path is None:
            return
        if path == "":
            self._send(HTTPStatus.OK, PAGE.read_bytes(), "text/html; charset=utf-8")
            return
        with self.server.lock:
            name, _, number = path.partition("/")
            if name == "constants" and not number:
                self._json(self.server.constants())
            elif name == "state" and not number:
                self._json(self.server.state())
            elif name == "map" and self._is_place(number):
                self._json(self.server.shown(int(number)))
            else:
                self._refuse(HTTPStatus.NOT_FOUND, f"nothing at /{path[:100]}")

    def do_POST(self) -> None:
        """Set a label, or undo one; answers with the state and the place to go to."""
        body = self._body()
        path = self._path()
        if path is None:
            return
        if path not in ("label", "undo"):
            self._refuse(HTTPStatus.NOT_FOUND, f"nothing at /{path[:100]}")
            return
        try:
            request = json.loads(body or b"")
            place, name = (request["place"], request["label"]) if path == "label" else (0, "")
            if type(place) is not int or not isinstance(name, str):
                raise TypeError("place must be a whole number, and label a name")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            self._refuse(HTTPStatus.BAD_REQUEST, f"malformed request: {error}")
            return
        try:
            with self.server.lock:
                if path == "label":
                    place = self.server.work.label(place, name)
                else:
                    back = self.server.work.undo()
                    place = self.server.work.open_place() if back is None else back
                self._json(self.server.state() | {"next": place})
        except UserError as error:
            self._refuse(HTTPStatus.CONFLICT, str(error))

    def _body(self) -> bytes | None:
        """Return a request's body; None if its length is missing, no number, given twice, or above the limit."""
        lengths = self.headers.get_all("Content-Length", [])
        if len(lengths) != 1 or not (lengths[0].isascii() and lengths[0].isdecimal()) or len(lengths[0]) > 9:
            return None
        length = int(lengths[0])
        body = self.rfile.read(min(length, 100 * LONGEST_REQUEST))  # else a client that still writes gets no answer
        return body if len(body) == length <= LONGEST_REQUEST else None

    def _is_place(self, number: str) -> bool:
        return number.isascii() and number.isdecimal() and len(number) < 10 and int(number) < len(self.server.work)

    def _path(self) -> str | None:
        """Return a request's path below the token; None, after a 403, if the page itself cannot have sent it."""
        port = self.server.server_address[1]
        hosts = [f"{ADDRESS}:{port}", f"localhost:{port}"]
        host, origin = self.headers.get_all("Host", []), self.headers.get_all("Origin", [])
        if len(host) != 1 or host[0] not in hosts or (origin and origin != [f"http://{host[0]}"]):
            self._refuse(HTTPStatus.FORBIDDEN, "this page answers on its own address only")
            return None
        token, _, path = self.path.removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            self._refuse(HTTPStatus.FORBIDDEN, "the address lacks its token: open the one that the command printed")
            return None
        return path

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that is not understood, also where http.server finds that."""
        allowed = code != HTTPStatus.NOT_IMPLEMENTED
        status = HTTPStatus(code) if allowed else HTTPStatus.METHOD_NOT_ALLOWED
        self._refuse(status, message or status.phrase)

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self._json({"error": why}, status)

    def _json(self, data: dict[str, Any], status: HTTPStatus = HTTPStatus.OK) -> None:
        self._send(status, json.dumps(data).encode(), "application/json")

    def _send(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.connection.settimeout(SECONDS)
        self.close_connection = True
        self.request_version = "HTTP/1.0"  # not 0.9, which has no headers
        self.send_response(status)
        for name, value in ({"Content-Type": kind, "Content-Length": str(len(body))} | HEADERS).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: the terminal shows only the address of the page."""
