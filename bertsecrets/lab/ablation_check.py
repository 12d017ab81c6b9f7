"""A check of third-party code that ablates a head: does it act on that head, before the output projection?

The heads of a layer write to its output through the output projection, which mixes them: a slice of its output belongs
to no head. Ablating a head can change the projection's output only within the subspace that this head writes to, which
has as many dimensions as the head. This holds for every kind of ablation, however it is implemented.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import nn

from bertsecrets.ablation.engine import Engine, ablate
from bertsecrets.ablation.head_sets import Head, single_heads
from bertsecrets.errors import NotApplicableError, UserError, one_line
from bertsecrets.models.encoding import Batch, Encoded, collate
from bertsecrets.models.opening import OpenModel

Outcome = Literal[
    "right", "acts after the output projection", "disables another head", "changes nothing", "something else"
]
Disable = Callable[[Any, int, int], Any]
SAME = 1e-5  # largest difference between equal tensors, relative to the largest number
WITHIN = 0.999  # least share of a change that lies in a subspace


@dataclass(frozen=True)
class Finding:
    """The effect of disabling one head.

    Args:
        head: layer and head, from 0.
        does: a description of the effect, with numbers.
    """

    head: Head
    outcome: Outcome
    does: str


@dataclass(frozen=True)
class _Seen:
    """Tensors of a run: each layer's projection input (`contexts`), projection output and layer output; the logits."""

    contexts: list[torch.Tensor]
    projected: list[torch.Tensor]
    hidden: list[torch.Tensor]
    logits: torch.Tensor


class AblationCheck:
    """The check of functions that disable one head of a classifier."""

    def __init__(self, classifier: OpenModel, encoded: Encoded):
        """
        Args:
            classifier: on the CPU, in evaluation mode.
            encoded: a few examples of different lengths, so that some are padded.

        Raises:
            NotApplicableError: heads of this architecture cannot be disabled, or it has no known output projections.
        """
        self.classifier, self.encoded = classifier, encoded
        self.engine = Engine.open(classifier)
        self.batch: Batch = collate(encoded, np.arange(len(encoded)))
        self.real = self.batch.mask
        self.names = self._projections()
        self.plain = self._see(classifier.model)
        modules = dict(classifier.model.named_modules())
        self.maps = [_matrix(modules[name], self.classifier.heads) for name in self.names]

    def check(self, disable: Disable, head: Head) -> Finding:
        """Return what a function does to one head of a copy of the model.

        Raises:
            UserError: the function fails, or returns neither nothing, nor a model, nor a context manager.
        """
        model = deepcopy(self.classifier.model)
        with _disabled(disable, model, head) as changed:
            try:
                seen = self._see(changed)
            except Exception as error:
                raise UserError(f"{_place(head)} disabled, the model fails: {_in_short(error)}") from error
            return Finding(head, *self._judge(seen, head))

    def heads(self) -> list[Head]:
        """Return all heads, layer by layer."""
        return [head for heads in single_heads(self.classifier.layers, self.classifier.heads) for head in heads]

    def _projections(self) -> list[str]:
        """Return the name of each layer's output projection: the module whose input are the heads' vectors."""
        ids = self.batch.input_ids[:1, : int(self.batch.lengths[0])]
        calls: list[tuple[str, torch.Tensor]] = []
        with ExitStack() as hooks:
            for name, module in self.classifier.model.named_modules():
                if getattr(getattr(module, "weight", None), "ndim", 0) == 2:
                    hooks.callback(
                        module.register_forward_pre_hook(
                            lambda _m, args, name=name: calls.append((name, args[0].detach().clone())) if args else None
                        ).remove
                    )
            contexts = self.engine.skeleton.vectors(ids)
        names = []
        for context in contexts:
            flat = context.transpose(1, 2).flatten(2)
            same = [name for name, given in calls if given.shape == flat.shape and torch.equal(given, flat)]
            if not same:
                model = type(self.classifier.model).__name__
                raise NotApplicableError(f"cannot find the output projections of {model}")
            names.append(same[0])
        return names

    def _see(self, model: Any) -> _Seen:
        """Run a model on the examples; projections and layers are looked up by name."""
        seen = _Seen([], [], [], torch.empty(0))
        own = {module: name for name, module in self.classifier.model.named_modules()}
        layers = list(dict.fromkeys(own[modules[0]] for modules in self.engine.skeleton.layers))

        def project(_module: nn.Module, args: Any, output: torch.Tensor) -> None:
            seen.contexts.append(args[0].detach().clone())
            seen.projected.append(output.detach().clone())

        def leave(_module: nn.Module, _args: Any, output: Any) -> None:
            seen.hidden.append((output[0] if isinstance(output, tuple) else output).detach().clone())

        with ExitStack() as hooks, torch.no_grad():
            for name in dict.fromkeys(self.names):
                hooks.callback(model.get_submodule(name).register_forward_hook(project).remove)
            for name in layers:
                hooks.callback(model.get_submodule(name).register_forward_hook(leave).remove)
            logits = model(**self.batch.inputs()).logits
        return _Seen(seen.contexts, seen.projected, seen.hidden, logits)

    def _judge(self, seen: _Seen, head: Head) -> tuple[Outcome, str]:
        layer = next((i for i in range(len(self.names)) if self._differs(seen, i)), None)
        if layer is None:
            if self._same(seen.logits, self.plain.logits):
                return "changes nothing", "every logit stays the same"
            return "something else", "no layer changes, but the logits do"
        change = (seen.projected[layer] - self.plain.projected[layer])[self.real]
        if self._same(seen.projected[layer], self.plain.projected[layer], of_tokens=True):
            return "acts after the output projection", (
                f"what the output projection of layer {layer + 1} returns stays the same, its layer's output does not"
            )
        size = f"{100 * float(change.norm() / self.plain.projected[layer][self.real].norm()):.3g} % of its norm"
        within = [_share(change, basis) for basis in self.maps[layer]]
        most = int(np.argmax(within))
        if layer == head[0] and within[head[1]] >= WITHIN:
            if not self._follows(seen, layer):
                return "something else", f"the head changes as it should ({size}), but so do later layers"
            return "right", self._kind(seen, head)
        if within[most] >= WITHIN:
            return "disables another head", f"{_place((layer, most))} instead of {_place(head)} ({size})"
        heads = len(self.maps[layer])
        width = change.shape[1] // heads
        slices = [float((part**2).sum() / (change**2).sum()) for part in change.split(width, dim=1)[:heads]]
        fullest = int(np.argmax(slices))
        own = within[head[1]] if layer == head[0] else within[most]
        if slices[fullest] >= WITHIN:
            return "acts after the output projection", (
                f"{100 * slices[fullest]:.1f} % of the change lies in numbers {fullest * width + 1} to "
                f"{(fullest + 1) * width} of what the projection of layer {layer + 1} returns, "
                f"{100 * own:.1f} % in what the head can write"
            )
        return "something else", (
            f"layer {layer + 1} changes ({size}); only {100 * own:.1f} % of that lies in what "
            f"{_place(head if layer == head[0] else (layer, most))} can write"
        )

    def _differs(self, seen: _Seen, layer: int) -> bool:
        pairs = ((seen.projected, self.plain.projected), (seen.hidden, self.plain.hidden))
        return any(not self._same(now[layer], before[layer], of_tokens=True) for now, before in pairs)

    def _same(self, now: torch.Tensor, before: torch.Tensor, of_tokens: bool = False) -> bool:
        if now.shape != before.shape:
            return False
        if of_tokens:
            now, before = now[self.real], before[self.real]
        return bool((now - before).abs().max() <= SAME * before.abs().max())

    def _follows(self, seen: _Seen, layer: int) -> bool:
        """Return whether the change of one projection's output explains the logits."""
        calls = 0

        def overwrite(_module: nn.Module, _args: Any, output: torch.Tensor) -> torch.Tensor:
            nonlocal calls
            calls += 1
            return seen.projected[layer] if calls - 1 == self.names[:layer].count(self.names[layer]) else output

        handle = self.classifier.model.get_submodule(self.names[layer]).register_forward_hook(overwrite)
        try:
            with torch.no_grad():
                logits = self.classifier.model(**self.batch.inputs()).logits
        finally:
            handle.remove()
        return bool((logits - seen.logits).abs().max() <= 10 * SAME * logits.abs().max().clamp(min=1))

    def _kind(self, seen: _Seen, head: Head) -> str:
        """Describe the vectors that replace the head's own."""
        layer, number = head
        uniform = torch.from_numpy(ablate(self.engine, self.encoded, [frozenset({head})])[0])
        if (uniform - seen.logits).abs().max() <= 10 * SAME * uniform.abs().max().clamp(min=1):
            return "uniform weights over the real tokens"
        written = self.maps[layer][number]  # [size, width]
        context = self.plain.contexts[layer].unflatten(-1, (len(self.maps[layer]), -1))[:, :, number]
        change = seen.projected[layer] - self.plain.projected[layer]
        vectors = context + torch.linalg.lstsq(written.T, change.flatten(0, 1).T).solution.T.view_as(context)
        slack = 1e-3 * float(context[self.real].abs().max())
        if float(vectors[self.real].abs().max()) <= slack:
            return "zero vectors"
        rows = [row[here] for row, here in zip(vectors, self.real, strict=True)]
        if all(float((row - row[0]).abs().max()) <= slack for row in rows):
            if all(float((row[0] - rows[0][0]).abs().max()) <= slack for row in rows):
                return "one vector for all tokens of all texts, such as a mean"
            return "one vector for all tokens of a text, but not that of weights 1/L over its real tokens"
        return "other vectors at each token"


def _matrix(projection: nn.Module, heads: int) -> list[Float[torch.Tensor, "size width"]]:
    """Return the matrix that the output projection multiplies each head's vectors by."""
    with torch.no_grad():
        weight = getattr(projection, "weight")  # noqa: B009 - a tensor, which mypy cannot know
        width = weight.shape[1] if isinstance(projection, nn.Linear) else weight.shape[0]
        matrix = projection(torch.eye(width)) - projection(torch.zeros(1, width))
    return list(matrix.split(width // heads))


def _share(change: Float[torch.Tensor, "tokens width"], matrix: Float[torch.Tensor, "size width"]) -> float:
    """Return the share of a change's sum of squares that lies in the span of a matrix's rows."""
    basis = torch.linalg.qr(matrix.T.double()).Q
    whole = change.double()
    return float(((whole @ basis) ** 2).sum() / (whole**2).sum())


@contextmanager
def _disabled(disable: Disable, model: Any, head: Head) -> Iterator[Any]:
    """Yield the model with a head disabled, inside the function's own context manager if it returns one.

    Raises:
        UserError: the function fails, or returns something else than it may.
    """
    try:
        returned = disable(model, *head)
        within = hasattr(returned, "__enter__") and hasattr(returned, "__exit__")
        if within:
            returned.__enter__()
    except Exception as error:
        raise UserError(f"the function fails on {_place(head)}: {_in_short(error)}") from error
    if within:
        try:
            yield model
        finally:
            try:
                returned.__exit__(None, None, None)
            except Exception as error:
                raise UserError(f"the function fails after {_place(head)}: {_in_short(error)}") from error
    elif returned is None or isinstance(returned, nn.Module):
        yield (model if returned is None else returned).eval()
    else:
        raise UserError(
            f"the function returns {type(returned).__name__}: it should return a context manager, the changed model, "
            "or nothing if it changes the model in place"
        )


def _place(head: Head) -> str:
    return f"layer {head[0] + 1} head {head[1] + 1}"


def _in_short(error: Exception) -> str:
    return one_line(f"{type(error).__name__}: {error}")[:300]


def summary(findings: Sequence[Finding]) -> list[str]:
    """Return a line for each outcome: the number of heads with it, and the effect on the first of them."""
    lines = []
    for outcome in dict.fromkeys(finding.outcome for finding in findings):
        those = [finding for finding in findings if finding.outcome == outcome]
        kinds = dict.fromkeys(finding.does for finding in those)
        if outcome == "right":
            said = "; ".join(f"{sum(finding.does == kind for finding in those)} with {kind}" for kind in kinds)
        else:
            said = f"{_place(those[0].head)}: {those[0].does}"
        lines.append(f"{outcome}: {len(those)} of {len(findings)} heads ({said})")
    return lines
