"""The comment on a pull request: reading an untrusted artifact, and where to post the comment."""

import io
import json
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import pytest
from pages import program

REPOSITORY = "lab/bertsecrets"
OLD, NEW = b'[{"id": "C1-rte", "verdict": "reproduced"}]', b'[{"id": "C1-rte", "verdict": "deviates"}]'
FORK = {"id": 7, "owner": {"login": "someone"}}


def packed(content: bytes, name: str = "verdicts.json") -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr(name, content)
    return archive.getvalue()


class GitHub(ThreadingHTTPServer):
    """A fake of the parts of GitHub's API that the comment needs, and of the artifact store that it redirects to."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.artifacts = {1: packed(OLD), 2: packed(NEW)}  # by run: 1 on the default branch, 2 of the pull request
        self.sizes: dict[int, int] = {}
        self.pulls = [self.pull(5)]
        self.comments: dict[int, list[dict]] = {5: []}
        self.asked: list[tuple[str, str, dict]] = []
        self.tokens: dict[str, str | None] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @staticmethod
    def pull(number: int, sha: str = "abc", repository: dict | None = FORK) -> dict:
        """Return an open pull request, as listed by GitHub."""
        return {"number": number, "head": {"sha": sha, "repo": repository}}

    def answer(self, method: str, path: str, query: dict, body: dict) -> object:
        """Return the response: an object for JSON, bytes, a redirect address, or None for an error."""
        self.asked.append((method, path, query))
        words = path.split("/")
        if path == "/actions/workflows/9/runs":
            assert query["branch"] == ["main"]
            assert query["event"] == ["push"]
            return {"workflow_runs": [{"id": 3}, {"id": 1}]}  # run 3 has no artifact
        if words[1:3] == ["actions", "runs"]:
            run = int(words[3])
            size = self.sizes.get(run, len(self.artifacts.get(run, b"")))
            entry = {"id": run, "name": "verdicts", "expired": False, "size_in_bytes": size}
            return {"artifacts": [entry] if run in self.artifacts else []}
        if words[1:3] == ["actions", "artifacts"]:
            return f"{self.url}/elsewhere/{words[3]}"
        if path == "/pulls":
            return self.pulls if query["head"] == ["someone:topic"] else []
        if words[-1] == "comments" and method == "GET":
            return self.comments[int(words[2])] if query["page"] == ["1"] else []
        if words[-1] == "comments":
            comment = {"id": 100, "user": {"login": "github-actions[bot]"}, **body}
            self.comments[int(words[2])].append(comment)
            return comment
        if method == "PATCH":
            (comment,) = (
                entry for listed in self.comments.values() for entry in listed if entry["id"] == int(words[-1])
            )
            return comment | {"body": comment.update(body)}
        return None


class Handler(BaseHTTPRequestHandler):
    """Passes requests to the server and writes its responses."""

    server: GitHub

    def handle_request(self) -> None:
        address = urlsplit(self.path)
        self.server.tokens[address.path] = self.headers["Authorization"]
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}")
        if address.path.startswith("/elsewhere/"):
            content: object = self.server.artifacts[int(address.path.split("/")[2])]
        else:
            path = address.path.removeprefix(f"/repos/{REPOSITORY}")
            content = self.server.answer(self.command, path, parse_qs(address.query), body)
        redirected = isinstance(content, str)
        self.send_response(302 if redirected else 404 if content is None else 200)
        if redirected:
            self.send_header("Location", str(content))
        self.end_headers()
        self.wfile.write(content if isinstance(content, bytes) else json.dumps(content).encode())

    do_GET = do_POST = do_PATCH = handle_request

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def github():
    with GitHub() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def comment(github, tmp_path, monkeypatch):
    """The script, triggered by the end of the tests of a fork's pull request."""
    module = program(".github/verdict_comment.py")
    tested = {"id": 2, "workflow_id": 9, "head_sha": "abc", "head_branch": "topic", "head_repository": FORK}
    event = {"workflow_run": tested, "repository": {"default_branch": "main"}}
    environment = {
        "GITHUB_API_URL": github.url,
        "GITHUB_SERVER_URL": github.url,
        "GITHUB_REPOSITORY": REPOSITORY,
        "GITHUB_RUN_ID": "11",
        "GITHUB_TOKEN": "secret",
        "GITHUB_EVENT_PATH": str(tmp_path / "event.json"),
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "no_proxy": "*",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "event.json").write_text(json.dumps(event))
    old, new, text = tmp_path / "old.json", tmp_path / "new.json", tmp_path / "comment.md"
    text.write_text("C1-rte: reproduced, now deviates")

    def get() -> str:
        assert module.main("get", str(old), str(new)) == 0
        return (tmp_path / "output").read_text().strip()

    return SimpleNamespace(
        module=module, get=get, post=lambda: module.main("post", str(text)), old=old, new=new, text=text
    )


# ---------------------------------------------------------------------- reading


def test_the_verdicts_of_the_default_branch_and_of_the_pull_request_are_fetched(comment):
    assert comment.get() == "found=yes"
    assert (comment.old.read_bytes(), comment.new.read_bytes()) == (OLD, NEW)


def test_the_token_goes_to_github_alone(comment, github):
    comment.get()
    assert github.tokens["/elsewhere/1"] is github.tokens["/elsewhere/2"] is None
    assert {token for path, token in github.tokens.items() if path.startswith("/repos/")} == {"Bearer secret"}


@pytest.mark.parametrize("run", [1, 2])
def test_without_verdicts_on_both_sides_there_is_nothing_to_compare(run, comment, github, capsys):
    del github.artifacts[run]
    assert comment.get() == "found=no"
    assert not comment.new.exists()
    assert "nothing to compare" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("artifact", "says"),
    [
        (packed(b"0" * 5_000_000), "more than 4000000 bytes"),
        (packed(NEW, "../verdicts.json"), "no readable verdicts.json"),
        (b"not an archive", "no readable verdicts.json"),
        (bytes(4_000_001), "more than 4000000 bytes"),
    ],
    ids=["unpacks to more than allowed", "a path out of the folder", "no archive", "is more than it said"],
)
def test_an_invalid_artifact_ends_the_comparison(artifact, says, comment, github):
    github.artifacts[2] = artifact
    github.sizes[2] = 100
    with pytest.raises(SystemExit, match=says):
        comment.get()
    assert not comment.new.exists()


def test_an_artifact_that_is_too_large_is_not_even_fetched(comment, github):
    github.sizes[2] = 10**9
    with pytest.raises(SystemExit, match="1000000000 bytes"):
        comment.get()
    assert "/elsewhere/2" not in github.tokens


# ---------------------------------------------------------------------- posting


def test_there_is_one_comment_and_later_runs_update_it(comment, github):
    github.comments[5].append({"id": 1, "user": {"login": "someone"}, "body": comment.module.MARK})
    assert comment.post() == 0
    comment.text.write_text("nothing has changed")
    assert comment.post() == 0
    theirs, ours = github.comments[5]
    assert theirs["body"] == comment.module.MARK  # by someone who imitates our comment
    assert ours["body"].startswith(f"{comment.module.MARK}\nnothing has changed")
    assert "says nothing about the paper" in ours["body"]


def test_the_comment_goes_only_where_the_tested_commit_is_the_head(comment, github, capsys):
    github.pulls = [
        github.pull(1, sha="newer"),
        github.pull(2, repository={"id": 8}),
        github.pull(3, repository=None),
    ]
    assert comment.post() == 0
    assert {method for method, _, _ in github.asked} == {"GET"}
    assert "no open pull request" in capsys.readouterr().out


def test_tables_too_long_for_a_comment_are_named_instead(comment, github):
    comment.text.write_text("x" * 70_000)
    assert comment.post() == 0
    (posted,) = github.comments[5]
    assert len(posted["body"]) < 300
    assert "too long for a comment: see the summary of http" in posted["body"]
