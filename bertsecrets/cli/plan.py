"""The commands for many jobs: `plan` lists them, `run` does them (in several processes, or on Ray) and judges."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bertsecrets.cli.judged import add_examples, judged_by
from bertsecrets.cli.notices import tell
from bertsecrets.cli.outputs import add_outputs, check_outputs, conclude
from bertsecrets.cli.report import add_selection, asked_for, open_session, selected
from bertsecrets.errors import UserError
from bertsecrets.options import RunOptions
from bertsecrets.store.keep import KEEPS, Keep

if TYPE_CHECKING:
    from bertsecrets.claims.plan import Bench
    from bertsecrets.claims.schema import Case
    from bertsecrets.jobs.disk import Disk


def add_parsers(commands) -> None:
    """Add the commands' options to the command line."""
    plan_parser = commands.add_parser(
        "plan", help="list the jobs that claims need, with time, memory and disk; write them as a script"
    )
    add_selection(plan_parser)
    _add_jobs(plan_parser)
    form = plan_parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--shell", action="store_true", help="print a script of one command a job")
    form.add_argument("--slurm", action="store_true", help="print a script that submits two job arrays to Slurm")
    plan_parser.set_defaults(run=plan)

    run_parser = commands.add_parser("run", help="do the jobs that claims need, several at a time, and judge")
    add_selection(run_parser)
    _add_jobs(run_parser)
    run_parser.add_argument(
        "--ray",
        nargs="?",
        const="",
        metavar="ADDRESS",
        help="do them on a Ray cluster (default: the one of RAY_ADDRESS, otherwise one of this machine)",
    )
    run_parser.add_argument(
        "--gpus",
        type=float,
        metavar="N",
        help="GPUs of a job on Ray, also a fraction (default: 1 where --device is one)",
    )
    add_outputs(run_parser)
    run_parser.set_defaults(run=run)


def _add_jobs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="jobs at a time on this machine (default: 1)")


def plan(options: argparse.Namespace) -> None:
    """Print the jobs that the chosen claims need.

    Raises:
        UserError: an unknown task or claim, or nothing to plan.
    """
    from tabulate import tabulate

    from bertsecrets.claims.plan import missing
    from bertsecrets.jobs import table
    from bertsecrets.jobs.budget import within
    from bertsecrets.jobs.disk import disk
    from bertsecrets.jobs.estimates import estimate
    from bertsecrets.jobs.plan import WithAllData, steps_of
    from bertsecrets.jobs.prepare import with_share
    from bertsecrets.jobs.scripts import shell_script, slurm_script
    from bertsecrets.session import Session
    from bertsecrets.store.files import guarded_writes

    chosen, _ = selected(options)
    given = with_share(RunOptions.of(options), options.jobs)
    if options.shell or options.slurm:  # whose commands know one job each, so that none may drop what others read
        given = replace(given, keep_checkpoints="full")
    session = Session(given)
    bench = WithAllData(session)
    problems = [(case, missing(bench, case)) for case in chosen if session.speaks_of(case)]
    possible = [case for case, problem in problems if problem is None]
    if not possible:
        reason = next((problem for _, problem in problems), "no implemented claim matches --task and --claim")
        raise UserError(f"nothing to plan for {session.model}: {reason}")
    estimates = estimate(session, steps_of(bench, possible, session.model, session.seeds))
    if session.adds_seeds:
        estimates = within(estimates, session.budget, options.jobs)
    seeds = {one.step.job.subject.seed for one in estimates} if session.adds_seeds else session.seeds
    if options.shell or options.slurm:
        with guarded_writes(given.store_folder):
            given.store_folder.mkdir(parents=True, exist_ok=True)  # its scripts end where they do not see it
        gpu = session.resources.device.type == "cuda"
        print(slurm_script(estimates, given, gpu=gpu) if options.slurm else shell_script(estimates, given), end="")
        return
    states = {one.step.job: one.state for one in estimates}
    needed = disk(session, [one.step for one in estimates], options.jobs, states)
    rows = session.resources.rows
    absent = sorted(name for name in {case.task for case in possible} if rows.missing(name))
    reasons = dict.fromkeys(problem for _, problem in problems if problem)
    skipped = {reason: [str(case) for case, problem in problems if problem == reason] for reason in reasons}
    facts = {
        "model": session.model,
        "seeds": sorted(seeds),
        "budget_seconds": session.budget if session.adds_seeds else None,
        "store": str(session.store.root.resolve()),
        "device": _device(session),
        "jobs_at_a_time": options.jobs,
        "without_data": absent,
        "skipped": skipped,
        "totals": table.totals(estimates),
        "disk": needed.as_json() if needed else None,
    }
    if options.json:
        print(json.dumps({**facts, "jobs": table.as_json(estimates, given)}, indent=1))
        return
    for reason, names in skipped.items():
        print(f"{len(names)} claims left out ({', '.join(names)}): {reason}")
    if absent:
        print(f"without data here, planned by the official numbers of rows: {', '.join(absent)}")
    print(tabulate(table.rows(estimates), table.COLUMNS, disable_numparse=True))
    print(_in_words(facts))
    if needed and needed.trainings:
        print(_disk_in_words(needed, given.keep, session.store.root))


def _device(session) -> str:
    from bertsecrets.provenance import device_name

    return device_name(session.resources.device)


def _in_words(facts: dict) -> str:
    from bertsecrets.jobs.table import in_size, in_time

    totals, at_once = facts["totals"], facts["jobs_at_a_time"]
    seconds, budget = totals["seconds"], facts["budget_seconds"]
    added = f"; {in_time(budget)} afford {len(facts['seeds'])} of at most 5 seeds if all are needed" if budget else ""
    elapsed = f", about {in_time(seconds / at_once)} with --jobs {at_once}" if seconds and at_once > 1 else ""
    return (
        f"{totals['jobs']} jobs, {totals['trainings']} of them trainings, on {facts['device']}: "
        f"{totals['stored']} stored, {totals['to_do']} to do, {totals['not_yet']} not yet known; "
        f"{in_time(seconds)} one after another{elapsed}, "
        f"{in_size(totals['memory_bytes'])} of memory for the largest, {in_size(totals['disk_bytes'])} of disk{added}"
    )


def _disk_in_words(needed: "Disk", keep: Keep, store: Path) -> str:
    """Return the disk that a plan takes and keeps, by what is kept of checkpoints."""
    from bertsecrets.progress import in_bytes

    kept = [f"{in_bytes(needed.kept(one))} with {one}" for one in reversed(KEEPS)]
    meanwhile = [f" ({in_bytes(needed.taken(one))} meanwhile)" if one != "full" else "" for one in reversed(KEEPS)]
    by_keep = [text + more for text, more in zip(kept, meanwhile, strict=True)]
    problem = needed.problem(keep, store)
    return f"disk by --keep-checkpoints: {', '.join(by_keep)}; " + (problem or f"{in_bytes(needed.free)} free")


def run(options: argparse.Namespace) -> int:
    """Do the jobs that the chosen claims need, judge, print the verdicts, and return the exit code.

    Raises:
        UserError: as `report`; or a number of jobs, of GPUs, or a Ray cluster that cannot be used.
    """
    from bertsecrets.jobs.prepare import prepare, with_share

    check_outputs(options)
    chosen, names = selected(options)
    given = with_share(RunOptions.of(options), options.jobs)
    if options.gpus is not None and options.ray is None:
        raise UserError("--gpus is for --ray: a job of this machine uses its --device")
    if options.ray is not None:
        from bertsecrets.jobs.on_ray import check_ray

        check_ray(options.gpus)
    session, possible = open_session(given, chosen, names)

    def bench(cases: Sequence["Case"], seeds: Sequence[int]) -> "Bench":
        if options.ray is None:
            return prepare(session, cases, seeds, jobs=options.jobs, tell=tell)
        from bertsecrets.jobs.on_ray import prepare_on_ray

        return prepare_on_ray(session, cases, seeds, address=options.ray or None, gpus=options.gpus, tell=tell)

    judged = judged_by(
        session,
        possible,
        bench,
        options.jobs,
        asked=asked_for(session, chosen),
        trained_at_once=options.jobs if options.ray is None else None,  # Ray itself says what comes first
    )
    add_examples(options, session, judged)
    return conclude(options, judged)
