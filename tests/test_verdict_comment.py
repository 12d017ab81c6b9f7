"""The comment on a pull request: reading an untrusted artifact, and where to post the comment."""

import io
import json
import zipfile
from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit
from urllib.request import Request

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


class GitHub:
    """A fake of the parts of GitHub's API that the comment needs."""

    def __init__(self) -> None:
        self.artifacts = {1: packed(OLD), 2: packed(NEW)}  # by run: 1 on the default branch, 2 of the pull request
        self.sizes: dict[int, int] = {}
        self.pulls = [self.pull(5)]
        self.comments: dict[int, list[dict]] = {5: []}
        self.asked: list[str] = []

    @staticmethod
    def pull(number: int, sha: str = "abc", repository: dict | None = FORK) -> dict:
        """Return an open pull request, as listed by GitHub."""
        return {"number": number, "head": {"sha": sha, "repo": repository}}

    def urlopen(self, asked: Request, **_: object) -> io.BytesIO:
        assert asked.unredirected_hdrs == {"Authorization": "Bearer secret"}  # not for the store of artifacts
        address = urlsplit(asked.full_url)
        path = address.path.removeprefix(f"/repos/{REPOSITORY}")
        self.asked.append(f"{asked.method} {path}")
        content = self.answer(path, parse_qs(address.query), json.loads(asked.data or "{}"))
        return io.BytesIO(content if isinstance(content, bytes) else json.dumps(content).encode())

    def answer(self, path: str, query: dict, body: dict) -> object:
        match path.split("/")[1:]:
            case ["actions", "workflows", "9", "runs"]:
                assert (query["branch"], query["event"]) == (["main"], ["push"])
                return {"workflow_runs": [{"id": 3}, {"id": 1}]}  # run 3 has no artifact
            case ["actions", "runs", run, "artifacts"]:
                size = self.sizes.get(int(run), len(self.artifacts.get(int(run), b"")))
                entry = {"id": int(run), "name": "verdicts", "expired": False, "size_in_bytes": size}
                return {"artifacts": [entry] if int(run) in self.artifacts else []}
            case ["actions", "artifacts", run, "zip"]:
                return self.artifacts[int(run)]
            case ["pulls"]:
                return self.pulls if query["head"] == ["someone:topic"] else []
            case ["issues", number, "comments"] if not body:
                return self.comments[int(number)] if query["page"] == ["1"] else []
            case ["issues", number, "comments"]:
                self.comments[int(number)].append({"id": 100, "user": {"login": "github-actions[bot]"}, **body})
            case ["issues", "comments", number]:
                every = (comment for listed in self.comments.values() for comment in listed)
                next(comment for comment in every if comment["id"] == int(number)).update(body)
        return {}


@pytest.fixture
def github():
    return GitHub()


@pytest.fixture
def comment(github, tmp_path, monkeypatch):
    """The script, triggered by the end of the tests of a fork's pull request."""
    module = program(".github/verdict_comment.py")
    monkeypatch.setattr(module, "urlopen", github.urlopen)
    tested = {"id": 2, "workflow_id": 9, "head_sha": "abc", "head_branch": "topic", "head_repository": FORK}
    event = {"workflow_run": tested, "repository": {"default_branch": "main"}}
    for name, value in {
        "API_URL": "https://api.example.org", "SERVER_URL": "https://example.org", "REPOSITORY": REPOSITORY,
        "RUN_ID": "11", "TOKEN": "secret", "EVENT_PATH": tmp_path / "event.json", "OUTPUT": tmp_path / "output",
    }.items():  # fmt: skip
        monkeypatch.setenv(f"GITHUB_{name}", str(value))
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
    assert "GET /actions/artifacts/2/zip" not in github.asked


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
    assert all(asked.startswith("GET ") for asked in github.asked)
    assert "no open pull request" in capsys.readouterr().out


def test_tables_too_long_for_a_comment_are_named_instead(comment, github):
    comment.text.write_text("x" * 70_000)
    assert comment.post() == 0
    (posted,) = github.comments[5]
    assert len(posted["body"]) < 300
    assert "too long for a comment: see the summary of http" in posted["body"]
