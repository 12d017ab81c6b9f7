"""Measures of attention maps: one streaming pass feeds the requested measure and all others that can join it.

Below them are measures without a task: of the bare encoder on texts of their own, or of the suite itself.
"""

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

from pydantic import PositiveInt

from bertsecrets.errors import NotApplicableError
from bertsecrets.measures.base.measure import Measure, MeasureOptions, Results, Run, Section
from bertsecrets.measures.base.needs import Resources
from bertsecrets.measures.base.observers import heads_without_numbers
from bertsecrets.measures.base.probe import check_attention
from bertsecrets.measures.registry import get_measure
from bertsecrets.models import attention, opening
from bertsecrets.models.alignment import Alignment, encode_words
from bertsecrets.models.attention import Observer, Pass
from bertsecrets.models.encoding import Encoded, cased, encode, special_ids
from bertsecrets.models.initialisations import get_initialisation
from bertsecrets.models.locations import ModelRef
from bertsecrets.models.opening import OpenModel
from bertsecrets.progress import progress
from bertsecrets.settings import Params
from bertsecrets.texts.glue import Split
from bertsecrets.texts.parsing import Parses, parse_pairs
from bertsecrets.types import Measurement


@dataclass(frozen=True)
class AttentionRun:
    """One pass over a task's rows, with everything that observers are made from.

    Args:
        tuned: the checkpoint.
        twin: the pretrained model, if the checkpoint can be compared with it.
        length: inputs are cut to this many word-pieces.
        padded_to: inputs are padded to this many tokens, and padding counts; None without padding.
    """

    run: Run
    rows: Split
    tuned: OpenModel
    twin: OpenModel | None
    length: int
    padded_to: int | None

    @property
    def shape(self) -> tuple[int, int, int]:
        """The numbers of examples, layers and heads."""
        return len(self.rows), self.tuned.layers, self.tuned.heads

    @property
    def special_ids(self) -> dict[str, int | None]:
        """The ids of the tokens that serve as [CLS] and [SEP]."""
        return special_ids(self.tuned.tokenizer)

    @cached_property
    def tokenizer(self) -> Any:
        """The checkpoint's tokenizer, without lower-casing if `cased` is set."""
        return cased(self.tuned.tokenizer) if self.run.options.cased else self.tuned.tokenizer

    @cached_property
    def encoded(self) -> Encoded:
        """The rows as token ids."""
        return encode(self.rows, self.tokenizer, self.length)

    @cached_property
    def alignment(self) -> Alignment:
        """The position of each token in its text."""
        rows = self.rows
        return encode_words(self.tokenizer, rows.sentence1, rows.sentence2, self.length)[1]

    @cached_property
    def parses(self) -> tuple[Parses, Parses | None]:
        """The words of both texts, tagged and parsed by the spaCy pipeline; kept between runs."""
        resources = self.run.resources
        return parse_pairs(self.rows.sentence1, self.rows.sentence2, resources.spacy, resources.kept / "parses")


class AttentionMeasure(Measure):
    """A measure of attention maps. `companions` are other measures that its pass feeds too, if they can join it."""

    class Options(MeasureOptions):
        """Choices that K19 leaves open, or that only its code makes.

        `rows` selects rows if not all are read: `drawn` at random, or the `first` of the file. `quoted` reads the file
        as K19's notebook does, which loses rows after a quotation mark. `cased` switches off the tokenizer's
        lower-casing. `max_length` cuts inputs to this many word-pieces instead of the number in the settings.
        """

        rows: Literal["drawn", "first"] = "drawn"
        quoted: bool = False
        cased: bool = False
        max_length: PositiveInt | None = None

    section: ClassVar[Section | None] = "attention"
    kernel: ClassVar[str] = "eager"
    common: ClassVar[bool] = True
    companions: ClassVar[tuple[str, ...]] = ("attention-change", "special-tokens")

    @abstractmethod
    def observer(self, view: AttentionRun) -> Observer:
        """Return the observer that a pass feeds for this measure.

        Raises:
            UserError: the measure is impossible on this model.
        """

    def check_model(self, classifier: OpenModel) -> None:
        """Check that the model's maps can be read, and are the ones it computes with."""
        check_attention(classifier)

    def joins(self, view: AttentionRun) -> bool:
        """Return whether this measure can join a pass that is made for another one."""
        return view.padded_to is None

    def padding(self, options: Any) -> int | None:
        """Return the number of tokens to which every input is padded, if padding counts; else None."""
        return None

    def most(self, settings: Params) -> int | None:
        """Return the number of examples whose maps are read."""
        return settings.attention.examples

    def rows(self, run: Run) -> Split:
        """Return the validation rows whose maps are read."""
        first = run.options.rows == "first"
        most = self.most(run.resources.settings)
        return run.resources.rows.split(run.subject.task, "dev", most, first=first, quoted=run.options.quoted)

    def shared_options(self, options: Any) -> dict[str, Any]:
        """Return the options that select inputs, which the measures of one pass share."""
        return {name: value for name, value in options.given().items() if name in AttentionMeasure.Options.model_fields}

    def options_in(self, view: "AttentionRun") -> Any:
        """Return the options of this measure in a pass that may be made for another one."""
        options = view.run.options
        return options if isinstance(options, self.Options) else self.check_options(self.shared_options(options))

    def degenerate(self, measurement: Measurement) -> str | None:
        """Return that some heads have no numbers on examples on which others have some."""
        return heads_without_numbers(measurement)

    def run(self, run: Run) -> Results:
        """Run one pass over the rows."""
        view = self._view(run)
        observers = {self.name: self.observer(view)}
        for name in self.companions:
            companion = get_measure(name)
            assert isinstance(companion, AttentionMeasure)
            if name != self.name and companion.joins(view):
                observers[name] = companion.observer(view)
        with progress(f"attention of {run.subject}", len(view.rows), "example") as shown:
            Pass(view.tuned, view.twin, view.padded_to).feed(view.encoded, list(observers.values()), shown.advance)
        return {name: observer.compute() for name, observer in observers.items()}, len(view.rows)

    def _view(self, run: Run) -> AttentionRun:
        length = run.options.max_length or run.resources.settings.attention.max_length
        tuned = run.open(self.kernel)
        padded_to = self.padding(run.options)
        if padded_to is not None and tuned.fit(padded_to) < padded_to:
            raise NotApplicableError(
                f"inputs cannot be padded to {padded_to} tokens: the model has positions for {tuned.fit(padded_to)}"
            )
        return AttentionRun(
            run=run,
            rows=self.rows(run),
            tuned=tuned,
            twin=self._twin(run, tuned),
            length=tuned.fit(min(length, padded_to or length)),
            padded_to=padded_to,
        )

    def _twin(self, run: Run, tuned: OpenModel) -> OpenModel | None:
        """Return the pretrained model, if the subject differs from it and has the same shape.

        Raises:
            UserError: this measure needs it, but the shapes differ.
        """
        if not self.compares and not get_initialisation(run.subject.initialisation).trains:
            return None
        twin = opening.open_classifier(run.base, run.task, "untrained", run.subject.seed)
        problem = attention.same_shape(tuned, twin)
        if problem is None:
            return twin.to(run.resources.device)
        if self.compares:
            raise NotApplicableError(f"{run.folder} cannot be compared with {run.subject.model}: {problem}")
        return None


# ---------------------------------------------------------------------- without a task


class EncoderMeasure(Measure):
    """A measure of the bare encoder, without task, training or seed."""

    section: ClassVar[Section | None] = "attention"
    kernel: ClassVar[str] = "eager"
    on_task: ClassVar[bool] = False
    seedless: ClassVar[bool] = True

    @abstractmethod
    def fingerprint(self, run: Run) -> str:
        """Return a digest of the texts that are measured."""

    def origin(self, resources: Resources) -> str | None:
        """Return the name of the file, folder or publication that the texts come from, if there is one."""
        return None

    def data_facts(self, run: Run) -> dict[str, Any]:
        """Return origin and fingerprint of the measured texts, for the provenance."""
        return {
            "data": self.origin(run.resources),
            "data_fingerprint": self.fingerprint(run),
            "official_data": True,
            "limit": None,
        }

    def degenerate(self, measurement: Measurement) -> str | None:
        """Return that some heads have no numbers on examples on which others have some."""
        return heads_without_numbers(measurement)

    def check_model(self, classifier: OpenModel) -> None:
        """Check that the model's maps can be read, and are the ones it computes with."""
        check_attention(classifier)

    def open_encoder(self, run: Run) -> OpenModel:
        """Open the encoder, on the device."""
        return opening.open_encoder(ModelRef.in_folder(run.checkpoint)).to(run.resources.device)


class SuiteMeasure(EncoderMeasure):
    """A measure of the suite's own parts, without any model."""

    reads_model: ClassVar[bool] = False
