"""The container recipe copies all that it needs, and its lock files pin all of the suite's dependencies by digest."""

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from pages import PROJECT

CONTAINER = PROJECT / "container"
RECIPE = (CONTAINER / "Containerfile").read_text(encoding="utf-8")


def pinned(name: str) -> dict[str, list[str]]:
    """Return the packages of a lock file with their versions, each of which must have a digest."""
    entries = re.split(r"\n(?=\S)", (CONTAINER / name).read_text(encoding="utf-8").strip())
    versions: dict[str, list[str]] = {}
    for entry in entries:
        match = re.match(r"([a-z0-9.-]+)==(\S+)", entry)
        assert match, entry
        assert "--hash=sha256:" in entry, match[1]
        versions.setdefault(match[1], []).append(match[2])
    return versions


@pytest.mark.parametrize("torch", ["cuda", "cpu"])
def test_lock_files_pin_everything_that_the_suite_depends_on(torch):
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    wanted = [
        *project["project"]["dependencies"],
        *(
            requirement
            for extra in ("minilm", "report", "spacy")
            for requirement in project["project"]["optional-dependencies"][extra]
        ),
        *project["build-system"]["requires"],
    ]
    versions = pinned("requirements.txt") | pinned(f"torch-{torch}.txt")
    for requirement in map(Requirement, wanted):
        assert requirement.name in versions, requirement
        assert all(requirement.specifier.contains(version) for version in versions[requirement.name]), requirement


def test_lock_files_agree():
    locks = [pinned(name) for name in ("requirements.txt", "torch-cuda.txt", "torch-cpu.txt")]
    development = {
        match[1] for match in re.finditer(r"^(\S+==\S+)", (PROJECT / "requirements-dev.txt").read_text(), re.M)
    }
    for name in locks[0].keys() & locks[1].keys():
        assert locks[0][name] == locks[1][name]
    assert {package for package in locks[2] if locks[2][package] != locks[1][package]} == {"torch"}
    assert {f"{name}=={version}" for name, versions in locks[0].items() for version in versions} <= development


def test_everything_that_the_recipe_copies_is_there():
    copied = [name for names in re.findall(r"^COPY (.*) \S+$", RECIPE, re.M) for name in names.split()]
    assert copied
    for name in copied:
        for torch in ("cuda", "cpu"):
            assert (PROJECT / name.replace("${TORCH}", torch)).exists(), name


def test_sources_of_the_wheel_are_copied():
    build = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    for name in (*build["packages"], *build["force-include"]):
        assert re.search(rf"^COPY (.* )?{re.escape(name)} ", RECIPE, re.M), name
