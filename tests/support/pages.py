"""Pages of the documentation and their code blocks, and programs of the checkout that are in no package."""

import argparse
import importlib.util
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from bertsecrets.benchmarks.pytest_options import RUN_OPTIONS
from bertsecrets.options import flag

PROJECT = Path(__file__).parents[2]
DOCS = PROJECT / "docs"
FENCE = re.compile(r"^```(\w*)(?: title=\"([^\"]*)\")?\n(.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Block:
    """A fenced block: its page, language, title (a file name), text and line."""

    page: Path
    language: str
    title: str
    text: str
    line: int

    def __str__(self) -> str:
        return f"{self.page.relative_to(PROJECT)}:{self.line}"

    @property
    def commands(self) -> list[list[str]]:
        """The commands of a shell block, split into arguments, without comments and prompts."""
        lines = self.text.replace("\\\n", " ").splitlines()
        commands = [shlex.split(line.removeprefix("$ "), comments=True) for line in lines]
        return [command for command in commands if command]


def program(place: str) -> ModuleType:
    """Return the module in a file of the checkout."""
    spec = importlib.util.spec_from_file_location(Path(place).stem, PROJECT / place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_options() -> argparse.ArgumentParser:
    """Return a parser of the options that the benchmarks add to pytest."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    for name, parsing in RUN_OPTIONS.items():
        parser.add_argument(flag(name), **parsing)
    return parser


def pages() -> list[Path]:
    """Return all pages: README, CONTRIBUTING and the pages of the site."""
    return [PROJECT / "README.md", PROJECT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [Block(page, m[1], m[2] or "", m[3], text.count("\n", 0, m.start()) + 1) for m in FENCE.finditer(text)]


def all_blocks(*languages: str) -> list[Block]:
    """Return the blocks of all pages in any of these languages."""
    return [block for page in pages() for block in blocks(page) if block.language in languages]


def titled(page: str, title: str) -> str:
    """Return the text of the block with this title (a file name) on a page of the site."""
    (block,) = (block for block in blocks(DOCS / page) if block.title == title)
    return block.text
