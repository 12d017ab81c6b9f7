"""Small networks on features, trained side by side: several draws of one net, whose mean is steadier than each."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int

from bertsecrets.patterns.annotated import class_weights
from bertsecrets.patterns.classes import CLASSES

HIDDEN = 48
STEPS = 400
BATCH = 256
RATE = 3e-3
DECAY = 0.02  # AdamW's weight decay
DROP = 0.3  # of the features and of the hidden units, in training
SMOOTH = 0.05  # label smoothing
FAR = 4.0  # standardised features are clipped here: a map unlike all others must not carry a net away


@dataclass(frozen=True)
class Nets:
    """`nets` two-layer networks on standardised features."""

    middle: Float[torch.Tensor, " features"]
    scale: Float[torch.Tensor, " features"]
    weight1: Float[torch.Tensor, "nets features hidden"]
    bias1: Float[torch.Tensor, "nets 1 hidden"]
    weight2: Float[torch.Tensor, "nets hidden classes"]
    bias2: Float[torch.Tensor, "nets 1 classes"]

    def probabilities(self, table: Float[torch.Tensor, "maps features"]) -> Float[torch.Tensor, "maps classes"]:
        """The mean over the nets of their class probabilities."""
        hidden = torch.relu(self._standard(table) @ self.weight1 + self.bias1)
        return (hidden @ self.weight2 + self.bias2).softmax(-1).mean(0)

    def _standard(self, table: Float[torch.Tensor, "maps features"]) -> Float[torch.Tensor, "maps features"]:
        return ((table - self.middle) / self.scale).clamp(-FAR, FAR)

    def to(self, device: torch.device | str) -> "Nets":
        """The same nets on another device."""
        return Nets(**{name: value.to(device) for name, value in vars(self).items()})


@torch.inference_mode(False)
@torch.enable_grad()
def train_nets(
    table: Float[np.ndarray, "maps features"], labels: Int[np.ndarray, " maps"], seed: int, nets: int = 5
) -> Nets:
    """Networks trained with AdamW, every class weighing alike."""
    random = torch.Generator().manual_seed(seed)
    x, y = torch.from_numpy(table).float(), torch.from_numpy(labels).long()
    middle, scale = x.mean(0), x.std(0).clamp(min=1e-3)
    x = ((x - middle) / scale).clamp(-FAR, FAR)
    features, classes = x.shape[1], len(CLASSES)

    def drawn(*shape: int) -> torch.Tensor:
        return (torch.randn(shape, generator=random) * (2 / shape[1]) ** 0.5).requires_grad_()

    weight1, weight2 = drawn(nets, features, HIDDEN), drawn(nets, HIDDEN, classes)
    bias1 = torch.zeros(nets, 1, HIDDEN, requires_grad=True)
    bias2 = torch.zeros(nets, 1, classes, requires_grad=True)
    optimizer = torch.optim.AdamW([weight1, bias1, weight2, bias2], lr=RATE, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    weights = class_weights(labels)

    def dropped(values: torch.Tensor) -> torch.Tensor:
        kept = torch.rand(values.shape, generator=random) >= DROP
        return values * kept / (1 - DROP)

    for _ in range(STEPS):
        some = torch.randint(len(y), (nets, BATCH), generator=random)
        hidden = torch.relu(dropped(x[some]) @ weight1 + bias1)
        logits = dropped(hidden) @ weight2 + bias2
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), y[some].flatten(), weight=weights, label_smoothing=SMOOTH
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    trained = (part.detach() for part in (weight1, bias1, weight2, bias2))
    return Nets(middle, scale, *trained)
