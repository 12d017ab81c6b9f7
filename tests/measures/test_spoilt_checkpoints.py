"""A checkpoint from a training that diverged: one line by every measure that reads it, and nothing is stored."""

import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from bertsecrets.errors import UserError
from bertsecrets.session import Session

MEASURES = (
    "scores", "attention-change", "special-tokens", "patterns", "head-ablation", "layer-ablation",
)  # fmt: skip


@pytest.mark.parametrize("value", [float("nan"), 1e38])  # not finite; finite, but what is computed from it is not
@pytest.mark.parametrize("measure", MEASURES)
def test_a_diverged_checkpoint_is_one_line(tiny_bert, tiny_glue, tmp_path, measure, value):
    folder = shutil.copytree(tiny_bert, tmp_path / "diverged")
    tensors = load_file(folder / "model.safetensors")
    for name in tensors:
        if ".query.weight" in name or ".key.weight" in name or name.startswith("classifier"):
            tensors[name] = torch.full_like(tensors[name], value) * (-1) ** torch.arange(tensors[name].numel()).reshape(
                tensors[name].shape
            )
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    session = Session(
        model=str(tiny_bert), glue=str(tiny_glue), store=str(tmp_path / "runs"), device="cpu", offline=True,
        allow_unofficial_data=True, limit=6, grid_limit=6,
    )  # fmt: skip
    with pytest.raises(UserError, match=r"is not finite|answers with (nan|-?inf)") as error:
        session.measure(measure, task="rte", checkpoint=folder)
    assert "\n" not in str(error.value)
    kept = tmp_path / "runs" / "measurements"
    assert not kept.exists() or not [path for path in kept.iterdir() if path.is_dir()]
