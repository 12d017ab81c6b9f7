"""Progress in a log: occasional lines with the task, the progress, the speed and the time left, and nothing else."""

import pytest

from bertsecrets import progress as module
from bertsecrets.jobs.worker import JobRunner
from bertsecrets.options import RunOptions
from bertsecrets.progress import LINES_VALUE, PROGRESS_VARIABLE, progress


@pytest.fixture
def passing(monkeypatch):
    """Return a function that advances a fake clock."""
    monkeypatch.delenv(PROGRESS_VARIABLE, raising=False)
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])

    def seconds(count: float) -> None:
        now[0] += count

    return seconds


def lines(capsys) -> list[str]:
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "\r" not in captured.err
    assert "\x1b" not in captured.err
    return captured.err.splitlines()


def test_a_line_shows_title_progress_speed_and_remaining_time(passing, capsys):
    with progress("fine-tuning", 200, "step", done=20) as shown:
        passing(15)
        shown.advance(30, note="loss 0.5")
    assert lines(capsys) == ["bertsecrets: fine-tuning: 25%, 50 of 200 steps, 2 steps/s, 1 min 15 s left, loss 0.5"]


@pytest.mark.parametrize(
    ("total", "advances", "seconds", "shares"),
    [(100, 100, 0.09, []), (1000, 1000, 0.2, [*range(10, 101, 10)]), (100_000, 100, 1, [0, 0, 0])],
    ids=["no line for a few seconds", "a line for each tenth", "a line in half a minute"],
)
def test_lines_are_rare(passing, capsys, total, advances, seconds, shares):
    with progress("work", total, "row") as shown:
        for _ in range(advances):
            passing(seconds)
            shown.advance()
    assert [int(line.split(": ")[2].partition("%")[0]) for line in lines(capsys)] == shares


@pytest.mark.parametrize("among_several", [False, True])
@pytest.mark.parametrize(("switch", "shown"), [("1", 0), (LINES_VALUE, 1), ("", 1)])
def test_progress_can_be_disabled_by_the_environment(passing, capsys, monkeypatch, among_several, switch, shown):
    """A process among several writes lines on a terminal, too."""
    monkeypatch.setenv(PROGRESS_VARIABLE, switch)
    if among_several:
        monkeypatch.setattr(module.sys.stderr, "isatty", lambda: True)
        JobRunner(RunOptions())
    with progress("long", 2, "row") as of:
        passing(31)
        of.advance()
    assert len(lines(capsys)) == shown
