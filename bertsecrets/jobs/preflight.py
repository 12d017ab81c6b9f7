"""The summary that a run prints before measuring: claims, training jobs, time, disk space and the model."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from bertsecrets.claims.requirements import not_judged, reads_rows
from bertsecrets.claims.schema import Case
from bertsecrets.errors import UserError
from bertsecrets.jobs.estimates import announcement, estimate_jobs, total_seconds
from bertsecrets.jobs.plan import plan_for
from bertsecrets.models.configuration import open_config, open_tokenizer, shape_of
from bertsecrets.models.locations import ModelRef
from bertsecrets.progress import in_time, log
from bertsecrets.session import Session
from bertsecrets.texts.glue import Split
from bertsecrets.texts.rows import TaskRows
from bertsecrets.texts.tasks import ALL_TASKS

ROWS = 50  # rows sampled for the percentage of unknown tokens
MANY_UNKNOWN = 0.1  # more is unusual for a model's own tokenizer


def preflight(
    session: Session,
    cases: Sequence[Case],
    seeds: Sequence[int],
    *,
    at_once: int | None = 1,
) -> float | None:
    """Log what is about to be measured, unless everything is stored.

    Returns the estimated seconds, or None if unknown.

    Args:
        at_once: Number of parallel jobs. None if all training jobs may run first.

    Raises:
        RunError: If there is not enough disk space.
    """
    cases = [case for case in cases if not not_judged(case)]
    trains, seconds = session.options.checkpoint is None, None
    lines = [f"{len(cases)} claims to judge on {session.model}"]
    if trains:
        planned = plan_for(session, cases, session.model, seeds)
        estimates = [each for each in estimate_jobs(session, planned) if each.state != "stored"]
        if not estimates:
            return 0.0
        seconds = total_seconds(estimates)
        parallel = None if seconds is None else seconds / (at_once or 1)
        lines = [announcement(session, planned, at_once=at_once) or "no checkpoint to train, only measurements"]
        each = " for the first of up to 5 seeds" if session.adds_seeds else ""
        unknown = ": this store has no record of such a job yet" if seconds is None else f"{each}"
        lines.append(f"claims: {len(cases)} to judge; jobs to run: {len(estimates)}")
        lines.append(f"time: {in_time(parallel)}{unknown}")
    with suppress(UserError):  # raised again when the model is opened for a measurement
        on_tasks = (case.task for case in cases if case.task != ALL_TASKS and reads_rows(case))
        rows, cut = sample(session.resources.rows, on_tasks), session.settings.finetune.max_length
        lines.append(f"model: {', '.join(model_facts(session.ref(session.model), cut, rows))}")
    log.info("\n  ".join(lines))
    return seconds


def model_facts(ref: ModelRef, cut: int, rows: Split | None) -> Iterator[str]:
    """Yield a model's shape, vocabulary, maximum input length and, for some rows, the percentage of unknown tokens.

    Args:
        cut: Number of tokens at which a run cuts examples.

    Raises:
        UserError: If the model or its tokenizer cannot be opened.
    """
    config, tokenizer = open_config(ref), open_tokenizer(ref)
    if (shape := shape_of(ref)) is not None:
        yield f"{shape[0]} layers x {shape[1]} heads"
    yield f"vocabulary of {len(tokenizer)}"
    longest = min(tokenizer.model_max_length, getattr(config, "max_position_embeddings", None) or 10**9)
    yield f"examples cut at {min(cut, longest)} of {longest if longest < 10**9 else 'any number of'} tokens"
    if rows is None or tokenizer.unk_token_id is None:
        return
    texts = [*rows.sentence1, *(rows.sentence2 or [])]
    tokens = [token for ids in tokenizer(texts, add_special_tokens=False)["input_ids"] for token in ids]
    share = tokens.count(tokenizer.unk_token_id) / max(1, len(tokens))
    warning = ": check its tokenizer" if share > MANY_UNKNOWN else ""
    yield f"{share:.1%} {tokenizer.unk_token} in {len(rows)} rows of {rows.task.title}{warning}"


def sample(rows: TaskRows, tasks: Iterable[str]) -> Split | None:
    """Return validation rows for the percentage of unknown tokens, of the first of these tasks that has data.

    Raises:
        UserError: If the data are malformed or unofficial.
    """
    available = (name for name in tasks if rows.missing(name, training=False) is None)
    return next((rows.split(name, "dev", ROWS) for name in available), None)
