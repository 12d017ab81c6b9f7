"""Commands called as a user calls them, in this process."""

from bertsecrets.cli import main


def told(capsys, *arguments) -> str:
    """What a command that must fail writes: one line, and exit code 2."""
    try:
        code = main([str(a) for a in arguments])
    except SystemExit as stop:
        code = stop.code
    captured = capsys.readouterr()
    assert code == 2, captured
    lines = [line for line in captured.err.splitlines() if not line.startswith(("fine-tuning", "attention of"))]
    assert len(lines) == 1, captured.err
    assert lines[0].startswith("bertsecrets")
    return lines[0]


def run(capsys, *arguments) -> str:
    assert main([str(a) for a in arguments]) == 0
    return capsys.readouterr().out
