"""The seven GLUE tasks in K19: columns, label names, metric, official row and class counts.

Task details are defined only in this module. Labels are stored by name. The order of `labels` is that of the classes in
a model's output and on the hub (`nyu-mll/glue`).
"""

import re
from dataclasses import dataclass

from bertsecrets.errors import UserError, near_matches
from bertsecrets.types import ALL_TASKS as ALL_TASKS

# Other common names of classes, without their negation and in lower-case letters only.
SYNONYMS = {
    "entail": "entailment", "entails": "entailment", "entailed": "entailment",
    "contradict": "contradiction", "contradicts": "contradiction", "contradictory": "contradiction",
    "neg": "negative", "pos": "positive",
}  # fmt: skip
PARAPHRASE_WORDS = {"equivalent", "duplicate", "duplicates", "paraphrase", "paraphrases"}


@dataclass(frozen=True)
class Task:
    """A GLUE task.

    `train_rows` and `dev_rows` are the official row counts, and `dev_counts` and `train_counts` the official counts per
    label (empty for regression or if not verified). `label_codes` maps the codes in GLUE's TSV files to label names.
    With `skips_short_rows`, rows with too few fields are skipped, as in the official counts.
    """

    name: str
    title: str
    folder: str
    sentence1: str
    sentence2: str | None
    label: str
    labels: tuple[str, ...]
    label_codes: dict[str, str]
    metric: str
    train_rows: int
    dev_rows: int
    dev_counts: dict[str, int]
    train_counts: dict[str, int]
    dev_file: str = "dev.tsv"
    dev_split: str = "validation"
    hub_columns: tuple[str, str | None] = ("sentence1", "sentence2")
    skips_short_rows: bool = False

    @property
    def regression(self) -> bool:
        """Whether labels are scores (STS-B, 0 to 5) rather than classes."""
        return not self.labels

    @property
    def outputs(self) -> int:
        """The number of logits of a classifier for this task."""
        return len(self.labels) or 1

    def class_named(self, name: str) -> str | None:
        """Return the class that a name stands for, whatever its case, separators and form; None if unknown.

        >>> task("rte").class_named("Non-Entailment"), task("mnli").class_named("CONTRADICTORY")
        ('not_entailment', 'contradiction')
        """
        negation, word = _folded(name)
        named = {_folded(label): label for label in self.labels}
        return named.get((negation, SYNONYMS.get(word, word)))


def _folded(name: str) -> tuple[str, str]:
    """Return the negation of a class name (`not` or nothing) and the rest of its letters, in lower case."""
    letters = re.sub(r"[^a-z]", "", name.lower())
    negation, word = re.fullmatch(r"(not?n?(?=entail|equiv|dupl|paraphr)|)(.*)", letters).groups()  # type: ignore[union-attr]
    return "not" if negation else "", "equivalent" if word in PARAPHRASE_WORDS else word


def _same(*labels: str) -> dict[str, str]:
    return {label: label for label in labels}


_NLI2 = ("entailment", "not_entailment")
_NLI3 = ("entailment", "neutral", "contradiction")

TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task(
            "mrpc", "MRPC", "MRPC", "#1 String", "#2 String", "Quality",
            ("not_equivalent", "equivalent"), {"0": "not_equivalent", "1": "equivalent"}, "f1",
            3668, 408, {"not_equivalent": 129, "equivalent": 279}, {"not_equivalent": 1194, "equivalent": 2474},
        ),
        Task(
            "stsb", "STS-B", "STS-B", "sentence1", "sentence2", "score",
            (), {}, "pearson", 5749, 1500, {}, {},
        ),
        Task(
            "sst2", "SST-2", "SST-2", "sentence", None, "label",
            ("negative", "positive"), {"0": "negative", "1": "positive"}, "accuracy",
            67349, 872, {"negative": 428, "positive": 444}, {"negative": 29780, "positive": 37569},
            hub_columns=("sentence", None),
        ),
        Task(
            "qqp", "QQP", "QQP", "question1", "question2", "is_duplicate",
            ("not_duplicate", "duplicate"), {"0": "not_duplicate", "1": "duplicate"}, "f1",
            363846, 40430, {"not_duplicate": 25545, "duplicate": 14885}, {},
            hub_columns=("question1", "question2"), skips_short_rows=True,
        ),
        Task(
            "rte", "RTE", "RTE", "sentence1", "sentence2", "label",
            _NLI2, _same(*_NLI2), "accuracy",
            2490, 277, {"entailment": 146, "not_entailment": 131}, {"entailment": 1249, "not_entailment": 1241},
        ),
        Task(
            "qnli", "QNLI", "QNLI", "question", "sentence", "label",
            _NLI2, _same(*_NLI2), "accuracy",
            104743, 5463, {"entailment": 2702, "not_entailment": 2761}, {},
            hub_columns=("question", "sentence"),
        ),
        Task(
            "mnli", "MNLI-m", "MNLI", "sentence1", "sentence2", "gold_label",
            _NLI3, _same(*_NLI3), "accuracy",
            392702, 9815, {"entailment": 3479, "neutral": 3123, "contradiction": 3213}, {},
            dev_file="dev_matched.tsv", dev_split="validation_matched", hub_columns=("premise", "hypothesis"),
        ),
    )
}  # fmt: skip


def task(name: str) -> Task:
    """Return a task by name, in any of its usual spellings (`sst2`, `SST-2`, `mnli-m`, ...).

    >>> task("MNLI-m").title, task("sst_2").metric
    ('MNLI-m', 'accuracy')
    """
    folded = name.lower().replace("-", "").replace("_", "")
    folded = {"mnlim": "mnli", "mnlimatched": "mnli", "sts": "stsb", "sst": "sst2"}.get(folded, folded)
    if folded not in TASKS:
        raise UserError(f"unknown task {name!r}: {near_matches(name, TASKS)}")
    return TASKS[folded]
