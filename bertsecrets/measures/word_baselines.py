"""Scores of bag-of-words classifiers, as baselines for language models.

Using only the second text is the hypothesis-only baseline of Gururangan et al. (2018), which exposes annotation
artefacts. Word counts ignore word order. All classifiers are from scikit-learn, with default settings.
"""

from typing import Any, ClassVar

import numpy as np
from jaxtyping import Shaped

from bertsecrets.errors import extra_problem, from_extra
from bertsecrets.measures.base import Measure, Results, Run
from bertsecrets.measures.base.needs import Requirement, Resources
from bertsecrets.measures.registry import measure
from bertsecrets.progress import progress
from bertsecrets.store.files import digest
from bertsecrets.texts.glue import Split
from bertsecrets.texts.metrics import scores
from bertsecrets.texts.tasks import Task
from bertsecrets.types import Measurement


class ScikitLearn(Requirement):
    """scikit-learn, which is part of the `lab` extra."""

    def missing(self, resources: Resources) -> str | None:
        """Return installation instructions; None if scikit-learn is installed."""
        return extra_problem("scikit-learn")

    def settings(self, resources: Resources) -> dict[str, Any]:
        """Return the version of scikit-learn, since results may depend on it."""
        with from_extra("scikit-learn"):
            import sklearn
        return {"scikit-learn": sklearn.__version__}


@measure("word-baselines", title="scores of bag-of-words baselines", source="Gururangan et al. 2018")
class WordBaselines(Measure):
    """Values: all metrics of the task (fractions) for each baseline, `words_<metric>` and `second_<metric>`.

    `words` uses word counts of each text, in separate columns; `second` uses only the second text, for two-text tasks.
    The model is a logistic regression, or a ridge regression for STS-B, fitted on the training rows.

    Samples: `words_predicted`, `second_predicted` and `target` [example].
    """

    section = None
    reads_model: ClassVar[bool] = False
    reads_training_rows: ClassVar[bool] = True
    seedless: ClassVar[bool] = True
    needs = (ScikitLearn(),)

    def fingerprint(self, run: Run) -> str:
        """Return a digest of the training rows and the measured rows."""
        return digest([self._training(run).fingerprint, self.rows(run).fingerprint])

    def run(self, run: Run) -> Results:
        """Train on the training rows, and score the validation rows."""
        train, dev = self._training(run), self.rows(run)
        target = np.asarray(dev.targets())
        values: dict[str, Any] = {}
        samples: dict[str, np.ndarray] = {"target": target}
        kinds = ["words"] + (["second"] if dev.sentence2 is not None else [])
        with progress("counting words", len(kinds), "baseline") as shown:
            for kind in kinds:
                predicted = learned(run.task, _texts(train, kind), train.targets(), _texts(dev, kind))
                samples[f"{kind}_predicted"] = predicted
                values |= {f"{kind}_{name}": number for name, number in scores(run.task, predicted, target).items()}
                shown.advance()
        return {self.name: (values, samples)}, len(dev)

    def degenerate(self, measurement: Measurement) -> str | None:
        """Return None: a constant baseline is a valid result."""
        return None

    def _training(self, run: Run) -> Split:
        return run.resources.rows.split(run.subject.task, "train")


def learned(
    task: Task, train: list[list[str]], target: list[float] | list[int], dev: list[list[str]]
) -> Shaped[np.ndarray, " examples"]:
    """Return the predictions of a linear model of word counts.

    Args:
        train, dev: One list of texts for each text of a row. Each list gets its own count columns.
    """
    with from_extra("scikit-learn"):
        from sklearn.feature_extraction.text import CountVectorizer
        from sklearn.linear_model import LogisticRegression, Ridge
    from scipy.sparse import hstack

    counts = [CountVectorizer().fit(texts) for texts in train]
    of_train, of_dev = (
        hstack([count.transform(texts) for count, texts in zip(counts, split, strict=True)]).tocsr()
        for split in (train, dev)
    )
    model = Ridge() if task.regression else LogisticRegression(max_iter=1000)
    return np.asarray(model.fit(of_train, target).predict(of_dev))


def _texts(split: Split, kind: str) -> list[list[str]]:
    second = [] if split.sentence2 is None else [list(split.sentence2)]
    return second if kind == "second" else [list(split.sentence1), *second]
