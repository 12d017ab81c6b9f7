"""Compares training runs and measures on many families with naive references; `--all` tries all families in `zoo`.

`PYTHONPATH=.:tests/support python tests/support/sweep.py` prints a table, and exits with code 1 if a number is wrong or
a measure crashes. `--write` tries all families and writes the tables in docs/families.md.
"""

import argparse
import logging
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterable
from itertools import dropwhile
from pathlib import Path
from typing import Any

import numpy as np
import transformers
from naive import Naive
from pages import DOCS
from zoo import FAMILIES, FURTHER, VARIANTS, save_family

from bertsecrets.errors import UserError
from bertsecrets.session import Session
from bertsecrets.settings import load_settings
from bertsecrets.texts.corpus import write_corpus

MEASURES = (
    *("scores", "special-tokens", "head-statistics", "attention-gradients", "anisotropy", "head-ablation"),
    *("layer-ablation", "head-pruning", "weight-pruning"),
)
TRAININGS = ("pretrained", "frozen")
ROWS, STEPS, RATE, LENGTH = 6, 2, 1e-3, 32
CLASSES = ("entailment", "not_entailment")  # in GLUE's order
SIGNS = {"exact": "=", "refused": "-", "wrong": "WRONG", "crash": "CRASH"}
PAGE = DOCS / "families.md"
COUNTS = "| families | exact | refused | crash | wrong |"
GROUPS = "| exact | further families |"
Outcomes = dict[str, tuple[str, str]]  # outcome and explanation, by training run or measure


def sweep(family: str, folder: Path, glue: Path) -> Outcomes:
    """Return the outcome of each training run and measure on a family."""
    try:
        save_family(family, folder / "model", without_dropout=True)
    except Exception as error:  # such as a size option that the family does not have
        return {"made": ("crash", f"not made: {type(error).__name__}: {error}")}
    settings = load_settings()
    finetune = {"epochs": STEPS, "batch_size": ROWS, "max_length": LENGTH, "warmup": 0.0, "weight_decay": 0.0}
    finetune["precision"] = "float32"
    rates = {"learning_rate": RATE, "frozen_learning_rate": RATE}
    cut = {
        "finetune": settings.finetune.model_copy(update={**finetune, **rates}),
        "scores": settings.scores.model_copy(update={"max_length": LENGTH}),
        "attention": settings.attention.model_copy(update={"max_length": LENGTH}),
    }
    session = Session(
        model=str(folder / "model"), glue=str(glue), store=str(folder / "store"), limit=ROWS, train_limit=ROWS,
        allow_unofficial_data=True, device="cpu", settings=settings.model_copy(update=cut),
    )  # fmt: skip
    outcomes = {name: _outcome(lambda name=name: _training(session, name)) for name in TRAININGS}
    if outcomes["pretrained"][0] in ("refused", "crash"):
        return outcomes
    checkpoint = session.checkpoint(session.subject("rte"))
    for name in MEASURES:
        outcomes[name] = _outcome(lambda name=name: _measure(session, checkpoint, name))
    return outcomes


def _outcome(compared: Callable[[], None]) -> tuple[str, str]:
    try:
        compared()
    except AssertionError as error:
        return "wrong", " ".join(str(error).split())[:200]
    except UserError as error:
        return "refused", str(error)
    except Exception:
        return "crash", traceback.format_exc()
    return "exact", ""


def _rows(session: Session, split: str) -> list[tuple[str, str, int]]:
    rows = session.resources.rows.split("rte", split)
    assert rows.sentence2 is not None
    return [*zip(rows.sentence1, rows.sentence2, map(CLASSES.index, rows.labels), strict=True)]


def _training(session: Session, initialisation: str) -> None:
    trained = session.checkpoint(session.subject("rte", initialisation))
    begun = session.checkpoint(session.subject("rte", "untrained"))
    reference = Naive(begun, _rows(session, "train"), LENGTH).train(STEPS, RATE, frozen=initialisation == "frozen")
    expected, before = reference.logits(), Naive(begun, _rows(session, "train"), LENGTH).logits()
    assert np.abs(expected - before).max() > 1e-3
    np.testing.assert_allclose(Naive(trained, _rows(session, "train"), LENGTH).logits(), expected, atol=2e-3)


def _measure(session: Session, checkpoint: Path, name: str) -> None:
    measurement = session.measure(name, task="rte")
    reference = Naive(checkpoint, _rows(session, "dev"), LENGTH)
    for key, expected in getattr(reference, name.replace("-", "_"))().items():
        measured = measurement.samples[key] if key in measurement.samples else measurement.value(key)
        np.testing.assert_allclose(measured, expected, rtol=1e-4, atol=2e-5, err_msg=key)


def run(families: Iterable[str], show: Callable[[str], Any] = print) -> dict[str, Outcomes]:
    """Sweep over families, showing a table row for each."""
    columns = [*TRAININGS, *MEASURES]
    show(f"{'':22} {' '.join(columns)}")
    with tempfile.TemporaryDirectory() as root, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        glue = write_corpus(Path(root) / "glue", 12, 12)
        by_family = {}
        for family in families:
            outcomes = by_family[family] = sweep(family, Path(root) / family, glue)
            signs = (f"{SIGNS[outcomes[name][0]] if name in outcomes else '-':^{len(name)}}" for name in columns)
            show(f"{family:22} {' '.join(signs)}")
            for name, (outcome, why) in outcomes.items():
                if outcome in ("wrong", "crash"):
                    show(f"  {name}: {outcome}: {why}")
                elif why and name in (*TRAININGS, "scores", "special-tokens", "head-ablation", "weight-pruning"):
                    show(f"  {name}: {why}")
    return by_family


def failures(found: dict[str, Outcomes]) -> list[str]:
    """Return the training runs and measures that crashed or gave wrong numbers."""
    return [
        f"{name} of {family}: {why}"
        for family, outcomes in found.items()
        for name, (outcome, why) in outcomes.items()
        if outcome in ("wrong", "crash")
    ]


def exact(outcomes: Outcomes) -> str:
    """Return what is exact, as worded in docs/families.md."""
    refused = [name for name in (*TRAININGS, *MEASURES) if outcomes.get(name, ("refused",))[0] != "exact"]
    if not refused:
        return "everything"
    supported = [f"`{name}`" for name in MEASURES if name not in refused]
    return ", ".join(supported) or "nothing"


def counts(found: dict[str, Outcomes]) -> str:
    """Return a table row with the number of training runs and measures per outcome.

    Those that need a refused training run count as refused.
    """
    names = [outcomes.get(name, ("refused",))[0] for outcomes in found.values() for name in (*TRAININGS, *MEASURES)]
    return f"| {len(found)} | {' | '.join(str(names.count(kind)) for kind in ('exact', 'refused', 'crash', 'wrong'))} |"


def groups(found: dict[str, Outcomes]) -> list[str]:
    """Return table rows with families grouped by what is exact."""
    names: dict[str, list[str]] = {}
    for family, outcomes in found.items():
        names.setdefault(exact(outcomes), []).append(family)
    order = sorted(names, key=lambda group: (group != "everything", group == "nothing", -group.count(","), group))
    return [f"| {group} | {', '.join(sorted(names[group]))} |" for group in order]


def with_table(page: str, head: str, rows: list[str]) -> str:
    """Return the page with the rows of one of its tables replaced."""
    before, _, rest = page.partition(head)
    after = dropwhile(lambda line: line.startswith("|"), rest.removeprefix("\n").splitlines())
    return "\n".join([before + head, "|---" * (head.count("|") - 1) + "|", *rows, *after]) + "\n"


def main() -> int:
    """Sweep over the named families, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*", help="as transformers names their model types")
    parser.add_argument("--all", action="store_true", help="all that zoo lists")
    parser.add_argument("--write", action="store_true", help="all, and write the page's tables")
    options = parser.parse_args()
    logging.getLogger("bertsecrets").setLevel(logging.ERROR)
    transformers.utils.logging.disable_progress_bar()
    chosen = [*FAMILIES, *FURTHER, *VARIANTS] if options.all or options.write else options.families
    by_family = run(chosen)
    wrong = failures(by_family)
    if options.write and not wrong:
        page = with_table(PAGE.read_text(encoding="utf-8"), COUNTS, [counts(by_family)])
        further = groups({family: by_family[family] for family in FURTHER})
        PAGE.write_text(with_table(page, GROUPS, further), encoding="utf-8")
    print(f"{len(by_family)} families: {len(wrong)} numbers wrong or crashes")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
