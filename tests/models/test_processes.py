"""Several processes that train one checkpoint: the weights are those of one process, and saved states serve all."""

from pathlib import Path

import pytest
import torch
from together import CASES, ended, train

from bertsecrets.models.processes import Processes

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trained(tiny_bert, tiny_glue, tmp_path_factory) -> Path:
    """The folder in which two processes have noted their trainings."""
    out = tmp_path_factory.mktemp("together")
    script = Path(__file__).parents[1] / "support" / "together.py"
    codes, _, said = ended(str(script), str(tiny_bert), str(tiny_glue), str(out))
    assert codes == [0, 1], said
    return out


def noted(folder: Path, name: str) -> list[dict]:
    return [torch.load(folder / f"{name}-{number}.pt") for number in range(2)]


@pytest.mark.parametrize("case", CASES)
def test_two_processes_train_as_one_does(trained, tiny_bert, tiny_glue, tmp_path, case):
    facts, weights = train(str(tiny_bert), str(tiny_glue), tmp_path / "one", case)
    half = facts["precision"] == "bfloat16"
    both = noted(trained, case)
    for its in both:
        assert its["facts"]["steps"] == facts["steps"]
        assert its["facts"]["attention"] == facts["attention"]
        assert its["facts"]["loss"] == pytest.approx(facts["loss"], abs=2e-2 if half else 2e-5)
    for name, weight in weights.items():
        assert torch.equal(both[0]["weights"][name], both[1]["weights"][name]), name
        if not half and not name.endswith("key.bias"):  # whose gradient is nothing but rounding
            torch.testing.assert_close(both[0]["weights"][name], weight, rtol=0, atol=1e-4, msg=name)


def test_only_the_main_process_saves_the_checkpoint(trained):
    assert (trained / "pretrained" / "model.safetensors").is_file()


def test_a_training_goes_on_from_its_saved_state_in_all_processes(trained):
    whole, continued = noted(trained, "whole"), noted(trained, "continued")
    assert not list(trained.glob("stopped-*"))
    for before, after in zip(whole, continued, strict=True):
        assert after["facts"]["loss"] == before["facts"]["loss"]
        assert all(torch.equal(weight, before["weights"][name]) for name, weight in after["weights"].items())


def test_dropout_is_another_in_every_process():
    main, other = (Processes(2, number) for number in range(2))
    assert main.seed(5, 1) == 5
    assert len({main.seed(5), *(other.seed(5, step) for step in range(100))}) == 101
    assert other.seed(5, 1) == other.seed(5, 1)


def test_a_process_that_ends_ends_the_training_of_all(trained):
    said = (trained / "lost.txt").read_text(encoding="utf-8")
    assert said.startswith("another of the processes that train together has ended (")
    assert "\n" not in said


@pytest.mark.parametrize("count", [2, 3, 7])
@pytest.mark.parametrize("rows", [1, 2, 6, 7])
def test_shares_of_a_batch_make_up_the_batch(count, rows):
    shares = [Processes(count, number).share(list(range(rows))) for number in range(count)]
    assert sorted(row for own, part in shares if part for row in own) == list(range(rows))
    assert sum(part for _, part in shares) == pytest.approx(1)
    assert all(own for own, _ in shares)
