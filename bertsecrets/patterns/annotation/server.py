"""The server of the annotation page: one local page, its state and maps as JSON, and requests with one label each.

It listens on this machine only, answers only requests from its own page, and never uses the network.
"""

import base64
import errno
import json
import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

from bertsecrets.errors import UserError
from bertsecrets.patterns.annotation.colours import FULL_BAR, palette, shades
from bertsecrets.patterns.annotation.session import Annotation
from bertsecrets.patterns.classes import CLASSES, GUIDELINES, KEYS

ADDRESS = "127.0.0.1"
PAGE = Path(__file__).parent / "page.html"
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; img-src data:"
LONGEST_REQUEST = 10_000  # bytes


class Server(ThreadingHTTPServer):
    """A server of one annotator's work; its page is at `url`."""

    daemon_threads = True

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
        self.lock = threading.Lock()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print errors, except for a page that was closed while a request was being answered."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        """The page's address."""
        return f"http://{ADDRESS}:{self.server_address[1]}/"

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


class Handler(BaseHTTPRequestHandler):
    """The requests: GET / (the page), /constants, /state, /map/N; POST /label {place, label} and /undo {}."""

    server: Server

    def do_GET(self) -> None:
        """Answer with the page, the state or a map."""
        if not self._meant():
            return
        if self.path == "/":
            self._send(HTTPStatus.OK, PAGE.read_bytes(), "text/html; charset=utf-8")
            return
        with self.server.lock:
            name, _, number = self.path.removeprefix("/").partition("/")
            if name == "constants" and not number:
                self._json(self.server.constants())
            elif name == "state" and not number:
                self._json(self.server.state())
            elif name == "map" and number.isdecimal() and int(number) < len(self.server.work):
                self._json(self.server.shown(int(number)))
            else:
                self._json({"error": f"nothing at {self.path}"}, HTTPStatus.NOT_FOUND)

    def do_POST(self) -> None:
        """Set a label, or undo one; answers with the state and the place to go to."""
        length = self.headers.get("Content-Length", "")
        body = self.rfile.read(int(length)) if length.isdecimal() and int(length) <= LONGEST_REQUEST else b""
        if not self._meant():
            return
        try:
            request = json.loads(body)
            with self.server.lock:
                if self.path == "/label":
                    place = self.server.work.label(int(request["place"]), str(request["label"]))
                elif self.path == "/undo":
                    back = self.server.work.undo()
                    place = self.server.work.open_place() if back is None else back
                else:
                    self._json({"error": f"nothing at {self.path}"}, HTTPStatus.NOT_FOUND)
                    return
                self._json(self.server.state() | {"next": place})
        except UserError as error:
            self._json({"error": str(error)}, HTTPStatus.CONFLICT)
        except (ValueError, KeyError, TypeError) as error:
            self._json({"error": f"malformed request: {error}"}, HTTPStatus.BAD_REQUEST)

    def _meant(self) -> bool:
        """Return whether a request comes from the page itself; answers 403 to those from other sites."""
        port = self.server.server_address[1]
        hosts = {f"{ADDRESS}:{port}", f"localhost:{port}"}
        origin = self.headers.get("Origin")
        ours = self.headers.get("Host") in hosts and (origin is None or origin.removeprefix("http://") in hosts)
        if not ours:
            self._json({"error": "this page answers on its own address only"}, HTTPStatus.FORBIDDEN)
        return ours

    def _json(self, data: dict[str, Any], status: HTTPStatus = HTTPStatus.OK) -> None:
        self._send(status, json.dumps(data).encode(), "application/json")

    def _send(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Security-Policy", POLICY)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: the terminal shows only the address of the page."""
