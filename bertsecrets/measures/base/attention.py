"""Measures that read attention maps: one streaming pass feeds the one asked for and all that need nothing more."""

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from tqdm.auto import tqdm

from bertsecrets.errors import UserError
from bertsecrets.measures.base.measure import Measure, Results, Run
from bertsecrets.measures.registry import get_measure
from bertsecrets.models import loading
from bertsecrets.models.alignment import Alignment, encode_words
from bertsecrets.models.attention import Observer, Pass
from bertsecrets.models.encoding import Encoded, encode
from bertsecrets.models.loading import OpenModel
from bertsecrets.settings import Params
from bertsecrets.texts.glue import Split
from bertsecrets.texts.parsing import Parses, parse_pairs


@dataclass(frozen=True)
class AttentionRun:
    """One pass over a task's rows, with what observers are made from.

    `tuned` is the checkpoint, `twin` the pretrained model beside it, where there is one to compare with; `length` is
    where inputs are cut, in word-pieces, and `padded_to` what each is padded to, where padding counts.
    """

    run: Run
    rows: Split
    tuned: OpenModel
    twin: OpenModel | None
    length: int
    padded_to: int | None

    @property
    def shape(self) -> tuple[int, int, int]:
        """Numbers of examples, layers and heads."""
        return len(self.rows), self.tuned.layers, self.tuned.heads

    @property
    def special_ids(self) -> dict[str, int | None]:
        """The ids of the tokens that play [CLS] and [SEP]."""
        return loading.special_ids(self.tuned.tokenizer)

    @cached_property
    def encoded(self) -> Encoded:
        """The rows as token ids."""
        return encode(self.rows, self.tuned.tokenizer, self.length)

    @cached_property
    def alignment(self) -> Alignment:
        """Where each token stands in its text."""
        rows = self.rows
        return encode_words(self.tuned.tokenizer, rows.sentence1, rows.sentence2, self.length)[1]

    @cached_property
    def parses(self) -> tuple[Parses, Parses | None]:
        """The words of both texts, by the spaCy pipeline; kept between runs."""
        resources = self.run.resources
        return parse_pairs(self.rows.sentence1, self.rows.sentence2, resources.spacy, resources.kept / "parses")


class AttentionMeasure(Measure):
    """A measure of attention maps. `companions` are those that its pass feeds too, where they can join it."""

    common: ClassVar[bool] = True
    companions: ClassVar[tuple[str, ...]] = ("attention-change", "special-tokens")

    @abstractmethod
    def observer(self, view: AttentionRun) -> Observer:
        """Return what a pass feeds for this measure.

        Raises:
            UserError: the model cannot be measured so.
        """

    def joins(self, view: AttentionRun) -> bool:
        """Whether this measure, not asked for, can take part in a pass that another one needs."""
        return view.padded_to is None

    def padding(self, options: Any) -> int | None:
        """Return how many tokens every input is padded to, where the maps of padding tokens count; else None."""
        return None

    def own_settings(self, settings: Params) -> dict[str, Any]:
        """Return which inputs maps are read on."""
        return settings.attention.model_dump()

    def run(self, run: Run) -> Results:
        """Run one pass over the rows."""
        view = self._view(run)
        observers = {self.name: self.observer(view)}
        for name in self.companions:
            companion = get_measure(name)
            assert isinstance(companion, AttentionMeasure)
            if name != self.name and companion.joins(view):
                observers[name] = companion.observer(view)
        with tqdm(total=len(view.rows), desc=f"attention of {run.subject}", unit="example") as bar:
            Pass(view.tuned, view.twin, view.padded_to).feed(view.encoded, list(observers.values()), bar.update)
        return {name: observer.compute() for name, observer in observers.items()}, len(view.rows)

    def _view(self, run: Run) -> AttentionRun:
        settings = run.resources.settings.attention
        tuned = run.open("eager")
        padded_to = self.padding(run.options)
        if padded_to is not None and tuned.fit(padded_to) < padded_to:
            raise UserError(
                f"--padded-to {padded_to} is more than the {tuned.fit(padded_to)} tokens {run.folder} can take"
            )
        return AttentionRun(
            run=run,
            rows=run.rows.head(settings.examples),
            tuned=tuned,
            twin=self._twin(run, tuned),
            length=tuned.fit(min(settings.max_length, padded_to or settings.max_length)),
            padded_to=padded_to,
        )

    def _twin(self, run: Run, tuned: OpenModel) -> OpenModel | None:
        """The pretrained model, where the subject differs from it and has its shape."""
        if run.subject.initialisation == "untrained" and not self.compares:
            return None
        twin = loading.open_classifier(run.base, run.task, "untrained", run.subject.seed)
        problem = loading.same_shape(tuned, twin)
        if problem is None:
            return twin.to(run.resources.device)
        if self.compares:
            raise UserError(f"{run.folder} cannot be compared with {run.subject.model}: {problem}")
        return None
