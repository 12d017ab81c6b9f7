"""Base class for measures of attention maps. Measures that read the same inputs share a single streaming pass.

This module also contains base classes for measures without a task. Such measures either run the bare encoder on texts
that are not rows of a task, or use no model at all.
"""

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

from pydantic import PositiveInt

from bertsecrets.errors import NotApplicableError
from bertsecrets.measures.base.measure import Measure, MeasureContext, MeasureOptions, Results, Section
from bertsecrets.measures.base.needs import Resources
from bertsecrets.measures.base.probe import check_attention
from bertsecrets.measures.registry import get_measure
from bertsecrets.models import opening
from bertsecrets.models.alignment import Alignment, encode_words
from bertsecrets.models.attention import Observer, Pass
from bertsecrets.models.encoding import Encoded, cased, encode, special_ids
from bertsecrets.models.initialisations import get_initialisation
from bertsecrets.models.layers import size_difference
from bertsecrets.models.locations import ModelRef
from bertsecrets.models.opening import OpenModel
from bertsecrets.progress import progress
from bertsecrets.texts.glue import Split
from bertsecrets.texts.parsing import Parse, parse_pairs


@dataclass(frozen=True)
class AttentionRun:
    """The data and models for one pass over a task's rows. Observers are created from them.

    Args:
        tuned: The model loaded from the measured checkpoint.
        twin: The pretrained model, or None if the checkpoint cannot be compared with it.
        length: Maximum number of word-pieces. Longer inputs are truncated.
        padded_to: Number of tokens to which inputs are padded, with padding included in the maps. If None, inputs are
            not padded.
    """

    context: MeasureContext
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
        """The ids of the tokens that serve as [CLS] and [SEP]."""
        return special_ids(self.tuned.tokenizer)

    @cached_property
    def tokenizer(self) -> Any:
        """The checkpoint's tokenizer. If `cased` is set, the tokenizer does not lower-case texts."""
        return cased(self.tuned.tokenizer) if self.context.options.cased else self.tuned.tokenizer

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
    def parses(self) -> tuple[list[Parse], list[Parse] | None]:
        """The words of the first and second texts, tagged and parsed by spaCy and cached between runs."""
        resources = self.context.resources
        return parse_pairs(self.rows.sentence1, self.rows.sentence2, resources.spacy, resources.kept / "parses")


class MapMeasure(Measure):
    """A measure of a model's attention maps."""

    section: ClassVar[Section | None] = "attention"
    kernel: ClassVar[str] = "eager"
    axes: ClassVar[tuple[str, ...]] = ("layer", "head")

    def check_model(self, classifier: OpenModel) -> None:
        """Check that the model's maps can be read, and that their rows are distributions over the input's tokens."""
        check_attention(classifier)


class AttentionMeasure(MapMeasure):
    """A measure of attention maps on a task's rows. If possible, the measures in `companions` run in the same pass."""

    class Options(MeasureOptions):
        """Options for details that the paper does not specify, or that only the paper's code specifies.

        If a task has more rows than the limit, `rows` selects either a random sample (`drawn`) or the first rows of the
        file (`first`). `quoted` parses the file as K19's notebook does, which loses the rows after a quotation mark.
        `cased` disables lower-casing in the tokenizer. `max_length` overrides the setting for the maximum number of
        word-pieces.
        """

        rows: Literal["drawn", "first"] = "drawn"
        quoted: bool = False
        cased: bool = False
        max_length: PositiveInt | None = None

    common: ClassVar[bool] = True
    companions: ClassVar[tuple[str, ...]] = ("attention-change", "special-tokens")

    @abstractmethod
    def observer(self, view: AttentionRun) -> Observer:
        """Return the observer that processes the maps for this measure.

        Raises:
            UserError: the measure cannot be computed for this model.
        """

    def joins(self, view: AttentionRun) -> bool:
        """Return whether this measure can run in the same pass as another measure."""
        return view.padded_to is None and (view.twin is not None or not self.compares)

    def rows(self, context: MeasureContext) -> Split:
        options, resources = context.options, context.resources
        first, most = options.rows == "first", self.most(resources.settings)
        return resources.rows.split(context.subject.task, "dev", most, first=first, quoted=options.quoted)

    def shared_options(self, options: Any) -> dict[str, Any]:
        """Return the options that determine the inputs. All measures in a pass share these options."""
        return {name: value for name, value in options.given().items() if name in AttentionMeasure.Options.model_fields}

    def options_in(self, view: "AttentionRun") -> Any:
        """Return this measure's options. If another measure started the pass, only `shared_options` are given."""
        options = view.context.options
        return options if isinstance(options, self.Options) else self.check_options(self.shared_options(options))

    def run(self, context: MeasureContext) -> Results:
        """Run one pass over the rows."""
        view = self._view(context)
        observers = {self.name: self.observer(view)}
        for name in self.companions:
            companion = get_measure(name)
            assert isinstance(companion, AttentionMeasure)
            if name != self.name and companion.joins(view):
                observers[name] = companion.observer(view)
        with progress(f"attention of {context.measured}", len(view.rows), "example") as shown:
            Pass(view.tuned, view.twin, view.padded_to).feed(view.encoded, list(observers.values()), shown.advance)
        return {name: observer.compute() for name, observer in observers.items()}, len(view.rows)

    def _view(self, context: MeasureContext) -> AttentionRun:
        length = context.options.max_length or context.resources.settings.attention.max_length
        tuned = context.open(self.kernel)
        padded_to = getattr(context.options, "padded_to", None)
        if padded_to is not None and tuned.fit(padded_to) < padded_to:
            raise NotApplicableError(
                f"inputs cannot be padded to {padded_to} tokens: the model accepts at most {tuned.fit(padded_to)}"
            )
        return AttentionRun(
            context=context,
            rows=self.rows(context),
            tuned=tuned,
            twin=self._twin(context, tuned),
            length=tuned.fit(min(length, padded_to or length)),
            padded_to=padded_to,
        )

    def _twin(self, context: MeasureContext, tuned: OpenModel) -> OpenModel | None:
        """Return the pretrained model, or None if the subject was not trained or differs from that model in size."""
        own = context.folder is not None and str(context.folder) == context.base.path  # no pretrained model was given
        if not self.compares and (own or not get_initialisation(context.subject.initialisation).trains):
            return None
        twin = opening.open_classifier(context.base, context.task, "untrained", context.subject.seed)
        problem = size_difference(tuned.model.config, twin.model.config)
        if problem is None:
            return twin.to(context.resources.device)
        if self.compares:
            raise NotApplicableError(f"{context.measured} cannot be compared with {context.subject.model}: {problem}")
        return None


# ---------------------------------------------------------------------- without a task


class EncoderMeasure(MapMeasure):
    """A measure of the bare encoder, independent of task, training and seed."""

    on_task: ClassVar[bool] = False
    seedless: ClassVar[bool] = True

    @abstractmethod
    def fingerprint(self, context: MeasureContext) -> str:
        """Return a digest of the measured texts."""

    def origin(self, resources: Resources) -> str | None:
        """Return the name of the texts' source (a file, folder or publication), or None if the source has no name."""
        return None

    def data_facts(self, context: MeasureContext) -> dict[str, Any]:
        """Return the origin and fingerprint of the measured texts for the provenance record."""
        return {
            "data": self.origin(context.resources),
            "data_fingerprint": self.fingerprint(context),
            "official_data": True,
            "limit": None,
        }

    def open_encoder(self, context: MeasureContext) -> OpenModel:
        """Open the encoder and move it to the device."""
        return opening.open_encoder(ModelRef.in_folder(context.checkpoint)).to(context.resources.device)


class SuiteMeasure(EncoderMeasure):
    """A measure that uses no model, but only data that the suite contains."""

    section: ClassVar[Section | None] = None
    reads_model: ClassVar[bool] = False
    axes: ClassVar[tuple[str, ...]] = ()
