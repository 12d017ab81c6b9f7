"""The commands for many jobs: `plan` lists them, `run` does them (in several processes, or on Ray) and judges."""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bertsecrets.cli.judged import add_examples, judge_cases
from bertsecrets.cli.outputs import add_outputs, check_outputs, conclude
from bertsecrets.cli.parsing import add_command
from bertsecrets.cli.report import add_selection, open_session, selected
from bertsecrets.errors import UserError
from bertsecrets.options import RunOptions
from bertsecrets.progress import in_bytes, in_time

if TYPE_CHECKING:
    from bertsecrets.claims.schema import Case
    from bertsecrets.jobs.estimates import Estimate
    from bertsecrets.session import Session


def add_parsers(commands) -> None:
    """Add the commands' options to the command line."""
    plan_parser = add_command(
        commands,
        "plan",
        "list the jobs that claims need, with time, memory and disk; write them as a script",
        "plan --task rte --seeds 3 --slurm > submit.sh",
        plan,
    )
    add_selection(plan_parser)
    _add_jobs(plan_parser)
    form = plan_parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--shell", action="store_true", help="print a script of one command a job")
    form.add_argument("--slurm", action="store_true", help="print a script that submits two job arrays to Slurm")

    run_parser = add_command(
        commands,
        "run",
        "do the jobs that claims need, several at a time, and judge",
        "run --model minilm --task rte --glue ./glue_data --jobs 4",
        run,
    )
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


def _add_jobs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="jobs at a time on this machine (default: 1)")


def plan(options: argparse.Namespace) -> None:
    """Print the jobs that the chosen claims need.

    Raises:
        UserError: an unknown task or claim, or nothing to plan.
    """
    from bertsecrets.claims.plan import missing
    from bertsecrets.jobs.estimates import estimate, within
    from bertsecrets.jobs.plan import PlanningSession, plan_for
    from bertsecrets.jobs.prepare import with_share

    chosen, _ = selected(options)
    given = with_share(RunOptions.of(options), options.jobs)
    if options.shell or options.slurm:  # their commands know one job each, so none may drop what others read
        given = replace(given, keep_checkpoints="full")
    session = PlanningSession(given)
    problems = [(case, missing(session, case)) for case in chosen if session.speaks_of(case)]
    possible = [case for case, problem in problems if problem is None]
    if not possible:
        reason = next((problem for _, problem in problems), "no implemented claim matches --task and --claim")
        raise UserError(f"nothing to plan for {session.model}: {reason}")
    estimates = estimate(session, plan_for(session, possible, session.model, session.seeds))
    if session.adds_seeds:
        estimates = within(estimates, session.budget, options.jobs)
    if options.shell or options.slurm:
        _print_script(session, estimates, slurm=options.slurm)
        return
    reasons = dict.fromkeys(problem for _, problem in problems if problem)
    skipped = {reason: [str(case) for case, problem in problems if problem == reason] for reason in reasons}
    rows = session.resources.rows
    absent = sorted(name for name in {case.task for case in possible} if rows.missing(name))
    _print_plan(session, estimates, skipped, absent, jobs=options.jobs, as_json=options.json)


def _print_script(session: "Session", estimates: Sequence["Estimate"], *, slurm: bool) -> None:
    from bertsecrets.jobs.scripts import shell_script, slurm_script
    from bertsecrets.store.files import guarded_writes

    options, gpu = session.options, session.resources.device.type == "cuda"
    with guarded_writes(options.store_folder):
        options.store_folder.mkdir(parents=True, exist_ok=True)  # the script ends on machines that do not see it
    print(slurm_script(estimates, options, gpu=gpu) if slurm else shell_script(estimates, options), end="")


def _print_plan(
    session: "Session",
    estimates: Sequence["Estimate"],
    skipped: Mapping[str, Sequence[str]],
    absent: Sequence[str],
    *,
    jobs: int,
    as_json: bool,
) -> None:
    """Print a plan as a table with its totals, or as JSON.

    Args:
        skipped: the cases that are left out, by the reason.
        absent: tasks without data here.
        jobs: at a time.
    """
    from bertsecrets.jobs import table
    from bertsecrets.jobs.disk import disk
    from bertsecrets.provenance import device_name
    from bertsecrets.report import tables

    planned = {one.request: one.leader for one in estimates}
    needed = disk(session, planned, jobs, {one.request: one.state for one in estimates})
    seeds = {one.request.subject.seed for one in estimates} if session.adds_seeds else session.seeds
    facts: dict[str, Any] = {
        "model": session.model,
        "seeds": sorted(seeds),
        "budget_seconds": session.budget if session.adds_seeds else None,
        "store": str(session.store.root.resolve()),
        "device": device_name(session.resources.device),
        "jobs_at_a_time": jobs,
        "without_data": absent,
        "skipped": skipped,
        "totals": table.totals(estimates),
        "disk": needed.as_json() if needed else None,
    }
    if as_json:
        print(json.dumps({**facts, "jobs": table.as_json(estimates, session.options)}, indent=1))
        return
    for reason, names in skipped.items():
        print(f"{len(names)} claims skipped ({', '.join(names)}): {reason}")
    if absent:
        print(f"no data here, planned with the official numbers of rows: {', '.join(absent)}")
    print(tables.table(table.COLUMNS, table.rows(estimates)))
    print(_totals_line(facts))
    if facts["totals"]["seconds"] is None:
        print("unknown times: this store has no record of such a job yet; the first run records one")
    if needed and needed.trainings:
        problem = needed.problem(session.options.keep, session.store.root)
        by_keep = (
            f"disk: {in_bytes(needed.taken('full'))}, or {in_bytes(needed.taken('none'))} with --keep-checkpoints none"
        )
        print(f"{by_keep}; {problem or f'{in_bytes(needed.free)} free'}")


def _totals_line(facts: Mapping[str, Any]) -> str:
    from bertsecrets.jobs.table import size_or_unknown

    totals, at_once = facts["totals"], facts["jobs_at_a_time"]
    seconds, budget = totals["seconds"], facts["budget_seconds"]
    seeds = f"; {in_time(budget)} are enough for {len(facts['seeds'])} of at most 5 seeds" if budget and seconds else ""
    parallel = f", about {in_time(seconds / at_once)} with --jobs {at_once}" if seconds and at_once > 1 else ""
    return (
        f"{totals['jobs']} jobs, {totals['trainings']} of them trainings, on {facts['device']}: "
        f"{totals['stored']} stored, {totals['to_do']} to do, {totals['not_yet']} not yet known; "
        f"time {in_time(seconds)}{parallel}, memory of the largest job {size_or_unknown(totals['memory_bytes'])}, "
        f"disk {size_or_unknown(totals['disk_bytes'])}{seeds}"
    )


def run(options: argparse.Namespace) -> int:
    """Do the jobs that the chosen claims need, judge, print the verdicts, and return the exit code.

    Raises:
        UserError: as `report`; or a number of jobs, of GPUs, or a Ray cluster that cannot be used.
    """
    from bertsecrets.jobs.prepare import prepare as prepare_here
    from bertsecrets.jobs.prepare import with_share

    check_outputs(options)
    chosen, names = selected(options)
    given = with_share(RunOptions.of(options), options.jobs)
    if options.gpus is not None and options.ray is None:
        raise UserError("--gpus is for --ray: a job of this machine uses its --device")
    if options.ray is not None:
        from bertsecrets.jobs.on_ray import check_ray

        check_ray(options.gpus)
    session, requested, possible = open_session(given, chosen, names)

    def prepare(cases: Sequence["Case"], seeds: Sequence[int]) -> "Session":
        if options.ray is None:
            return prepare_here(session, cases, seeds, jobs=options.jobs)
        from bertsecrets.jobs.on_ray import prepare_on_ray

        return prepare_on_ray(session, cases, seeds, address=options.ray or None, gpus=options.gpus)

    run = judge_cases(
        session,
        possible,
        prepare,
        options.jobs,
        asked=requested,
        trained_at_once=options.jobs if options.ray is None else None,  # Ray itself says what comes first
    )
    add_examples(options, session, run)
    return conclude(options, run)
