"""The base classes of measures, and modules for their charts, requirements, observers and checks."""

from bertsecrets.measures.base.ablation_measure import AblationMeasure, AblationOptions
from bertsecrets.measures.base.attention_measure import AttentionMeasure, AttentionRun, EncoderMeasure, SuiteMeasure
from bertsecrets.measures.base.measure import Measure, MeasureContext, MeasureOptions, Results
from bertsecrets.measures.base.needs import Resources

__all__ = [
    "AblationMeasure",
    "AblationOptions",
    "AttentionMeasure",
    "AttentionRun",
    "EncoderMeasure",
    "Measure",
    "MeasureContext",
    "MeasureOptions",
    "Resources",
    "Results",
    "SuiteMeasure",
]
