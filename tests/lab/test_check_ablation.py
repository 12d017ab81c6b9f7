"""The command that checks somebody's own ablation, with the functions that its page shows."""

import pytest
from pages import titled

from bertsecrets.cli.main import main


@pytest.fixture
def command(tmp_path, tiny_bert, monkeypatch, capsys):
    """The command on a tiny model, in a folder with the page's module; returns exit code, output and errors."""
    (tmp_path / "my_ablation.py").write_text(titled("lab/check-ablation.md", "my_ablation.py"), encoding="utf-8")
    (tmp_path / "broken_ablation.py").write_text("import nothing_of_this_name")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TQDM_DISABLE", "1")

    def run(function: str) -> tuple[int, str, str]:
        code = main(["lab", "check-ablation", function, "--model", str(tiny_bert), "--offline"])
        return code, *capsys.readouterr()

    return run


def test_the_pages_functions_are_told_apart(command):
    code, out, _ = command("my_ablation:without_head")
    assert (code, out.split(" (")[0]) == (0, "right: 12 of 12 heads")
    assert "with zero vectors)" in out
    code, out, _ = command("my_ablation:a_slice_of_the_output")
    assert (code, out.split(" (")[0]) == (1, "acts after the output projection: 12 of 12 heads")
    assert "of the change lies in numbers 1 to 8 of what the projection of layer 1 returns" in out


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("my_ablation", "my_ablation is not of the form MODULE:FUNCTION, such as my_ablation:without_head"),
        ("my_ablation:missing", "module my_ablation has no function missing"),
        ("no_such_module_here:f", "cannot import no_such_module_here: ModuleNotFoundError"),
        ("broken_ablation:f", "cannot import broken_ablation: ModuleNotFoundError: No module named 'nothing_of"),
        ("os:getpid", "the function fails on layer 1 head 1: TypeError"),
    ],
)
def test_what_is_no_such_function_ends_in_one_line(command, function, said):
    code, out, err = command(function)
    assert (code, out) == (2, "")
    assert err.startswith(f"bertsecrets: {said}")
    assert err.count("\n") == 1
