"""Checks that a classifier's logits are the same with and without padding, and in training and evaluation mode.

A model that fails a check is rejected. Otherwise, its measurements could depend on how examples are batched, or the
measured model could differ from the trained model.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch.overrides import TorchFunctionMode

from bertsecrets.errors import MisreadError, NotApplicableError, UserError, first_line, ran_out
from bertsecrets.models.encoding import Encoded, check_finite, collate

CHECKED_EXAMPLES = 8  # number of examples, spread over all lengths
# Maximum difference between logits, relative to the largest logit. Rounding in float32 causes less than 1e-6, and a
# missing mask causes 1e-2 or more (MiniLM, with and without fine-tuning). Rounding in bfloat16 can cause a few percent.
LOGIT_TOLERANCE, LOGIT_TOLERANCE_BF16 = 1e-3, 0.1
SMALLEST_SCALE = 0.1  # lower bound of the scale, because rounding errors do not become smaller with the logits

Logits = Float[torch.Tensor, "rows outputs"]
DROPOUTS = (F.dropout, torch.dropout, F.alpha_dropout, F.dropout1d, F.dropout2d)


class WithoutDropout(TorchFunctionMode):
    """Disable dropout and layer drop inside the `with` block, even in training mode."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Call the function, with dropout disabled."""
        kwargs = kwargs or {}
        if func in DROPOUTS:
            return args[0] if args else kwargs["input"]
        if func is F.scaled_dot_product_attention and len(args) < 5:
            return func(*args, **{**kwargs, "dropout_p": 0.0})
        if func is torch.rand:  # random numbers that models compare with the layer drop rate
            return torch.ones(*args, **kwargs)
        return func(*args, **kwargs)


@contextmanager
def explain_failure(model: Any) -> Iterator[None]:
    """Turn errors that the model's code raises inside the `with` block into one-line errors."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # any architecture's code may raise anything
        if ran_out(error):
            raise
        name, why = type(model).__name__, first_line(error)
        raise NotApplicableError(f"{name} cannot classify texts as this suite encodes them: {why}") from error


def check_logits(
    model: Any,
    encoded: Encoded,
    forward: Callable[[list[int]], Logits] | None = None,
    *,
    rounded: bool = False,
) -> None:
    """Check that padding does not change the logits and that, without dropout, training mode does not either.

    `forward` computes the logits of some examples in the same way as a training step does. By default, the model is run
    in training mode. `rounded` says whether `forward` reads features that were computed in bfloat16.
    """
    rows = encoded.spread(CHECKED_EXAMPLES)
    device = next(model.parameters()).device
    batch = collate(encoded, rows).to(device)
    with explain_failure(model), torch.no_grad():
        logits, again = (model.eval()(**batch.inputs()).logits.float() for _ in range(2))
        check_finite(logits)
        name, classes = type(model).__name__, model.config.num_labels
        if logits.shape != (len(rows), classes):
            raise UserError(
                f"{name} returns outputs of shape {[*logits.shape]} for {len(rows)} examples and {classes} classes: "
                "correct num_labels in config.json or the classifier"
            )
        if not largest_difference(again, logits) <= LOGIT_TOLERANCE * largest(logits):
            raise MisreadError(
                f"{name} computes different logits each time, even in evaluation mode: remove code that draws random "
                "numbers or counts calls"
            )
        check_alone(model, encoded, rows, logits)
        try:
            with WithoutDropout():
                trained = forward(rows) if forward else model.train()(**batch.inputs()).logits
        except Exception as error:  # a model that fails in training mode can be measured, but not trained
            if forward or ran_out(error):
                raise
            trained = logits
        finally:
            model.eval()
    difference = largest_difference(trained.float(), logits)
    how = "in training mode and in evaluation mode, even without dropout"
    tolerance, advice = LOGIT_TOLERANCE, ""
    if rounded:
        how, tolerance = "from features that are rounded to bfloat16", LOGIT_TOLERANCE_BF16
        advice = ": set the option `precision` to float32"
    if not difference <= tolerance * largest(logits):
        raise MisreadError(
            f"{name} computes different logits {how} (the largest difference is {difference:.2g}), so the model that "
            f"is measured would not be the model that was trained{advice}"
        )


def check_alone(model: Any, encoded: Encoded, rows: list[int], logits: Logits) -> None:
    """Check that padding is masked: without the rest of its batch, an example must still have the same `logits`."""
    device = next(model.parameters()).device
    for row, together in zip(rows, logits, strict=True):
        with torch.inference_mode():
            alone = model(**collate(encoded, [row]).to(device).inputs()).logits.float()
        moved = largest_difference(alone[0], together.to(device))
        if not moved <= LOGIT_TOLERANCE * largest(logits):
            raise MisreadError(
                f"a logit changes by {moved:.2g} if its example is scored alone instead of in a batch, because the "
                "model does not mask padding, or mixes the examples of a batch: correct its code or configuration"
            )


def check_kernels(name: str, eager: Logits, sdpa: Logits) -> None:
    """Check that eager attention, which exposes maps, and SDPA, which is faster, give the same logits."""
    difference = largest_difference(eager, sdpa)
    if not difference <= LOGIT_TOLERANCE * largest(eager):
        raise MisreadError(
            f"{name} computes different logits with eager attention and with SDPA (the largest difference is "
            f"{difference:.2g}): maps are read with eager attention, but scores are computed with SDPA, so the maps "
            "and the scores would describe different models"
        )


def largest_difference(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return the largest absolute difference between two tensors, or NaN if one of them is not finite."""
    return float((one - other).abs().max())


def largest(logits: torch.Tensor) -> float:
    """Return the largest absolute logit, or `SMALLEST_SCALE` if that is larger. Tolerances are relative to it."""
    return max(SMALLEST_SCALE, float(logits.abs().max()))
