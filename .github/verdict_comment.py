"""Comment on a pull request with its changes in verdicts; run by .github/workflows/verdict-comment.yml.

    verdict_comment.py get OLD NEW    fetch the verdicts of the default branch and of the tested pull request
    verdict_comment.py post FILE      post FILE as a comment on that pull request, or update the earlier comment

A pull request's verdicts are made by its own code, so they are not trusted. Only one file of the artifact is read, up
to LARGEST bytes, and none of it is run. `bertsecrets compare` validates the file against the schema. GitHub, not the
artifact, says which pull request belongs to the tested commit.
"""

import io
import json
import os
import sys
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import Request, urlopen

ARTIFACT, FILE = "verdicts", "verdicts.json"
LARGEST = 4_000_000  # maximum number of bytes, both packed and unpacked
LONGEST = 65_536  # GitHub's limit on the characters of a comment
MARK = "<!-- bertsecrets: difference of verdicts -->"
AUTHOR = "github-actions[bot]"
NOTE = "The demo's corpus is synthetic: this shows whether a change affects verdicts, and says nothing about the paper."


def main(command: str, *paths: str) -> int:
    """Run a command and return the exit code."""
    event = json.loads(Path(os.environ["GITHUB_EVENT_PATH"]).read_text(encoding="utf-8"))
    if command == "get":
        return get(event, *map(Path, paths))
    return post(event, *map(Path, paths))


def get(event: dict[str, Any], old: Path, new: Path) -> int:
    """Write the verdicts of the default branch and of the tested pull request, and whether both were found."""
    tested = event["workflow_run"]
    pushed = ask(
        f"actions/workflows/{int(tested['workflow_id'])}/runs",
        branch=event["repository"]["default_branch"],
        event="push",
        status="completed",
        per_page=10,
    )
    before = next(filter(None, (verdicts(run["id"]) for run in pushed["workflow_runs"])), None)
    after = verdicts(tested["id"])
    if before is None or after is None:
        print(f"no verdicts of {'the default branch' if before is None else 'the pull request'}: nothing to compare")
    else:
        old.write_bytes(before)
        new.write_bytes(after)
    with open(os.environ["GITHUB_OUTPUT"], "a", encoding="utf-8") as output:
        output.write(f"found={'yes' if before and after else 'no'}\n")
    return 0


def verdicts(run: int) -> bytes | None:
    """Return the content of the verdicts file that a run of the tests uploaded, or None if it uploaded none.

    Raises:
        SystemExit: If the artifact is too large, or is not an archive with a verdicts file.
    """
    listed = ask(f"actions/runs/{int(run)}/artifacts", name=ARTIFACT)["artifacts"]
    found = next((one for one in listed if one["name"] == ARTIFACT and not one["expired"]), None)
    if found is None:
        return None
    if found["size_in_bytes"] > LARGEST:
        sys.exit(f"the artifact of run {run} has {found['size_in_bytes']} bytes: too many for verdicts")
    packed = request(f"actions/artifacts/{int(found['id'])}/zip")
    try:
        with zipfile.ZipFile(io.BytesIO(packed)) as archive, archive.open(FILE) as file:
            content = file.read(LARGEST + 1)
    except (zipfile.BadZipFile, KeyError, RuntimeError, NotImplementedError) as error:
        sys.exit(f"the artifact of run {run} contains no readable {FILE} ({type(error).__name__})")
    if len(content) > LARGEST:
        sys.exit(f"{FILE} of run {run} has more than {LARGEST} bytes: too many for verdicts")
    return content


def post(event: dict[str, Any], path: Path) -> int:
    """Post a comment on each open pull request whose head is the tested commit, or update the earlier comment."""
    text = f"{MARK}\n{path.read_text(encoding='utf-8')}\n<sub>{NOTE}</sub>"
    if len(text) > LONGEST:
        text = f"{MARK}\nThe changes in verdicts are too long for a comment: see the summary of {own_address()}"
    numbers = pull_requests(event["workflow_run"])
    for number in numbers:
        earlier = own_comment(number)
        if earlier is None:
            request(f"issues/{number}/comments", method="POST", data={"body": text})
        else:
            request(f"issues/comments/{earlier}", method="PATCH", data={"body": text})
        print(f"pull request {number}: {'commented' if earlier is None else 'comment updated'}")
    if not numbers:
        print("no open pull request has the tested commit as its head: newer commits have their own test runs")
    return 0


def pull_requests(tested: dict[str, Any]) -> list[int]:
    """Return the numbers of the open pull requests whose head is the tested commit, according to GitHub."""
    source = tested["head_repository"]
    if source is None:  # the fork was deleted
        return []
    listed = ask("pulls", state="open", head=f"{source['owner']['login']}:{tested['head_branch']}", per_page=100)
    return [
        int(one["number"])
        for one in listed
        if one["head"]["sha"] == tested["head_sha"] and (one["head"]["repo"] or {}).get("id") == source["id"]
    ]


def own_comment(number: int) -> int | None:
    """Return the identifier of the comment that this workflow posted before, if any."""
    page = 1
    while listed := ask(f"issues/{number}/comments", per_page=100, page=page):
        for one in listed:
            if one["user"]["login"] == AUTHOR and one["body"].startswith(MARK):
                return int(one["id"])
        page += 1
    return None


def own_address() -> str:
    """Return the address of the run that this script is part of."""
    return "{GITHUB_SERVER_URL}/{GITHUB_REPOSITORY}/actions/runs/{GITHUB_RUN_ID}".format(**os.environ)


def ask(path: str, **query: object) -> Any:
    """Return GitHub's answer to a request about this repository."""
    return json.loads(request(f"{path}?{urlencode(query)}"))


def request(path: str, method: str = "GET", data: object = None) -> bytes:
    """Return GitHub's answer, of at most LARGEST bytes. The token is sent only to GitHub, not to redirect targets."""
    content = None if data is None else json.dumps(data).encode()
    address = f"{os.environ['GITHUB_API_URL']}/repos/{os.environ['GITHUB_REPOSITORY']}/{path}"
    headers = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
    asked = Request(address, data=content, headers=headers, method=method)
    asked.add_unredirected_header("Authorization", f"Bearer {os.environ['GITHUB_TOKEN']}")
    with urlopen(asked, timeout=60) as answer:
        received: bytes = answer.read(LARGEST + 1)
    if len(received) > LARGEST:
        sys.exit(f"GitHub's answer to {path} has more than {LARGEST} bytes")
    return received


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
