"""Scores of bag-of-words classifiers: the part of a model's score that needs no model.

The second text alone is Gururangan et al.'s (2018) hypothesis-only baseline: its score is an artefact of how the rows
were made. Word counts ignore order. Both classifiers are scikit-learn's with default settings.
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
    """scikit-learn, from the extra `lab`."""

    def missing(self, resources: Resources) -> str | None:
        """Return how to install it; None if it is installed."""
        return extra_problem("scikit-learn")

    def settings(self, resources: Resources) -> dict[str, Any]:
        """Return its version, on which results may depend."""
        with from_extra("scikit-learn"):
            import sklearn
        return {"scikit-learn": sklearn.__version__}


@measure("word-baselines", title="scores of counts of words", source="Gururangan et al. 2018")
class WordBaselines(Measure):
    """Values: all metrics of the task (fractions) of each baseline, `words_<metric>` and `second_<metric>`.

    `words` are the counts of the words of both texts, in columns of their own; `second` those of the second text alone,
    for tasks of two texts. A logistic regression learns the classes from the training rows, a ridge regression STS-B's
    scores.

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
        train, dev: one list of texts for each text of a row; each has columns of its own.
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
