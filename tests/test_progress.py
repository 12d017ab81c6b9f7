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


def test_work_of_a_few_seconds_has_no_line(passing, capsys):
    with progress("quick", 100, "row") as shown:
        for _ in range(100):
            passing(0.09)
            shown.advance()
    assert lines(capsys) == []


def test_long_work_has_a_line_for_each_tenth(passing, capsys):
    with progress("long", 1000, "row") as shown:
        for _ in range(1000):
            passing(0.2)
            shown.advance()
    assert [line.split(":")[2].split("%")[0].strip() for line in lines(capsys)] == [str(n) for n in range(10, 101, 10)]


def test_slow_work_has_a_line_in_half_a_minute(passing, capsys):
    with progress("slow", 100_000, "row") as shown:
        for _ in range(100):
            passing(1)
            shown.advance()
    assert len(lines(capsys)) == 3


@pytest.mark.parametrize(("switch", "shown"), [("1", 0), (LINES_VALUE, 1), ("", 1)])
def test_progress_can_be_disabled_by_the_environment(passing, capsys, monkeypatch, switch, shown):
    monkeypatch.setenv(PROGRESS_VARIABLE, switch)
    with progress("long", 2, "row") as of:
        passing(31)
        of.advance()
    assert len(lines(capsys)) == shown


@pytest.mark.parametrize(("switch", "shown"), [("", 1), ("1", 0)])
def test_a_process_among_several_writes_lines_on_a_terminal_too(passing, capsys, monkeypatch, switch, shown):
    monkeypatch.setattr(module.sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv(PROGRESS_VARIABLE, switch)
    JobRunner(RunOptions())
    with progress("long", 2, "row") as of:
        passing(31)
        of.advance()
    assert len(lines(capsys)) == shown
