"""Measures without a task: of the bare encoder on their own texts, or of the suite itself."""

from abc import abstractmethod
from typing import Any, ClassVar

from bertsecrets.measures.base.measure import Measure, Run
from bertsecrets.measures.base.observers import heads_without_numbers
from bertsecrets.measures.base.probe import check_attention
from bertsecrets.measures.base.resources import Resources
from bertsecrets.models import loading
from bertsecrets.models.loading import OpenModel
from bertsecrets.models.locations import ModelRef
from bertsecrets.settings import Params
from bertsecrets.types import Measurement


class EncoderMeasure(Measure):
    """A measure of the bare encoder, without task, training or seed."""

    on_task: ClassVar[bool] = False
    seedless: ClassVar[bool] = True

    @abstractmethod
    def fingerprint(self, run: Run) -> str:
        """Return a digest of the texts that are measured."""

    @abstractmethod
    def origin(self, resources: Resources) -> str | None:
        """Return the name of the source of the texts, if any."""

    def data_facts(self, run: Run) -> dict[str, Any]:
        """Return origin and fingerprint of the measured texts, for the provenance."""
        return {
            "data": self.origin(run.resources),
            "data_fingerprint": self.fingerprint(run),
            "official_data": True,
            "limit": None,
        }

    def own_settings(self, settings: Params) -> dict[str, Any]:
        """Return the settings that say where inputs are cut."""
        return settings.attention.model_dump()

    def degenerate(self, measurement: Measurement) -> str | None:
        """Return that some heads have no numbers where others have."""
        return heads_without_numbers(measurement)

    def check_model(self, classifier: OpenModel) -> None:
        """Make sure that the model's maps can be read, and are those that it computes with."""
        check_attention(classifier)

    def open_encoder(self, run: Run) -> OpenModel:
        """Open the encoder, on the device."""
        return loading.open_encoder(ModelRef.in_folder(run.checkpoint)).to(run.resources.device)


class SuiteMeasure(EncoderMeasure):
    """A measure of the suite's own parts, without any model."""

    reads_model: ClassVar[bool] = False
