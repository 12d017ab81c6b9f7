"""The lock files pin all dependencies by digest, and the container recipe copies all that it needs."""

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from pages import PROJECT

RECIPE = (PROJECT / "container" / "Containerfile").read_text(encoding="utf-8")
METADATA = tomllib.loads((PROJECT / "pyproject.toml").read_text())
EXTRAS = METADATA["project"]["optional-dependencies"]


def pinned(*names: str) -> dict[str, str]:
    """Return the packages of some lock files with their versions."""
    text = "".join((PROJECT / "requirements" / f"{name}.txt").read_text(encoding="utf-8") for name in names)
    return dict(re.findall(r"^([a-z0-9-]+)==([^\s;]+)", text, re.M))


def named_by(extra: str) -> list[str]:
    """Return an extra's requirements, with those of the extras that it includes."""
    wanted = []
    for requirement in EXTRAS[extra]:
        included = Requirement(requirement)
        wanted += (
            [name for inner in included.extras for name in named_by(inner)]
            if included.name == "bertsecrets"
            else [requirement]
        )
    return wanted


@pytest.mark.parametrize("torch", ["torch-cuda", "torch-cpu"])
@pytest.mark.parametrize(
    ("extras", "files"),
    [
        (("minilm", "report"), ("base",)),
        (("minilm", "report", "spacy"), ("base", "spacy")),
        (("dev",), ("base", "spacy", "dev")),
    ],
    ids=["demo", "container", "development"],
)
def test_lock_files_pin_everything_that_the_suite_depends_on(extras, files, torch):
    versions = pinned(*files, torch)
    wanted = [*METADATA["project"]["dependencies"], *METADATA["build-system"]["requires"]]
    wanted += [requirement for extra in extras for requirement in named_by(extra)]
    for requirement in map(Requirement, wanted):
        assert requirement.name.lower() in versions, requirement
        assert requirement.specifier.contains(versions[requirement.name.lower()]), requirement


def test_every_torch_has_the_same_version():
    (default,) = re.findall(r"^TORCH \?= torch==(\S+)$", (PROJECT / "Makefile").read_text(), re.M)
    assert pinned("torch-cuda")["torch"] == default
    assert pinned("torch-cpu")["torch"].split("+")[0] == default


def test_everything_that_the_recipe_copies_is_there():
    copied = [name for names in re.findall(r"^COPY (.*) \S+$", RECIPE, re.M) for name in names.split()]
    assert copied
    for name in copied:
        for torch in ("cuda", "cpu"):
            assert (PROJECT / name.replace("${TORCH}", torch)).exists(), name


def test_sources_of_the_wheel_are_copied():
    build = METADATA["tool"]["hatch"]["build"]["targets"]["wheel"]
    for name in (*build["packages"], *build["force-include"]):
        assert re.search(rf"^COPY (.* )?{re.escape(name)} ", RECIPE, re.M), name
