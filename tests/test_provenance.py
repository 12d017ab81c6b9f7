"""The commit of the suite, and whether its files were modified, in checkouts and installed packages."""

import subprocess
from importlib.metadata import distribution

import pytest

from bertsecrets.provenance import suite_commit


def git(folder, *command: str) -> str:
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *identity, *command], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository whose suite is one empty file."""
    suite_commit.cache_clear()
    git(tmp_path, "init", "--quiet")
    (tmp_path / "bertsecrets").mkdir()
    (tmp_path / "bertsecrets" / "__init__.py").touch()
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "--message", "Begin")
    installed_from(monkeypatch, None)
    yield tmp_path
    suite_commit.cache_clear()


def installed_from(monkeypatch, origin: str | None) -> None:
    """Set the text of pip's record of where the suite was installed from."""
    monkeypatch.setattr(type(distribution("bertsecrets")), "read_text", lambda self, name: origin)


def commit_of(folder):
    suite_commit.cache_clear()
    return suite_commit(folder)


def test_a_checkout_has_its_commit_and_whether_it_was_changed(checkout):
    head = git(checkout, "rev-parse", "HEAD")
    assert commit_of(checkout) == (head, False)
    (checkout / "runs").mkdir()
    (checkout / "runs" / "verdict.json").touch()  # does not affect verdicts
    assert commit_of(checkout) == (head, False)
    (checkout / "expected").mkdir()
    (checkout / "expected" / "C-change.yaml").write_text("- id: C1")
    assert commit_of(checkout) == (head, True)


def test_a_repository_around_an_installed_package_is_ignored(checkout):
    installed = checkout / "venv" / "site-packages"
    (installed / "bertsecrets").mkdir(parents=True)
    (installed / "bertsecrets" / "__init__.py").touch()
    assert commit_of(installed) == (None, None)


def test_without_git_or_a_repository_no_commit_is_known(checkout, tmp_path_factory, monkeypatch):
    assert commit_of(tmp_path_factory.mktemp("nowhere")) == (None, None)
    monkeypatch.setenv("PATH", str(tmp_path_factory.mktemp("empty")))
    assert commit_of(checkout) == (None, None)


def test_git_variables_of_a_hook_are_ignored(checkout, tmp_path_factory, monkeypatch):
    monkeypatch.setenv("GIT_DIR", str(tmp_path_factory.mktemp("other")))
    assert commit_of(checkout)[1] is False


@pytest.mark.parametrize(
    ("origin", "commit"),
    [
        ('{"url": "https://example.org/suite", "vcs_info": {"vcs": "git", "commit_id": "abc"}}', "abc"),
        ('{"url": "file:///suite", "dir_info": {"editable": true}}', None),
        ("not JSON", None),
        (None, None),
    ],
)
def test_pip_knows_the_commit_that_it_installed(origin, commit, monkeypatch, tmp_path):
    installed_from(monkeypatch, origin)
    assert commit_of(tmp_path) == (commit, None)
    suite_commit.cache_clear()
