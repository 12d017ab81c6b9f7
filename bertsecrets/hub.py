"""Files of the Hugging Face hub: fetched once, checked against published digests, every refusal in one line.

What is complete in the hub's cache is read without a single request. A file is believed only if it has the digest that
is pinned for it here, or else the one under which the hub's cache keeps it.
"""

import functools
import hashlib
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Literal

from bertsecrets.errors import RunError, UserError, first_line
from bertsecrets.store.files import file_sha256, guarded_writes

COMMIT = re.compile(r"[0-9a-f]{40}")
REPLY_SECONDS = 10  # for the first answer of the hub
LONGEST_WAIT = 60  # seconds in total that the hub may ask to wait for
PAUSES = (1, 2, 4)  # seconds before each further attempt after a failure of the hub
LOG_IN = "log in with `hf auth login` or set HF_TOKEN"


class _Busy(Exception):
    """The hub cannot answer now: its status, and the seconds that it asks to wait."""

    def __init__(self, status: int, wait: float | None):
        super().__init__(f"status {status}")
        self.status, self.wait = status, wait


@dataclass(frozen=True)
class Repository:
    """A repository of the hub at a revision: a branch, a tag, a commit, or None for the main branch.

    `title` names it in messages, and `ways_on` says there what to do without it. `hint` is a name that may have been
    meant. `pins` holds the published sha256 of files; with them, no other file is fetched. `never` names files that are
    not opened in any case.
    """

    name: str
    revision: str | None
    title: str
    ways_on: str
    kind: Literal["model", "dataset"] = "model"
    hint: str = ""
    offline: bool = False
    pins: Mapping[str, str] = field(default_factory=dict)
    never: Sequence[str] = ()

    def commit(self, marker: str) -> str:
        """Return the commit of the revision: the one at which the file `marker` is cached, or else is fetched now.

        Raises:
            RunError: it is neither cached nor to be had from the hub.
        """
        from huggingface_hub import hf_hub_download, try_to_load_from_cache

        if self.revision and COMMIT.fullmatch(self.revision):
            return self.revision
        with self._in_words():
            cached = try_to_load_from_cache(self.name, marker, revision=self.revision, repo_type=self.kind)
        if not isinstance(cached, str):
            self._ask(self.revision)
            with self._downloading():
                cached = _patiently(
                    lambda: hf_hub_download(self.name, marker, revision=self.revision, repo_type=self.kind)
                )
        return Path(cached).parent.name

    def folder(self, commit: str, patterns: Sequence[str], essential: Sequence[Sequence[str]]) -> Path:
        """Return the cached folder of a commit with all files that match a pattern, checked; fetched where missing.

        Args:
            essential: groups of patterns; of each group, at least one file is needed.

        Raises:
            UserError: a file is missing and cannot be fetched, or does not have its published content.
        """
        from huggingface_hub import snapshot_download

        names = [name for name in self.pins if any(fnmatch(name, pattern) for pattern in patterns)]
        if names:
            patterns, essential = names, [[name] for name in names]
        folder = self._cached(commit, patterns)
        if folder is None or not _has(folder, essential):
            held = self._ask(commit)
            for group in essential:
                if not any(fnmatch(name, pattern) for name in held for pattern in group):
                    instead = [f", only {name}, which is never opened" for name in self.never if name in held]
                    raise RunError(f"{self.title} has no {group[0]} on the hub{''.join(instead[:1])}: {self.ways_on}")
            with self._downloading():
                folder = Path(
                    _patiently(
                        lambda: snapshot_download(
                            self.name, revision=commit, repo_type=self.kind, allow_patterns=list(patterns)
                        )
                    )
                )
        for pattern in patterns:
            for file in _files(folder, pattern):
                _check(file, self.pins.get(str(file.relative_to(folder))), self.title)
        return folder

    def _cached(self, commit: str, patterns: Sequence[str]) -> Path | None:
        """Return the cached folder of a commit, unless files that it is known to have are missing."""
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import LocalEntryNotFoundError

        try:
            return Path(
                snapshot_download(
                    self.name,
                    repo_type=self.kind,
                    revision=commit,
                    allow_patterns=list(patterns),
                    local_files_only=True,
                )
            )
        except (LocalEntryNotFoundError, ValueError):
            return None

    def _ask(self, revision: str | None) -> list[str]:
        """Return the names of the files that the hub has at a revision; says at once whether it gives access to them.

        Raises:
            UserError: it does not, or cannot be reached.
        """
        from huggingface_hub import HfApi

        with self._in_words():
            if self.offline:
                raise ConnectionError("offline")
            info = _patiently(
                lambda: HfApi().repo_info(self.name, repo_type=self.kind, revision=revision, timeout=REPLY_SECONDS)
            )
        return [file.rfilename for file in info.siblings or ()]

    @contextmanager
    def _downloading(self) -> Iterator[None]:
        from huggingface_hub import constants

        with self._in_words(downloading=True), guarded_writes(Path(constants.HF_HUB_CACHE)), _own_bars():
            yield

    @contextmanager
    def _in_words(self, downloading: bool = False) -> Iterator[None]:
        """Turn whatever the hub library raises into one line.

        Raises:
            UserError: anything went wrong.
        """
        try:
            yield
        except (UserError, MemoryError):
            raise
        except Exception as error:  # the hub library and its HTTP client have dozens of them
            raise RunError(self._words(error, downloading)) from error

    def _words(self, error: Exception, downloading: bool) -> str:
        """Return one line: what the hub answered, and what to do."""
        from huggingface_hub import constants

        chain = list(_chain(error))
        kinds = {cls.__name__ for link in chain for cls in type(link).__mro__}
        hint = f" ({self.hint})" if self.hint else ""
        page = f"{constants.ENDPOINT}/{'datasets/' if self.kind == 'dataset' else ''}{self.name}"
        busy = next((link for link in chain if isinstance(link, _Busy)), None)
        if busy and busy.status == 429:
            asked = f"and asks to wait {busy.wait:.0f} s" if busy.wait else "and does not say for how long"
            return (
                f"the hub limits requests for {self.title} (429) {asked}: run again later; {LOG_IN} for higher limits"
            )
        if busy:
            return f"the hub fails for {self.title} ({busy.status}, {len(PAUSES) + 1} attempts): run again later"
        response = next((r for link in chain if (r := getattr(link, "response", None)) is not None), None)
        status = getattr(response, "status_code", None)
        if "GatedRepoError" in kinds or status == 403:
            return f"the hub does not give access to {self.title} ({status}): ask for it on {page}, and {LOG_IN}"
        if status == 401:
            return (
                f"the hub does not show {self.title} without a valid login (401){hint}: "
                f"check the spelling, or {LOG_IN} if it is not public"
            )
        if "RevisionNotFoundError" in kinds:
            return f"the hub has no such revision of {self.title} (404): name a branch, a tag or a commit of {page}"
        if "RemoteEntryNotFoundError" in kinds and response is not None:
            file = str(response.request.url).split("?")[0].rsplit("/", 1)[-1]
            return f"{self.title} has no file {file} on the hub (404): {self.ways_on}"
        if status == 404:
            return f"{self.title} is not on the hub (404){hint}: check the spelling, or {self.ways_on}"
        if status is not None:
            return f"the hub refuses {self.title} ({status}): {self.ways_on}"
        if downloading and not {"ConnectError", "OfflineModeIsEnabled"} & kinds:
            return f"the download of {self.title} broke off: run again; files that are complete are kept"
        if "HFValidationError" in kinds:
            return f"{self.title} is neither cached nor a possible name on the hub{hint}: {self.ways_on}"
        known = {"OfflineModeIsEnabled", "ConnectionError", "TransportError"} & kinds
        reason = "" if known else f" ({type(error).__name__}: {first_line(error)})"
        return f"{self.title} is neither cached nor reachable on the hub{reason}{hint}: {self.ways_on}"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and those that caused it."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _files(folder: Path, pattern: str) -> list[Path]:
    """Return the files that match a pattern; a link to a blob that was deleted is none."""
    return [path for path in sorted(folder.glob(pattern)) if path.is_file()]


def _has(folder: Path, essential: Sequence[Sequence[str]]) -> bool:
    return all(any(_files(folder, pattern) for pattern in group) for group in essential)


def _patiently(work: Callable[[], Any]) -> Any:
    """Return what `work` returns; waits as the hub asks (up to a bound), and tries again after its failures.

    Raises:
        _Busy: the hub asks for more patience than that, or keeps failing.
    """
    waited, pauses = 0.0, list(PAUSES)
    while True:
        try:
            with _refusals_at_once():
                return work()
        except _Busy as busy:
            if busy.status == 429:
                pause = PAUSES[-1] if busy.wait is None else busy.wait
                waited += max(1, pause)
                if waited > LONGEST_WAIT:
                    raise
                print(f"the hub asks to wait {pause:.0f} s", file=sys.stderr, flush=True)
            elif not pauses:
                raise
            else:
                pause = pauses.pop(0)
        time.sleep(pause)


@contextmanager
def _refusals_at_once() -> Iterator[None]:
    """Make the hub library hand on 429 and 5xx at once and without log lines; it would wait without a word or bound."""
    from huggingface_hub.utils import get_session, logging

    hooks, level = get_session().event_hooks["response"], logging.get_verbosity()
    hooks.append(_refuse)
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        hooks.remove(_refuse)


def _refuse(response: Any) -> None:
    if response.status_code == 429 or response.status_code >= 500:
        wait = response.headers.get("Retry-After", "").strip()
        raise _Busy(response.status_code, float(wait) if wait.isdecimal() else None)


@contextmanager
def _own_bars() -> Iterator[None]:
    """Show the hub's progress bars on a terminal, though transformers has been told to draw none.

    The hub pays no heed to TQDM_DISABLE, so it is read here.
    """
    from huggingface_hub import constants
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    hidden = are_progress_bars_disabled()
    if constants.HF_HUB_DISABLE_PROGRESS_BARS is None:
        shown = sys.stderr.isatty() and not os.environ.get("TQDM_DISABLE")
        (enable_progress_bars if shown else disable_progress_bars)()
    try:
        yield
    finally:
        if constants.HF_HUB_DISABLE_PROGRESS_BARS is None:
            (disable_progress_bars if hidden else enable_progress_bars)()


def _check(file: Path, pinned: str | None, title: str) -> None:
    """Make sure that a cached file has its published content.

    The hub's cache keeps each file under the sha256 of its content or, if it is small, under git's sha1 of it.

    Raises:
        UserError: it has another content.
    """
    kept = Path(os.path.realpath(file))
    name = Path(os.readlink(file)).name if file.is_symlink() else ""
    if pinned is not None:
        right = file_sha256(file) == pinned
    elif re.fullmatch(r"[0-9a-f]{64}", name):
        right = file_sha256(file) == name
    elif COMMIT.fullmatch(name):
        right = git_sha1(file) == name
    else:  # a cache without links: the content has no name there
        right = True
    if not right:
        raise RunError(f"{kept} is not the published {file.name} of {title} (damaged or altered): delete it, run again")


def git_sha1(file: Path) -> str:
    """Return the sha1 that git gives a file's content, in hex.

    Raises:
        UserError: it cannot be read.
    """
    try:
        status = file.stat()
        return _git_sha1(file, status.st_size, status.st_mtime_ns)
    except OSError as error:
        raise RunError(f"cannot read {file}: {error.strerror}") from error


@functools.cache
def _git_sha1(file: Path, size: int, _changed: int) -> str:
    sha = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    sha.update(file.read_bytes())
    return sha.hexdigest()
