"""The pages of the documentation, and the code blocks in them."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parents[2]
DOCS = PROJECT / "docs"
FENCE = re.compile(r"^```(\w*)(?: title=\"([^\"]*)\")?\n(.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Block:
    """One fenced block: its page, its language, the file that its title names, its text and its line."""

    page: Path
    language: str
    title: str
    text: str
    line: int

    def __str__(self) -> str:
        return f"{self.page.relative_to(PROJECT)}:{self.line}"

    @property
    def commands(self) -> list[list[str]]:
        """The command lines of a shell block, each as words, without comments and prompts."""
        lines = self.text.replace("\\\n", " ").splitlines()
        words = [shlex.split(line.removeprefix("$ "), comments=True) for line in lines]
        return [command for command in words if command]


def pages() -> list[Path]:
    """Every page: README, CONTRIBUTING and the site's."""
    return [PROJECT / "README.md", PROJECT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [Block(page, m[1], m[2] or "", m[3], text.count("\n", 0, m.start()) + 1) for m in FENCE.finditer(text)]


def all_blocks(*languages: str) -> list[Block]:
    """The blocks of all pages that are in one of these languages."""
    return [block for page in pages() for block in blocks(page) if block.language in languages]


def titled(page: str, title: str) -> str:
    """The text of the block of a page of the site that stands for a file."""
    (block,) = (block for block in blocks(DOCS / page) if block.title == title)
    return block.text
