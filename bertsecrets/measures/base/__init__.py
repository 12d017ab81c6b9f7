"""The parts of measures: base classes for each kind, requirements, figures."""

from bertsecrets.measures.base.ablation import AblationMeasure, AblationOptions
from bertsecrets.measures.base.attention import AttentionMeasure, AttentionRun
from bertsecrets.measures.base.encoder import EncoderMeasure, SuiteMeasure
from bertsecrets.measures.base.measure import Measure, MeasureOptions, Results, Run
from bertsecrets.measures.base.resources import Resources

__all__ = [
    "AblationMeasure",
    "AblationOptions",
    "AttentionMeasure",
    "AttentionRun",
    "EncoderMeasure",
    "Measure",
    "MeasureOptions",
    "Resources",
    "Results",
    "Run",
    "SuiteMeasure",
]
