"""What a model reads under each combination of choices: combinations that come to the same inputs are measured once."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from bertsecrets.errors import NotApplicableError
from bertsecrets.lab.specifications import INPUTS, Choice, Way, combinations
from bertsecrets.measures.base import AttentionMeasure, Resources, Run
from bertsecrets.measures.registry import get_measure
from bertsecrets.models import configuration
from bertsecrets.models.encoding import cased, encode
from bertsecrets.models.locations import ModelRef
from bertsecrets.store.files import digest
from bertsecrets.texts.tasks import task
from bertsecrets.types import Subject


class Inputs:
    """The inputs of a model on a task, by the choices that say which they are."""

    def __init__(self, resources: Resources, model: ModelRef, task_name: str):
        self.resources, self.model, self.task = resources, model, task(task_name)
        self._digests: dict[tuple[str, ...], str | None] = {}

    def digest(self, ways: Mapping[str, Way]) -> str | None:
        """Return what identifies the inputs in the ways given; None where these do not exist for these data."""
        own = {name: way for name, way in ways.items() if name in INPUTS}
        key = tuple(way.name for way in own.values())
        if key not in self._digests:
            self._digests[key] = self._made(
                {name: value for way in own.values() for name, value in way.options.items()}
            )
        return self._digests[key]

    def _made(self, options: dict[str, Any]) -> str | None:
        measure = get_measure("special-tokens")
        assert isinstance(measure, AttentionMeasure)
        chosen = measure.check_options(options)
        try:
            rows = measure.rows(Run(Subject("", self.task.name), chosen, self.resources))
        except NotApplicableError:
            return None
        tokenizer = cased(self._tokenizer) if chosen.cased else self._tokenizer  # type: ignore[attr-defined]
        length = chosen.max_length or self.resources.settings.attention.max_length  # type: ignore[attr-defined]
        encoded = encode(rows, tokenizer, min(length, tokenizer.model_max_length))
        return digest([encoded.input_ids, encoded.segments])

    @cached_property
    def _tokenizer(self) -> Any:
        return configuration.open_tokenizer(self.model)

    def idle(self, choices: Sequence[Choice]) -> list[str]:
        """Return those choices that change no input of this task, however the others are made, or are impossible."""
        of_inputs = [choice for choice in choices if choice.name in INPUTS]
        found = []
        for choice in of_inputs:
            alike = [
                self.digest({**ways, choice.name: choice.other}) in (None, self.digest(ways))
                for ways in combinations(of_inputs)
                if ways[choice.name] is choice.ours and self.digest(ways) is not None
            ]
            if all(alike):
                found.append(choice.name)
        if self.task.sentence2 is None and any(choice.name == "separators" for choice in choices):
            found.append("separators")  # a single text has a single one
        return found
