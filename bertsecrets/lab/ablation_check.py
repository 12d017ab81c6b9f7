"""A check of third-party ablation code: does it disable the given head, before the output projection?

The output projection mixes the heads of a layer, so slices of its output do not correspond to heads. Ablating one head
changes the output only within the subspace that the head writes to, whose dimension is the head size. This is true for
every kind of ablation, no matter how it is implemented.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
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

Outcome = Literal["correct", "acts after the output projection", "disables another head", "has no effect", "other"]
Disable = Callable[[Any, int, int], Any]
SAME = 1e-5  # largest difference between equal tensors, relative to the largest value
WITHIN = 0.999  # minimum fraction of a change that counts as within a subspace


@dataclass(frozen=True)
class Finding:
    """The effect of disabling one head.

    Args:
        head: Layer and head, from 0.
        effect: Description with numbers.
    """

    head: Head
    outcome: Outcome
    effect: str


@dataclass
class _Trace:
    """The tensors of one forward pass, by layer. `contexts` are the inputs of the output projections."""

    contexts: list[torch.Tensor] = field(default_factory=list)
    projected: list[torch.Tensor] = field(default_factory=list)
    hidden: list[torch.Tensor] = field(default_factory=list)
    logits: torch.Tensor = field(default_factory=lambda: torch.empty(0))


class AblationCheck:
    """A check of functions that disable one head of a classifier."""

    def __init__(self, classifier: OpenModel, encoded: Encoded):
        """
        Args:
            classifier: Classifier on the CPU, in evaluation mode.
            encoded: A few examples of different lengths, so that some are padded.

        Raises:
            NotApplicableError: If heads cannot be disabled in this architecture, or its output projections are unknown.
        """
        self.classifier, self.encoded = classifier, encoded
        self.engine = Engine.open(classifier)
        self.batch: Batch = collate(encoded, np.arange(len(encoded)))
        self.real = self.batch.mask
        self.names = self._projections()
        self.intact = self._run(classifier.model)
        modules = dict(classifier.model.named_modules())
        self.matrices = [_matrices(modules[name], classifier.heads) for name in self.names]

    def check(self, disable: Disable, head: Head) -> Finding:
        """Apply a function that disables one head to a copy of the model, and return its effect.

        Raises:
            UserError: If the function fails, or does not return None, a model or a context manager.
        """
        model = deepcopy(self.classifier.model)
        with _disabled(disable, model, head) as changed:
            try:
                trace = self._run(changed)
            except Exception as error:
                raise UserError(f"with {_place(head)} disabled, the model fails: {_in_short(error)}") from error
            return Finding(head, *self._judge(trace, head))

    def heads(self) -> list[Head]:
        """Return all heads, layer by layer."""
        return [head for heads in single_heads(self.classifier.layers, self.classifier.heads) for head in heads]

    def _projections(self) -> list[str]:
        """Return the name of each layer's output projection: the module that receives the heads' vectors."""
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

    def _run(self, model: Any) -> _Trace:
        """Run a model on the examples. Projections and layers are looked up by name."""
        trace = _Trace()
        name_of = {module: name for name, module in self.classifier.model.named_modules()}
        layers = dict.fromkeys(name_of[modules[0]] for modules in self.engine.skeleton.layers)

        def project(_module: nn.Module, args: Any, output: torch.Tensor) -> None:
            trace.contexts.append(args[0].detach().clone())
            trace.projected.append(output.detach().clone())

        def leave(_module: nn.Module, _args: Any, output: Any) -> None:
            trace.hidden.append((output[0] if isinstance(output, tuple) else output).detach().clone())

        with ExitStack() as hooks, torch.no_grad():
            for names, hook in ((dict.fromkeys(self.names), project), (layers, leave)):
                for name in names:
                    hooks.callback(model.get_submodule(name).register_forward_hook(hook).remove)
            trace.logits = model(**self.batch.inputs()).logits
        return trace

    def _judge(self, trace: _Trace, head: Head) -> tuple[Outcome, str]:
        layer = next((i for i in range(len(self.names)) if self._differs(trace, i)), None)
        if layer is None:
            if _same(trace.logits, self.intact.logits):
                return "has no effect", "all logits are unchanged"
            return "other", "no layer changes, but the logits do"
        before = self.intact.projected[layer][self.real]
        change = trace.projected[layer][self.real] - before
        if _same(trace.projected[layer][self.real], before):
            return "acts after the output projection", (
                f"the output of layer {layer + 1} changes, but that of its output projection does not"
            )
        size = f"{100 * float(change.norm() / before.norm()):.3g} % of its norm"
        within = [_share(change, matrix) for matrix in self.matrices[layer]]
        best = int(np.argmax(within))
        if layer == head[0] and within[head[1]] >= WITHIN:
            if not self._explains(trace, layer):
                return "other", f"the head changes as it should ({size}), but so do later layers"
            return "correct", self._replacement(trace, head)
        if within[best] >= WITHIN:
            return "disables another head", f"{_place((layer, best))} instead of {_place(head)} ({size})"
        heads = len(within)
        width = change.shape[1] // heads
        slices = [float((part**2).sum() / (change**2).sum()) for part in change.split(width, dim=1)[:heads]]
        fullest = int(np.argmax(slices))
        target = head if layer == head[0] else (layer, best)
        own = f"{100 * within[target[1]]:.1f} %"
        if slices[fullest] >= WITHIN:
            return "acts after the output projection", (
                f"{100 * slices[fullest]:.1f} % of the change is in dimensions {fullest * width + 1} to "
                f"{(fullest + 1) * width} of the projection's output in layer {layer + 1}, "
                f"{own} in the subspace of {_place(target)}"
            )
        return (
            "other",
            f"layer {layer + 1} changes ({size}), but only {own} of it is in the subspace of {_place(target)}",
        )

    def _differs(self, trace: _Trace, layer: int) -> bool:
        pairs = ((trace.projected, self.intact.projected), (trace.hidden, self.intact.hidden))
        return any(not _same(now[layer][self.real], before[layer][self.real]) for now, before in pairs)

    def _explains(self, trace: _Trace, layer: int) -> bool:
        """Return whether the change of one projection's output explains the logits."""
        calls = 0

        def overwrite(_module: nn.Module, _args: Any, output: torch.Tensor) -> torch.Tensor:
            nonlocal calls
            calls += 1
            return trace.projected[layer] if calls - 1 == self.names[:layer].count(self.names[layer]) else output

        handle = self.classifier.model.get_submodule(self.names[layer]).register_forward_hook(overwrite)
        try:
            with torch.no_grad():
                logits = self.classifier.model(**self.batch.inputs()).logits
        finally:
            handle.remove()
        return _close(trace.logits, logits)

    def _replacement(self, trace: _Trace, head: Head) -> str:
        """Describe the vectors that replace the head's output."""
        layer, number = head
        if _close(trace.logits, torch.from_numpy(ablate(self.engine, self.encoded, [frozenset({head})])[0])):
            return "uniform weights over the real tokens"
        matrix = self.matrices[layer][number]  # [size, width]
        context = self.intact.contexts[layer].unflatten(-1, (len(self.matrices[layer]), -1))[:, :, number]
        change = trace.projected[layer] - self.intact.projected[layer]
        vectors = context + torch.linalg.lstsq(matrix.T, change.flatten(0, 1).T).solution.T.view_as(context)
        slack = 1e-3 * float(context[self.real].abs().max())
        if float(vectors[self.real].abs().max()) <= slack:
            return "zero vectors"
        texts = [row[here] for row, here in zip(vectors, self.real, strict=True)]
        if any(float((text - text[0]).abs().max()) > slack for text in texts):
            return "other vectors at each token"
        if all(float((text[0] - texts[0][0]).abs().max()) <= slack for text in texts):
            return "one vector for all tokens of all texts, such as a mean"
        return "one vector for all tokens of a text, but not the mean over its real tokens"


def _same(now: torch.Tensor, before: torch.Tensor) -> bool:
    """Return whether two tensors are equal up to rounding."""
    return now.shape == before.shape and bool((now - before).abs().max() <= SAME * before.abs().max())


def _close(logits: torch.Tensor, expected: torch.Tensor) -> bool:
    """Return whether logits that were computed in two ways are equal up to rounding errors."""
    return bool((expected - logits).abs().max() <= 10 * SAME * expected.abs().max().clamp(min=1))


def _matrices(projection: nn.Module, heads: int) -> list[Float[torch.Tensor, "size width"]]:
    """Return the block of the output projection's matrix that each head's vectors are multiplied by."""
    with torch.no_grad():
        weight = getattr(projection, "weight")  # noqa: B009 - a tensor, which mypy cannot know
        width = weight.shape[1] if isinstance(projection, nn.Linear) else weight.shape[0]
        matrix = projection(torch.eye(width)) - projection(torch.zeros(1, width))
    return list(matrix.split(width // heads))


def _share(change: Float[torch.Tensor, "tokens width"], matrix: Float[torch.Tensor, "size width"]) -> float:
    """Return the fraction of a change's sum of squares that lies in the row space of a matrix."""
    basis = torch.linalg.qr(matrix.T.double()).Q
    whole = change.double()
    return float(((whole @ basis) ** 2).sum() / (whole**2).sum())


@contextmanager
def _disabled(disable: Disable, model: Any, head: Head) -> Iterator[Any]:
    """Yield the model with a head disabled, inside the context manager if the function returns one."""
    try:
        returned = disable(model, *head)
        is_manager = hasattr(returned, "__enter__") and hasattr(returned, "__exit__")
        if is_manager:
            returned.__enter__()
    except Exception as error:
        raise UserError(f"the function fails on {_place(head)}: {_in_short(error)}") from error
    if is_manager:
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
            "or None if it changes the model in place"
        )


def _place(head: Head) -> str:
    return f"layer {head[0] + 1} head {head[1] + 1}"


def _in_short(error: Exception) -> str:
    return one_line(f"{type(error).__name__}: {error}")[:300]


def summary(findings: Sequence[Finding]) -> list[str]:
    """Return a line for each outcome with the number of heads and the effect on the first of them."""
    lines = []
    for outcome in dict.fromkeys(finding.outcome for finding in findings):
        members = [finding for finding in findings if finding.outcome == outcome]
        if outcome == "correct":
            effects = dict.fromkeys(finding.effect for finding in members)
            details = "; ".join(f"{sum(member.effect == each for member in members)} with {each}" for each in effects)
        else:
            details = f"{_place(members[0].head)}: {members[0].effect}"
        lines.append(f"{outcome}: {len(members)} of {len(findings)} heads ({details})")
    return lines
