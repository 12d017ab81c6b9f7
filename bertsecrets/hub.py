"""Downloads of pinned revisions from the Hugging Face hub, cached by the hub's library and checked by sha256.

Files that are already in the cache are used without a request to the hub.
"""

import errno
import hashlib
import os
import re
import ssl
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Literal

from bertsecrets.errors import RunError, UserError, excerpt
from bertsecrets.progress import hidden
from bertsecrets.store.files import file_sha256, listed

COMMIT_PATTERN = re.compile(r"[0-9a-f]{40}")
CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")  # only the first two are read


@dataclass(frozen=True)
class Repository:
    """A hub repository at one revision: a branch, a tag, a commit or, if `revision` is None, the main branch.

    Args:
        title: Name of the repository in messages.
        advice: Text for messages that says what to do if the repository is unavailable.
        hint: Suggestion to add to messages, such as a known repository with a similar name; empty if none exists.
        pins: Published sha256 digests by file name. If given, only these files are downloaded.
    """

    name: str
    revision: str | None
    title: str
    advice: str
    kind: Literal["model", "dataset"] = "model"
    hint: str = ""
    offline: bool = False
    pins: Mapping[str, str] = field(default_factory=dict)

    def commit(self, marker: str) -> str:
        """Return the revision's commit. If the file `marker` is not in the cache, download it to find the commit."""
        from huggingface_hub import hf_hub_download, try_to_load_from_cache

        if self.revision and COMMIT_PATTERN.fullmatch(self.revision):
            return self.revision
        with self._errors_in_one_line():
            file = try_to_load_from_cache(self.name, marker, revision=self.revision, repo_type=self.kind)
            if not isinstance(file, str):
                self._check_online()
                file = hf_hub_download(self.name, marker, revision=self.revision, repo_type=self.kind)
        return Path(file).parent.name

    def folder(self, commit: str, patterns: Sequence[str], essential: Sequence[Sequence[str]]) -> Path:
        """Return the cache folder of a commit after downloading any missing files that match a pattern.

        Args:
            essential: Groups of patterns, each of which must match at least one file.
        """
        from huggingface_hub import HfApi

        pinned = [name for name in self.pins if any(fnmatch(name, pattern) for pattern in patterns)]
        if pinned:
            patterns, essential = pinned, [[name] for name in pinned]
        with self._errors_in_one_line():
            folder = self._snapshot(commit, patterns, cached=True)
            if folder is None or _missing(folder, essential):
                self._check_online()
                folder = self._snapshot(commit, patterns)
            assert folder is not None
            if group := _missing(folder, essential):
                # If the hub refuses, the library silently falls back to its cache, but this request raises the error.
                HfApi().repo_info(self.name, repo_type=self.kind, revision=commit)
                raise RunError(f"{self.title} has no {group[0]} on the hub: {self.advice}")
        for file in {file for pattern in patterns for file in _files(folder, pattern)}:
            _check(file, self.pins.get(str(file.relative_to(folder))), self.title)
        return folder

    def _snapshot(self, commit: str, patterns: Sequence[str], cached: bool = False) -> Path | None:
        """Return a commit's folder. If `cached` is True, download nothing, and return None if the folder is missing."""
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import LocalEntryNotFoundError

        try:
            with _progress_bars():
                folder = snapshot_download(
                    self.name,
                    repo_type=self.kind,
                    revision=commit,
                    allow_patterns=list(patterns),
                    local_files_only=cached,
                )
        except LocalEntryNotFoundError:
            if cached:
                return None
            raise
        return Path(folder)

    def _check_online(self) -> None:
        if self.offline:
            raise RunError(f"{self.title} is not cached, and offline mode forbids downloads{self.hint}: {self.advice}")

    @contextmanager
    def _errors_in_one_line(self) -> Iterator[None]:
        """Turn any error raised by the hub's library into a RunError with a one-line message."""
        from huggingface_hub.errors import LocalEntryNotFoundError

        try:
            yield
        except (UserError, MemoryError):
            raise
        except Exception as error:  # the library and its HTTP client have dozens of exception types
            cause = error.__cause__ if isinstance(error, LocalEntryNotFoundError) else None
            why = certificate_problem(error) or self._broken_off(cause or error) or excerpt(cause or error, 500)
            raise RunError(f"cannot download {self.title}: {why}{self.hint}: {self.advice}") from error

    def _broken_off(self, error: BaseException) -> str | None:
        """Return the cause of a download error if the error itself does not show the cause; otherwise None.

        Download threads share one client, so a failed request can make the other threads fail with errors of any type.
        To find the cause, this method sends its own request to the hub.
        """
        from huggingface_hub import HfApi

        if not isinstance(error, TypeError | AttributeError | RuntimeError) and not (
            isinstance(error, OSError) and error.errno in (errno.EBADF, errno.EPIPE, errno.ECONNRESET)
        ):
            return None
        try:
            HfApi().repo_info(self.name, repo_type=self.kind, revision=self.revision)
        except Exception as shown:  # the hub's answer, or why the hub does not answer
            return excerpt(shown, 500)
        return "the connection was lost, but the data downloaded so far are kept: run the command again"


def certificate_problem(error: BaseException) -> str | None:
    """Return a message that explains a certificate problem and how to solve it; None for other errors."""
    chain = [*_chain(error)]
    of_file = any(isinstance(each, OSError) and each.errno == errno.ENOENT for each in chain)
    for name in CERTIFICATES if of_file else ():
        if (path := os.environ.get(name)) and not os.path.exists(path):
            return f"{name} names {path}, which does not exist: correct or unset the variable"
    if not any(isinstance(each, ssl.SSLError) or "CERTIFICATE_VERIFY" in str(each) for each in chain):
        return None
    ignored = [name for name in CERTIFICATES[2:] if name in os.environ]
    note = f" (huggingface_hub does not read {ignored[0]})" if ignored else ""
    return f"the certificate of the hub is not trusted: set SSL_CERT_FILE to your organisation's certificates{note}"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _missing(folder: Path, essential: Sequence[Sequence[str]]) -> Sequence[str] | None:
    """Return the first group of patterns that matches no file in the folder; None if every group matches a file."""
    return next((group for group in essential if not any(_files(folder, pattern) for pattern in group)), None)


def _files(folder: Path, pattern: str) -> list[Path]:
    """Return the files that match a pattern, except links to deleted blobs."""
    places = folder / pattern
    return [path for path in listed(places.parent, places.name) if path.is_file()]


@contextmanager
def _progress_bars() -> Iterator[None]:
    """On a terminal, enable the hub library's progress bars inside the block. Opening a model disables these bars."""
    from huggingface_hub import constants
    from huggingface_hub.utils import disable_progress_bars, enable_progress_bars

    if constants.HF_HUB_DISABLE_PROGRESS_BARS is None and sys.stderr.isatty() and not hidden():
        enable_progress_bars()
    try:
        yield
    finally:
        if constants.HF_HUB_DISABLE_PROGRESS_BARS is None:
            disable_progress_bars()


def _check(file: Path, pinned: str | None, title: str) -> None:
    """Check that a cached file is identical to the published file."""
    blob = file.resolve()
    # If the cache uses symbolic links, it names large files by their sha256 and small files by git's sha1.
    expected = pinned or (blob.name if file.is_symlink() else "")
    found = expected
    if len(expected) == 64:
        found = file_sha256(blob)
    elif COMMIT_PATTERN.fullmatch(expected):
        content = blob.read_bytes()
        found = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
    if found != expected:
        raise RunError(
            f"{blob} is not the published {file.name} of {title} (damaged or modified): delete it and run again"
        )
