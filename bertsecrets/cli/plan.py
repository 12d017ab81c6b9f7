"""The commands `plan` (list jobs) and `run` (run them in parallel, locally or on Ray, and judge)."""

import argparse
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bertsecrets.cli.judge_run import JUDGING_OPTIONS, add_selection, open_run, selected
from bertsecrets.cli.outputs import add_outputs, check_outputs, conclude
from bertsecrets.errors import UserError
from bertsecrets.options import RunOptions, add_command
from bertsecrets.progress import log
from bertsecrets.types import Request

if TYPE_CHECKING:
    from bertsecrets.jobs.plan import Plan


def add_parsers(commands) -> None:
    """Add the commands and their options to the command line."""
    plan_parser = add_command(
        commands,
        plan,
        "list the jobs that the claims need, or print them as a script",
        "--task rte --seeds 3 --shell > jobs.sh",
    )
    run_parser = add_command(
        commands,
        run,
        "run the jobs that the claims need, in parallel, and judge the claims",
        "--model minilm --task rte --glue ./glue_data --jobs 4",
    )
    add_selection(plan_parser, [name for name in JUDGING_OPTIONS if name not in ("budget", "keep_checkpoints")])
    add_selection(run_parser)
    form = plan_parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--shell", action="store_true", help="print a script with one command per job")
    run_parser.add_argument(
        "--ray",
        nargs="?",
        const="",
        metavar="ADDRESS",
        help="run on the Ray cluster at ADDRESS (default: RAY_ADDRESS or, without it, a new cluster on this machine)",
    )
    run_parser.add_argument(
        "--gpus",
        type=float,
        metavar="N",
        help="with --ray: GPUs per job, possibly fractional (default: 1 if --device is a GPU)",
    )
    add_outputs(run_parser)


def plan(options: argparse.Namespace) -> None:
    """Print the jobs that the chosen claims need."""
    from bertsecrets.devices import device_name
    from bertsecrets.jobs.plan import PlanningSession, plan_for, remaining, split_by_stored_tasks, trainings
    from bertsecrets.jobs.scripts import shell_script
    from bertsecrets.judging import JudgedRun
    from bertsecrets.store.files import guarded_writes

    chosen, tasks = selected(options)
    given = RunOptions.from_namespace(options)
    session = PlanningSession(given)
    chosen, left_out = split_by_stored_tasks(session, chosen, tasks)
    if left_out:
        log.info(left_out)  # standard output may be the script
    judged = JudgedRun(session, chosen)
    if not judged.possible():
        reason = next(iter(judged.skipped()), "no claim matches --task and --claim")
        raise UserError(f"nothing to plan for {session.model}: {reason}")
    planned = plan_for(session, judged.eligible(), session.model, session.seeds)
    left = remaining(session, planned)
    if options.shell:
        with guarded_writes(given.store_folder):
            given.store_folder.mkdir(parents=True, exist_ok=True)  # the script fails without access to it
        print(shell_script(left, session.options), end="")
        return
    stored = len(planned) - len(left)
    facts = {
        "model": session.model,
        "seeds": sorted(session.seeds),
        "store": str(session.store.root.resolve()),
        "device": device_name(session.resources.device),
        "totals": {"jobs": len(planned), "trainings": trainings(planned), "stored": stored, "to_do": len(left)},
        "without_data": sorted({c.task for c in judged.possible() if session.resources.rows.missing(c.task)}),
        "skipped": judged.skipped(),
    }
    if options.json:
        print(json.dumps({**facts, "jobs": _jobs(planned, left, session.options)}, indent=1))
    else:
        _print_plan(planned, left, facts)


def _jobs(planned: "Plan", left: "Plan", options: RunOptions) -> list[dict[str, Any]]:
    from bertsecrets.jobs.plan import waits_for
    from bertsecrets.jobs.scripts import command

    numbers = {job: number for number, job in enumerate(planned, start=1)}
    return [
        {
            "job": number,
            "what": str(job),
            "measure": job.measure,
            "task": job.subject.task,
            "initialisation": job.subject.initialisation,
            "seed": job.subject.seed,
            "options": dict(job.options),
            "waits_for": [numbers[other] for other in waits_for(planned, job)],
            "state": "to do" if job in left else "stored",
            "command": command(job, options),
        }
        for job, number in numbers.items()
    ]


def _print_plan(planned: "Plan", left: "Plan", facts: Mapping[str, Any]) -> None:
    """Print a plan as a table, followed by its totals. Jobs that differ only in their seed share a row."""
    from bertsecrets.judging import skipped
    from bertsecrets.report.findings import seed_ranges
    from bertsecrets.report.tables import table

    for reason, names in facts["skipped"].items():
        print(skipped(names, reason))
    if facts["without_data"]:
        names = ", ".join(facts["without_data"])
        print(f"tasks not looked up in the store, because their data are not on this machine: {names}")
    rows: dict[tuple[str, ...], list[Request]] = {}
    for job in planned:
        options = " ".join(f"{name}={value}" for name, value in job.options)
        kind = (job.measure or "train", job.subject.task, job.subject.initialisation, options)
        rows.setdefault(kind, []).append(job)
    to_do = {kind: sum(job in left for job in jobs) for kind, jobs in rows.items()}
    print(
        table(
            ("job", "task", "initialisation", "options", "seeds", "stored", "to do"),
            [
                (*kind, seed_ranges(job.subject.seed for job in jobs), str(len(jobs) - to_do[kind]), str(to_do[kind]))
                for kind, jobs in sorted(rows.items(), key=lambda row: (row[0][0] != "train", row[0]))
            ],
        )
    )
    totals = facts["totals"]
    print(
        f"{totals['jobs']} jobs, {totals['trainings']} of them trainings, on {facts['device']}: "
        f"{totals['stored']} stored, {totals['to_do']} to do"
    )


def run(options: argparse.Namespace) -> int:
    """Run the jobs that the chosen claims need, judge the claims, print the verdicts, and return the exit code."""
    from bertsecrets.jobs.on_ray import check_ray, ray_cluster
    from bertsecrets.session import Session

    baseline = check_outputs(options)
    chosen, tasks = selected(options)
    if options.gpus is not None and options.ray is None:
        raise UserError("--gpus requires --ray: to choose the device of local jobs, use --device")
    if options.ray is not None:
        check_ray(options.gpus)
    session = Session(RunOptions.from_namespace(options))
    work = None if options.ray is None else ray_cluster(session, address=options.ray or None, gpus=options.gpus)
    return conclude(options, [open_run(session, chosen, tasks, work)], baseline)
