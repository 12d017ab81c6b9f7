"""Checks that a model can be measured. They use two short examples and run before any training or measuring."""

import functools
from collections.abc import Callable

import torch

from bertsecrets.errors import NotApplicableError, UserError
from bertsecrets.measures.base.measure import Measure
from bertsecrets.measures.registry import get_measure, measure_names
from bertsecrets.models.attention import Tap
from bertsecrets.models.consistency import check_kernels, check_logits
from bertsecrets.models.encoding import Encoded, collate, predict, special_ids, tokenize
from bertsecrets.models.locations import ModelRef
from bertsecrets.models.opening import OpenModel, open_classifier
from bertsecrets.texts.tasks import TASKS

FIRST_TEXTS = ("A few words.", "He was becoming agitated, and she asked him to wait for a while.")
SECOND_TEXTS = ("They are few.", "No.")


def probe_inputs(model: OpenModel) -> Encoded:
    """Return two examples of different lengths, so that the shorter example is padded."""
    return tokenize(model.tokenizer, FIRST_TEXTS, SECOND_TEXTS, model.fit(64))[0]


class ModelChecks:
    """Checks of a model, with cached results: general checks first, then the checks of each measure.

    `bertsecrets doctor` reports the results, and each run performs the checks before training or measuring.
    """

    def __init__(self) -> None:
        self._refusals: dict[object, UserError | None] = {}

    def refusal(self, measure: Measure, open_with: Callable[[str], OpenModel]) -> UserError | None:
        """Return why a measure does not support the model, or None if it does.

        `open_with` opens the trained or untrained classifier with a given attention implementation.
        """
        opened = functools.cache(open_with)  # shared by the checks of this call
        own = (measure.kernel, type(measure).check_model)
        return self._result("classifier", lambda: check_classifier(opened)) or self._result(
            own, lambda: measure.check_model(opened(measure.kernel))
        )

    def _result(self, name: object, check: Callable[[], None]) -> UserError | None:
        if name not in self._refusals:
            try:
                check()
            except NotApplicableError as error:
                self._refusals[name] = error.with_traceback(None)
            except UserError as error:  # not cached, because only this checkpoint may have diverged
                return error.with_traceback(None)
            else:
                self._refusals[name] = None
        return self._refusals[name]


def refusals(ref: ModelRef) -> dict[str, str | None]:
    """For each measure that uses a model, return why the measure does not support this model, or None if it does."""

    @functools.cache
    def opened(kernel: str) -> OpenModel:
        return open_classifier(ref, TASKS["rte"], "untrained", attention=kernel)

    checks = ModelChecks()
    measures = (measure for measure in map(get_measure, measure_names()) if measure.reads_model)
    errors = {measure.name: checks.refusal(measure, opened) for measure in measures}
    return {name: None if error is None else str(error) for name, error in errors.items()}


def check_classifier(open_with: Callable[[str], OpenModel]) -> None:
    """Check that a model's logits do not depend on the batch, the training mode or the attention kernel."""
    logits = {}
    for kernel in ("eager", "sdpa"):
        opened = open_with(kernel)
        encoded = probe_inputs(opened)
        check_logits(opened.model, encoded)
        logits[kernel] = torch.from_numpy(predict(opened.model, encoded))
    check_kernels(type(opened.model).__name__, **logits)


def check_attention(model: OpenModel) -> bool:
    """Check that the model's maps can be read and are valid. Return whether tokens attend to later tokens."""
    device, ahead = next(model.model.parameters()).device, []
    batch = collate(probe_inputs(model), [0, 1]).to(device)
    Tap(model.model, model.layers).run(batch, lambda layer, maps: ahead.append(bool(torch.triu(maps, 1).any())))
    return any(ahead)


def check_special_tokens(model: OpenModel) -> None:
    """Check that the model's inputs contain [CLS] or [SEP]."""
    here = {token for ids in probe_inputs(model).input_ids for token in ids}
    if not here & {*special_ids(model.tokenizer).values()}:
        raise NotApplicableError("its tokenizer does not add [CLS] or [SEP] to inputs")
