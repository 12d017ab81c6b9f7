"""How a training in bfloat16 takes its steps on a GPU: texts on the device, and one program for each shape of batch.

A batch of 32 short texts keeps a GPU busy for less time than starting its kernels one by one takes. So the texts lie on
the device before the first step, nothing in a step waits for the device, and a whole step, from the texts to the new
weights, is recorded as a CUDA graph once for each shape and then started at a stroke. Where a shape comes often, the
layers are compiled before: once per process, for all layers, models, seeds and tasks of that shape.
"""

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import MethodType
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
from transformers.modeling_layers import GradientCheckpointingLayer

from bertsecrets.errors import one_line, shortened
from bertsecrets.models.encoding import Encoded
from bertsecrets.models.memory import ran_out
from bertsecrets.models.training_state import tell

# Steps of a shape that start their kernels one by one before it is recorded: in these, libraries choose their kernels
# and the optimizer makes its state. Recording takes about as long as one of them, so it pays from the next one on.
WARM = 2
# Steps of a shape from which on its layers are compiled. Compiling takes some ten seconds for a shape, and fusing what
# lies between the products saves less than 2 ms of a step: it can pay from 5 000 on. To be measured on a GPU.
COMPILED_FROM = 5000
UNREAD = "sdpa_unread"  # SDPA as ever, but nobody asks the device whether a mask could be left out

Steps = Callable[[Int[torch.Tensor, " rows"], int], Float[torch.Tensor, "3"]]
Program = Callable[[], Float[torch.Tensor, "3"]]


def _unread_mask(*arguments: Any, **options: Any) -> torch.Tensor | None:
    return sdpa_mask(*arguments, **{**options, "allow_is_causal_skip": False, "allow_is_bidirectional_skip": False})


AttentionInterface.register(UNREAD, sdpa_attention_forward)
AttentionMaskInterface.register(UNREAD, _unread_mask)


class TextsOnDevice:
    """The texts of a training on a device, padded to the longest; a batch is cut out of them there."""

    def __init__(
        self,
        encoded: Encoded,
        targets: Sequence[float] | Sequence[int],
        device: torch.device,
        *,
        multiple: int,
        segment_padding: int = 0,
    ):
        """Put all texts on the device.

        Args:
            multiple: the widths of batches are multiples of it.
            segment_padding: the token type of padding.
        """
        lengths = encoded.lengths
        self.widths: Int[np.ndarray, " examples"] = -(-lengths // multiple) * multiple
        width = int(self.widths.max(initial=0))
        self.lengths = torch.from_numpy(lengths).to(device)
        self.ids = _padded(encoded.input_ids, width, encoded.padding_id).to(device)
        self.segments: torch.Tensor | None = None
        if encoded.segments is not None:
            self.segments = _padded(encoded.segments, width, segment_padding).to(device)
        self.targets = torch.tensor(targets).to(device)
        self.places = torch.arange(width, device=device)

    @staticmethod
    def bytes(encoded: Encoded, multiple: int) -> int:
        """Return how much memory the texts take on the device, about."""
        width = int(-(-encoded.lengths.max(initial=0) // multiple) * multiple)
        return len(encoded) * width * (4 if encoded.segments is None else 8)

    def batch(self, rows: Int[torch.Tensor, " rows"], width: int) -> dict[str, torch.Tensor]:
        """Return some texts as keyword arguments of a transformers model, which computes their loss too."""
        batch = {
            "input_ids": self.ids[rows, :width].long(),
            "attention_mask": (self.places[:width] < self.lengths[rows, None]).long(),
            "labels": self.targets[rows],
        }
        if self.segments is not None:
            batch["token_type_ids"] = self.segments[rows, :width].long()
        return batch


def _padded(rows: Sequence[Sequence[int]], width: int, padding: int) -> Int[torch.Tensor, "rows width"]:
    """Return lists of numbers as one tensor, padded on the right (int32, half the memory of what models read)."""
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    filled = np.full((len(rows), width), padding, dtype=np.int32)
    filled[np.arange(width) < lengths[:, None]] = np.fromiter(itertools.chain.from_iterable(rows), dtype=np.int32)
    return torch.from_numpy(filled)


@runtime_checkable
class Recorder(Protocol):
    """What makes programs of steps."""

    def aside(self) -> AbstractContextManager[None]:
        """Return the block in which all steps are taken."""

    def record(self, compute: Program) -> Program:
        """Return a function that does again and again what `compute` does; it is called once for that."""


class Graphs:
    """The CUDA graphs of one training: they share their memory, and have a stream of their own."""

    def __init__(self, device: torch.device):
        """Nothing is recorded yet."""
        self.device = device
        self.stream = torch.cuda.Stream(device)
        self.pool = torch.cuda.graph_pool_handle()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Compute in the graphs' stream, in order with what comes before and after; only the device waits."""
        usual = torch.cuda.current_stream(self.device)
        self.stream.wait_stream(usual)
        with torch.cuda.stream(self.stream):
            yield
        usual.wait_stream(self.stream)

    def record(self, compute: Program) -> Program:
        """Return a function that starts a graph of all kernels of `compute`, which is called but computes nothing.

        Random numbers are new at every start.

        Raises:
            RuntimeError: something in it cannot be recorded.
        """
        random = torch.cuda.default_generators[torch.cuda.current_device()]
        before = random.clone_state()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self.pool, stream=self.stream):
                result = compute()
        except RuntimeError:
            random.graphsafe_set_state(before)  # the other one would wait for the end of the recording
            raise

        def start() -> torch.Tensor:
            graph.replay()
            return result.clone()  # other graphs write to its memory

        return start


class GpuSteps:
    """The steps of a training as programs, one for each width of a full batch; rare shapes are computed as ever."""

    def __init__(
        self,
        model: Any,
        compute: Steps,
        widths: Int[np.ndarray, " examples"],
        optimizer: torch.optim.AdamW,
        *,
        size: int,
        epochs: int,
        layers: Sequence[nn.Module],
        recorder: Recorder,
        backend: str | Callable[..., Any] = "inductor",
    ):
        """Make the model and the optimizer ready, in place.

        Args:
            compute: takes a step on some rows, as a batch of a width, and returns loss, gradient norm, largest logit.
            widths: that each example needs.
            size: rows of a full batch.
            layers: of the model, which pay to be compiled.
            backend: compiles layers, for `torch.compile`.
        """
        self.model, self.compute, self.widths, self.recorder = model, compute, widths, recorder
        self.backend = backend
        self.device = next(model.parameters()).device
        self.rows = torch.zeros(size, dtype=torch.long, device=self.device)  # of the batch that a program computes
        self.rate = torch.zeros((), device=self.device)
        for group in optimizer.param_groups:
            group.update(lr=self.rate, capturable=True)
        often = steps_by_width(widths, size, epochs)
        self.layers = layers
        self.compiling = {width for width, steps in often.items() if layers and steps >= COMPILED_FROM}
        self.recording = True
        self.taken: Counter[int] = Counter()
        self.programs: dict[int, Program] = {}
        self.recorded: set[int] = set()  # widths that have, or had, a program
        self.attention: str = model.config._attn_implementation
        if self.attention == "sdpa":
            model.set_attn_implementation(UNREAD)

    def take(self, rows: list[int], rate: float) -> Float[torch.Tensor, "3"]:
        """Take a step on some rows; returns loss, gradient norm and largest logit, without waiting for them."""
        width = int(self.widths[rows].max())
        with self.recorder.aside():
            self.rate.fill_(rate)
            chosen = moved(torch.tensor(rows), self.device)
            if len(rows) != len(self.rows):
                return self.compute(chosen, width)
            self.rows.copy_(chosen)
            if width not in self.programs and self.recording and self.taken[width] >= WARM:
                self._record(width)
            if width in self.programs:
                return self.programs[width]()
            self.taken[width] += 1
            return self._one_by_one(width)

    def _one_by_one(self, width: int) -> Float[torch.Tensor, "3"]:
        """Take a step kernel by kernel; where layers cannot be compiled, they no longer are, which a line says."""
        if width not in self.compiling:
            return self.compute(self.rows, width)
        try:
            with self._arranged(width):
                return self.compute(self.rows, width)
        except Exception as error:
            if ran_out(error):
                raise
            self.compiling.clear()
            self.model.zero_grad()
            tell(f"layers are not compiled: {shortened(one_line(error))}")
            return self.compute(self.rows, width)

    def _record(self, width: int) -> None:
        """Record the steps of a width; where that is not possible, all go on kernel by kernel, which a line says."""
        try:
            with self._arranged(width):
                self.programs[width] = self.recorder.record(lambda: self.compute(self.rows, width))
            self.recorded.add(width)
        except RuntimeError as error:
            self.recording = False
            self.model.zero_grad()
            tell(f"steps are not recorded as CUDA graphs: {shortened(one_line(error))}")

    def _arranged(self, width: int) -> AbstractContextManager[None]:
        return compiled(self.layers, self.backend) if width in self.compiling else nullcontext()

    @property
    def described(self) -> str:
        """How the steps were computed, in a few words."""
        parts = ["CUDA graphs"] * bool(self.recorded) + ["compiled layers"] * bool(self.compiling)
        return ", ".join(parts) or "kernel by kernel"

    def end(self) -> None:
        """Leave the model as it was, and give back the programs' memory."""
        self.programs.clear()
        if self.attention == "sdpa":
            self.model.set_attn_implementation(self.attention)


def steps_by_width(widths: Int[np.ndarray, " examples"], size: int, epochs: int) -> dict[int, int]:
    """Return about how many full batches of each width a training has, whose batches are of similar length.

    >>> steps_by_width(np.array([32, 64, 32, 32, 32]), size=2, epochs=3)
    {32: 6}
    """
    longest = np.sort(widths)[size - 1 :: size]
    return {int(width): epochs * int((longest == width).sum()) for width in np.unique(longest)}


def layers_of(model: Any) -> list[nn.Module]:
    """Return the layers of a transformers model."""
    return [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]


@contextmanager
def compiled(layers: Sequence[Any], backend: str | Callable[..., Any] = "inductor") -> Iterator[None]:
    """Compute layers by compiled programs within the block, one for each shape of input, whatever model they are of."""
    for layer in layers:
        kind: Any = type(layer)
        layer.forward = MethodType(_program(kind, backend), layer)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


@functools.cache
def _program(kind: type[nn.Module], backend: str | Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(kind.forward, dynamic=False, backend=backend)


def moved(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return a tensor on a device; a GPU copies it without being waited for."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
