"""The registry of tasks, with the columns, labels, metrics and official row counts of the seven GLUE tasks in K19.

This module defines all details of GLUE's tasks. User-defined tasks (see `texts.own_tasks`) are added to the registry
later. Labels are stored by name. The order of `labels` is the order of classes in a model's output and on the hub
(`nyu-mll/glue`).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from bertsecrets.errors import UserError, near_matches
from bertsecrets.types import ALL_TASKS as ALL_TASKS

# Other common names of classes, without negation and in lower-case letters only.
SYNONYMS = {
    "entail": "entailment", "entails": "entailment", "entailed": "entailment",
    "contradict": "contradiction", "contradicts": "contradiction", "contradictory": "contradiction",
    "neg": "negative", "pos": "positive",
}  # fmt: skip
PARAPHRASE_WORDS = {"equivalent", "duplicate", "duplicates", "paraphrase", "paraphrases"}


@dataclass(frozen=True)
class Task:
    """A GLUE task or, if `own` is True, a task that a user defined.

    `train_rows` and `dev_rows` are the official row counts. `train_counts` and `dev_counts` are the official counts per
    label (empty for regression, or if unverified). `label_codes` maps the codes in GLUE's TSV files to label names. If
    `skips_short_rows` is True, rows with too few fields are skipped, as in the official counts.
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
    dev_counts: dict[str, int] = field(default_factory=dict)
    train_counts: dict[str, int] = field(default_factory=dict)
    dev_file: str = "dev.tsv"
    dev_split: str = "validation"
    hub_columns: tuple[str, str | None] = ("sentence1", "sentence2")
    skips_short_rows: bool = False
    own: bool = False

    @property
    def regression(self) -> bool:
        """Whether labels are scores (from 0 to 5 in STS-B) instead of classes."""
        return not self.labels

    @property
    def outputs(self) -> int:
        """The number of logits of a classifier for this task."""
        return len(self.labels) or 1

    @property
    def identity(self) -> str:
        """The name of the task in cache keys. For the user's own tasks, it includes the metric and the labels."""
        return self.name if not self.own else f"{self.name} {self.metric} {list(self.labels)}"

    def check_data(self) -> None:
        """Check that the files of a user-defined task have not been edited since they were read."""

    def class_named(self, name: str) -> str | None:
        """Return the class that a name stands for, or None if it is unknown.

        Case and separators are ignored, and common variants of a name are accepted.

        >>> task("rte").class_named("Non-Entailment"), task("mnli").class_named("CONTRADICTORY")
        ('not_entailment', 'contradiction')
        """
        if self.own and name in self.labels:
            return name
        # Users' names may differ only in digits, in a sign before them, or in non-Latin letters.
        ignored = r"(?!\B-\d)[\W_]" if self.own else "[^a-z]"
        folded = _folded(name, ignored)
        named = [label for label in self.labels if folded[1] and folded == _folded(label, ignored)]
        return named[0] if len(named) == 1 else None


def _folded(name: str, ignored: str) -> tuple[str, str]:
    """Split a class name into its negation (`not` or empty) and the rest, both normalised for comparisons."""
    letters = re.sub(ignored, "", name.lower())
    negation, word = re.fullmatch(r"(not?n?(?=entail|equiv|dupl|paraphr)|)(.*)", letters).groups()  # type: ignore[union-attr]
    return "not" if negation else "", "equivalent" if word in PARAPHRASE_WORDS else SYNONYMS.get(word, word)


def _same(*labels: str) -> dict[str, str]:
    return {label: label for label in labels}


_NLI2 = ("entailment", "not_entailment")
_NLI3 = ("entailment", "neutral", "contradiction")

GLUE_TASKS: tuple[Task, ...] = (
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
)  # fmt: skip


class Registry(dict[str, Task]):
    """Tasks by name. Looking up an unknown name raises a `UserError`."""

    def __missing__(self, name: str) -> Task:
        raise UserError(f"unknown task {name!r}: {near_matches(name, self)} (for a task of your own, give its data)")


TASKS = Registry({task.name: task for task in GLUE_TASKS})  # user-defined tasks are added later


def register_tasks(tasks: Iterable[Task]) -> None:
    """Add user-defined tasks to `TASKS`, where they replace tasks of the same name."""
    TASKS.update({task.name: task for task in tasks})


def own_task_names() -> list[str]:
    """Return the names of all user-defined tasks in `TASKS`."""
    return [task.name for task in TASKS.values() if task.own]


def task_name_of(title: str) -> str:
    """Return the name of a task with this title: the title in lower case, without hyphens and underscores."""
    return title.lower().replace("-", "").replace("_", "")


def task(name: str) -> Task:
    """Return the task with this name, in any of the usual spellings (`sst2`, `SST-2`, `mnli-m`, ...).

    >>> task("MNLI-m").title, task("sst_2").metric
    ('MNLI-m', 'accuracy')
    """
    folded = task_name_of(name)
    spellings = {"mnlim": "mnli", "mnlimatched": "mnli", "sts": "stsb", "sst": "sst2"}  # also names of own tasks
    return TASKS[folded if folded in TASKS else spellings.get(folded, name)]
