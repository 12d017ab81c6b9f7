"""Heads that follow frame-semantic relations (K19 section 4.2, figure 3; claims B).

For each head, the measure is the maximum weight over all token pairs (core element -> target) of a sentence, averaged
over sentences. K19's code deviates from the paper in two ways: it pairs the k-th element token with the k-th target
token, and it uses the weights from target to core element. These variants are measured as well.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bertsecrets.errors import UserError
from bertsecrets.measures.base import EncoderMeasure, MeasureContext, Resources, Results
from bertsecrets.measures.base.figures import Figure, PaperFigure, RankedHeads, Repeats, published_and_measured
from bertsecrets.measures.base.needs import FRAMES_ADVICE, FrameSentences
from bertsecrets.measures.base.observers import PairObserver
from bertsecrets.measures.registry import measure
from bertsecrets.models.alignment import Alignment, all_pairs, encode_words, zipped_pairs
from bertsecrets.models.attention import Pass
from bertsecrets.progress import progress
from bertsecrets.store.files import file_sha256, folder_digest
from bertsecrets.texts.framenet import FrameSentence, sentences_digest
from bertsecrets.texts.framenet_xml import open_frames
from bertsecrets.texts.published import published_figures
from bertsecrets.types import Measurement


@measure("frame-heads", title="attention from core frame elements to their target", source="K19 4.2", version=3)
class FrameHeads(EncoderMeasure):
    """Values of shape [layer, head]: `max_weight` (the paper's definition), `max_weight_reverse`, `max_weight_zipped`
    and `max_weight_zipped_reverse`. The value `sentences` is a digest of the sentences.

    Samples: the four weights for each sentence, under the same names and of shape [sentence, layer, head].
    """

    needs = (FrameSentences(),)
    paper = PaperFigure(
        "3",
        "Heads that attend along semantic frames",
        "The largest weight between a frame's core element and its target, averaged over sentences.",
    )

    def fingerprint(self, context: MeasureContext) -> str:
        """Return a digest of the sentence file, or of all XML files in the folder. Their location has no effect."""
        frames = context.resources.frames
        if frames is None:
            raise UserError(FRAMES_ADVICE)
        return file_sha256(frames) if frames.is_file() else folder_digest(frames, "*.xml")

    def origin(self, resources: Resources) -> str | None:
        return resources.frames.name if resources.frames else None

    def data_facts(self, context: MeasureContext) -> dict[str, Any]:
        """Return the origin and fingerprint of the sentences, and whether they are synthetic."""
        frames = context.resources.frames
        assert frames is not None
        made_up = frames.is_file() and any(sentence.made_up for sentence in open_frames(frames))
        return {**super().data_facts(context), "official_data": not made_up, "made_up_data": made_up}

    def run(self, context: MeasureContext) -> Results:
        assert context.resources.frames is not None
        sentences = open_frames(context.resources.frames)
        encoder = self.open_encoder(context)
        length = encoder.fit(context.resources.settings.attention.max_length)
        encoded, alignment = encode_words(encoder.tokenizer, [s.sentence for s in sentences], max_length=length)
        observer = frame_observer(alignment, sentences, encoder.layers, encoder.heads)
        with progress(f"frames of {context.subject.model}", len(encoded), "sentence") as shown:
            Pass(encoder).feed(encoded, [observer], shown.advance)
        values, samples = observer.compute()
        return {self.name: ({**values, "sentences": sentences_digest(sentences)}, samples)}, len(encoded)

    def figures(self, measurement: Measurement) -> Iterator[Figure]:
        sample = measurement.sample("max_weight")
        yield RankedHeads(
            "Maximum attention from core frame elements to their target, with 95 % interval over sentences: {who}",
            sample.reshape(len(sample), -1).astype(np.float64),
            lambda mean: mean,
            heads=sample.shape[2],
            unit="maximum weight",
        )

    def beside_paper(self, seeds: Repeats) -> Iterator[Figure]:
        theirs, ours = published_figures()["fig3_frame_notebook"], seeds.mean("max_weight")
        yield from published_and_measured(theirs, ours, "maximum weight", ("K19, figure 3", "{who}"))


def frame_observer(alignment: Alignment, sentences: Sequence[FrameSentence], layers: int, heads: int) -> PairObserver:
    """Return the observer for a pass over the sentences. They must be encoded with `encode_words`, in this order."""
    elements = alignment.mark([s.core_elements for s in sentences])
    targets = alignment.mark([[s.target] for s in sentences])
    every, zipped = all_pairs(elements, targets), zipped_pairs(elements, targets)
    relations = {
        "max_weight": every,
        "max_weight_reverse": every.reverse,
        "max_weight_zipped": zipped,
        "max_weight_zipped_reverse": zipped.reverse,
    }
    return PairObserver(len(sentences), layers, heads, relations)
