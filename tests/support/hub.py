"""A fake Hugging Face hub on the loopback address, with configurable faults.

It answers the requests of the hub's own clients: the repository at a revision, its tree, and files by HEAD and GET,
with ranges, the commit, and an ETag that is the content's digest (sha256 of large files, git's sha1 of small ones).
"""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bertsecrets.models import locations

COMMIT = "c0ffee" + "0" * 34
LARGE = (".safetensors", ".parquet")


def etag(name: str, content: bytes) -> str:
    if name.endswith(LARGE):
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclass
class Fault:
    """A fault in requests for `on` ("api", or the end of a method and file name).

    `status` is returned with the headers and no content. `cut` closes the connection after half of the content;
    `altered` changes a byte.
    """

    on: str
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    altered: bool = False


class Hub(ThreadingHTTPServer):
    """A server with repositories by kind and name, and their files. `asked` lists all requests."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories: dict[str, tuple[str, dict[str, bytes]]] = {}
        self.faults: list[Fault] = []
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def add(self, name: str, folder: Path, kind: str = "models", commit: str = COMMIT) -> None:
        files = {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
        self.repositories[f"{kind}/{name}"] = (commit, files)

    def handle_error(self, request, client_address) -> None:
        """Ignore errors, since clients may disconnect at any time."""


def forget_commits() -> None:
    """Clear the cached commits of models, as in a new process."""
    for value in vars(locations).values():
        if hasattr(value, "cache_clear"):
            value.cache_clear()


@contextmanager
def serving() -> Iterator[Hub]:
    """Run a fake hub until the block ends."""
    hub = Hub()
    threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, format: str, *args) -> None:
        """Log nothing."""

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path).strip("/")
        self.server.asked.append(f"{self.command} /{path}")
        parts = path.split("/")
        if parts[0] == "api":
            self._api(parts[1], "/".join(parts[2:4]), parts[4:])
        else:
            kind = "datasets" if parts[0] == "datasets" else "models"
            parts = parts[1:] if kind == "datasets" else parts
            self._file(kind, "/".join(parts[:2]), parts[3], "/".join(parts[4:]))

    do_HEAD = do_GET = _answer

    def _fault(self, on: str) -> Fault | None:
        return next((fault for fault in self.server.faults if on.endswith(fault.on)), None)

    def _api(self, kind: str, name: str, rest: list[str]) -> None:
        if fault := self._fault("api"):
            return self._send(fault.status, b"", fault.headers)
        commit, files = self.server.repositories.get(f"{kind}/{name}", ("", {}))
        revision = rest[1] if len(rest) > 1 else "main"
        if not commit:
            return self._send(404, b"", {"X-Error-Code": "RepoNotFound"})
        if revision not in ("main", commit):
            return self._send(404, b"", {"X-Error-Code": "RevisionNotFound"})
        if rest[:1] == ["tree"]:
            data = [self._listed(file, content) for file, content in files.items()]
            return self._send(200, json.dumps(data).encode(), {"Content-Type": "application/json"})
        info = {"_id": "0", "id": name, "sha": commit, "siblings": [{"rfilename": file} for file in files]}
        self._send(200, json.dumps(info).encode(), {"Content-Type": "application/json"})

    @staticmethod
    def _listed(file: str, content: bytes) -> dict:
        listed = {"type": "file", "path": file, "size": len(content), "oid": etag("", content)}
        if file.endswith(LARGE):
            listed["lfs"] = {"oid": etag(file, content), "size": len(content), "pointerSize": 134}
        return listed

    def _file(self, kind: str, name: str, revision: str, file: str) -> None:
        commit, files = self.server.repositories.get(f"{kind}/{name}", ("", {}))
        if revision not in ("main", commit) or file not in files:
            return self._send(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit})
        fault = self._fault(f"{self.command} {file}") or Fault("")
        if fault.status:
            return self._send(fault.status, b"", {"X-Repo-Commit": commit} | fault.headers)
        content = files[file]
        digest = etag(file, content)
        if fault.altered:
            content = content[:-1] + bytes([content[-1] ^ 1])
        start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").split("-")[0])
        headers = {"ETag": f'"{digest}"', "X-Linked-Etag": f'"{digest}"', "X-Linked-Size": str(len(content))}
        headers |= {"X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        self._send(206 if start else 200, content[start:], headers, half=fault.cut)
        self.close_connection = fault.cut

    def _send(self, status: int, content: bytes, headers: dict[str, str], half: bool = False) -> None:
        self.send_response(status)
        for key, value in ({"Content-Length": str(len(content))} | headers).items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[: len(content) // 2] if half else content)
            self.wfile.flush()
