"""What measures are made from: the kinds of measure, what they need, what their figures show."""

from bertsecrets.measures.base.ablation import AblationMeasure
from bertsecrets.measures.base.attention import AttentionMeasure, AttentionRun
from bertsecrets.measures.base.encoder import EncoderMeasure, SuiteMeasure
from bertsecrets.measures.base.measure import Measure, MeasureOptions, Results, Run
from bertsecrets.measures.base.resources import Resources

__all__ = [
    "AblationMeasure",
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
