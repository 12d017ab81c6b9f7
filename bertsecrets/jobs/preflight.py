"""The summary that a run prints before measuring: claims, training jobs, time, disk space and the model."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from bertsecrets.claims.requirements import reads_rows
from bertsecrets.claims.schema import Case
from bertsecrets.errors import NotApplicableError, UserError
from bertsecrets.jobs.disk import announcement
from bertsecrets.jobs.estimates import FROM_STEPS, JobEstimate, Record, estimate_jobs, total_seconds
from bertsecrets.jobs.plan import Plan, plan_for, plan_of, remaining, states
from bertsecrets.jobs.trial import try_training
from bertsecrets.models.configuration import open_config, open_tokenizer, shape_of
from bertsecrets.models.initialisations import get_initialisation
from bertsecrets.models.locations import ModelRef
from bertsecrets.progress import in_time, log
from bertsecrets.session import Session
from bertsecrets.store.files import check_writable
from bertsecrets.texts.glue import Split
from bertsecrets.texts.rows import TaskRows
from bertsecrets.texts.tasks import ALL_TASKS
from bertsecrets.types import Request

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
        UserError: If the store cannot be written, the model or the rows of every task cannot be used, or there is not
            enough memory or disk space.
    """
    seconds, lines = None, [f"{len(cases)} claims to judge on {session.model}"]
    if session.options.checkpoint is None:
        planned = plan_for(session, cases, session.model, seeds)
        if not remaining(session, planned):
            return 0.0
        planned, trial = checked(session, planned)
        estimates = [each for each in estimate_jobs(session, planned, trial) if each.state != "stored"]
        seconds = total_seconds(estimates)
        each = " for the first of up to 5 seeds" if session.adds_seeds else ""
        lines = [announcement(session, estimates, at_once=at_once) or "no checkpoint to train, only measurements"]
        lines.append(f"claims: {len(cases)} to judge; jobs to run: {len(estimates)}")
        lines.append(f"time: {expected_time(estimates, at_once)}{each}")
    with suppress(UserError):  # raised again when the model is opened for a measurement
        on_tasks = (case.task for case in cases if case.task != ALL_TASKS and reads_rows(case))
        rows, cut = sample(session.resources.rows, on_tasks), session.settings.finetune.max_length
        lines.append(f"model: {', '.join(model_facts(session.ref(session.model), cut, rows))}")
    log.info("\n  ".join(lines))
    return seconds


def checked(session: Session, planned: Plan) -> tuple[Plan, Record | None]:
    """Check everything that could stop the training jobs of a plan, without training.

    Returns the plan without jobs that cannot run (their claims fail when they are measured), and the time of a few
    training steps if an estimate needs it.

    Raises:
        UserError: If the store cannot be written, no job can run, or the model cannot be opened or trained.
    """
    known = states(session, planned)
    waiting = [job for job in planned if known[job] == "not yet"]
    check_writable(session.store.root)
    refused: dict[Request, UserError] = {}
    for job in waiting:
        try:
            session.measurements.check(job)
            session.checkpoints.key(job.subject)
        except NotApplicableError:
            continue
        except UserError as error:
            refused[job] = error
    possible = plan_of(job for job in planned if job.measure is not None and job not in refused)
    if refused and not possible:
        raise next(iter(refused.values()))
    trained = [
        job.subject
        for job in planned
        if job in possible and job.measure is None and known[job] == "to do"
        if get_initialisation(job.subject.initialisation).trains
    ]
    trained.sort(key=lambda subject: not get_initialisation(subject.initialisation).trains_encoder)
    timed = any(job.seconds is None for job in estimate_jobs(session, possible))
    with suppress(NotApplicableError):  # the outcome of the claims
        return possible, try_training(session, trained[0], timed=timed) if trained else None
    return possible, None


def expected_time(estimates: Sequence[JobEstimate], at_once: int | None = 1) -> str:
    """Return the estimated time of jobs for the preflight, and its basis."""
    seconds = total_seconds(estimates)
    basis = f" ({FROM_STEPS})" if any(job.basis == FROM_STEPS for job in estimates) else ""
    return f"about {in_time(seconds / (at_once or 1))}{basis}" if seconds is not None else "unknown"


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
    most = longest if longest < 10**9 else "unlimited"
    yield f"examples truncated to {min(cut, longest)} tokens (model maximum: {most})"
    if rows is None or tokenizer.unk_token_id is None:
        return
    texts = [*rows.sentence1, *(rows.sentence2 or [])]
    tokens = [token for ids in tokenizer(texts, add_special_tokens=False)["input_ids"] for token in ids]
    share = tokens.count(tokenizer.unk_token_id) / max(1, len(tokens))
    warning = ": check its tokenizer" if share > MANY_UNKNOWN else ""
    yield f"{share:.1%} {tokenizer.unk_token} in {len(rows)} rows of {rows.task.title}{warning}"


def sample(rows: TaskRows, tasks: Iterable[str]) -> Split | None:
    """Return validation rows of the first of these tasks that has data, for the percentage of unknown tokens.

    Raises:
        UserError: If the data are malformed or unofficial.
    """
    available = (name for name in tasks if rows.missing(name, training=False) is None)
    return next((rows.split(name, "dev", ROWS) for name in available), None)
