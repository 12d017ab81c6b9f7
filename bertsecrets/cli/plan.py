"""The commands `plan` (list jobs) and `run` (run them in parallel, locally or on Ray, and judge)."""

import argparse
import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from bertsecrets.cli.judge_run import add_examples, add_selection, joined, judge_cases, open_session, selected
from bertsecrets.cli.outputs import add_outputs, check_outputs, conclude
from bertsecrets.errors import UserError
from bertsecrets.options import RunOptions, add_command
from bertsecrets.progress import in_bytes, in_time, log

if TYPE_CHECKING:
    from bertsecrets.claims.schema import Case
    from bertsecrets.jobs.estimates import JobEstimate
    from bertsecrets.session import Session


def add_parsers(commands) -> None:
    """Add the commands and their options to the command line."""
    plan_parser = add_command(
        commands,
        "plan",
        "list the jobs that claims need, with time, memory and disk, or write them as a script",
        "plan --task rte --seeds 3 --slurm > submit.sh",
        plan,
    )
    run_parser = add_command(
        commands,
        "run",
        "run the jobs that claims need in parallel, and judge",
        "run --model minilm --task rte --glue ./glue_data --jobs 4",
        run,
    )
    for parser in (plan_parser, run_parser):
        add_selection(parser)
        parser.add_argument(
            "--jobs", type=int, default=1, metavar="N", help="parallel jobs on this machine (default: 1)"
        )
    form = plan_parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--shell", action="store_true", help="print a script with one command per job")
    form.add_argument("--slurm", action="store_true", help="print a script that submits two job arrays to Slurm")
    form.add_argument(
        "--decides",
        action="store_true",
        help="list the claims that --budget decides on this machine if the model is as published (lab calibrate)",
    )
    run_parser.add_argument(
        "--ray",
        nargs="?",
        const="",
        metavar="ADDRESS",
        help="run on a Ray cluster (default: RAY_ADDRESS, otherwise a new cluster on this machine)",
    )
    run_parser.add_argument(
        "--gpus",
        type=float,
        metavar="N",
        help="with --ray: GPUs per job, possibly a fraction (default: 1 if --device is a GPU)",
    )
    add_outputs(run_parser)


def plan(options: argparse.Namespace) -> None:
    """Print the jobs that the chosen claims need.

    Raises:
        UserError: If a task or claim is unknown, or there is nothing to plan.
    """
    from bertsecrets.claims.requirements import problem_in_advance
    from bertsecrets.jobs.estimates import estimate_jobs, within
    from bertsecrets.jobs.plan import PlanningSession, plan_for
    from bertsecrets.jobs.prepare import with_share

    chosen, tasks = selected(options)
    given = with_share(RunOptions.of(options), options.jobs)
    if options.shell or options.slurm:  # each command runs one job and must not drop weights that another job needs
        given = replace(given, keep_checkpoints="full")
    session = PlanningSession(given)
    chosen = joined(session, chosen, tasks, log.info)  # standard output may be the script
    possible, lacking = session.possible(chosen)
    if not possible:
        reason = next(iter(lacking), "no claim matches --task and --claim")
        raise UserError(f"nothing to plan for {session.model}: {reason}")
    estimates = estimate_jobs(session, plan_for(session, possible, session.model, session.seeds))
    applicable = [case for case in possible if problem_in_advance(session, case, session.model) is None]
    if options.decides:
        _print_decided(session, applicable, estimates, options.jobs)
        return
    if session.adds_seeds:
        estimates = within(estimates, session.budget, options.jobs)
    if options.shell or options.slurm:
        _print_script(session, estimates, slurm=options.slurm)
        return
    facts = _facts(session, estimates, options.jobs)
    facts["without_data"] = sorted(name for name in {c.task for c in possible} if session.resources.rows.missing(name))
    facts["decided_if_as_published"] = _decided(applicable, len(facts["seeds"]), adds_seeds=session.adds_seeds)
    facts["skipped"] = lacking
    if options.json:
        from bertsecrets.jobs.plan_table import as_json

        print(json.dumps({**facts, "jobs": as_json(estimates, session.options)}, indent=1))
    else:
        _print_plan(session, estimates, facts)


def _decided(cases: Sequence["Case"], seeds: int, *, adds_seeds: bool) -> dict[str, float]:
    """Return the number of simulated claims, and of those decided on average if the model is as published."""
    from bertsecrets.claims.prospects import prospect

    prospects = filter(None, map(prospect, cases))
    chances = (each.decided(seeds, adds_seeds=adds_seeds) for each in prospects)
    known = [chance for chance in chances if chance is not None]
    return {"claims": len(known), "decided": round(sum(known), 1)}


def _print_decided(
    session: "Session", cases: Sequence["Case"], estimates: Sequence["JobEstimate"], at_once: int
) -> None:
    """Print the claims that can be decided within the budget if the model is as published.

    Raises:
        UserError: If no budget was given, or none of the claims was simulated.
    """
    from functools import cache

    from bertsecrets.claims.prospects import prospect
    from bertsecrets.jobs.decided import decided_within
    from bertsecrets.jobs.plan import plan_for
    from bertsecrets.report import tables

    named = {str(case): case for case in cases}
    prospects = {name: known for name, case in named.items() if (known := prospect(case)) is not None}
    if session.budget is None or not prospects:
        raise UserError("--decides needs a --budget, and claims that lab calibrate --as-published has simulated")

    @cache
    def needs(name: str, seed: int) -> frozenset[Any]:
        return frozenset(plan_for(session, [named[name]], session.model, [seed]))

    seconds = {estimate.request: estimate.seconds for estimate in estimates}
    chosen = decided_within(session.budget, prospects, needs, seconds, at_once)
    unknown = sum(any(seconds.get(job) is None for job in needs(name, 1)) for name in prospects)
    rows = [(choice.case, str(choice.seeds), f"{choice.chance:.0%}", in_time(choice.seconds)) for choice in chosen]
    print(tables.table(("claim", "seeds", "decided in", "time"), rows))
    expected = sum(choice.chance for choice in chosen)
    print(
        f"{expected:.1f} of {len(prospects)} claims are decided within {in_time(session.budget)} on average if "
        "the model is as published; jobs shared by several claims are counted once, for the first of them"
    )
    if unknown:
        print(f"time unknown for {unknown} of {len(prospects)} claims: this store has no record of such a job yet")


def _print_script(session: "Session", estimates: Sequence["JobEstimate"], *, slurm: bool) -> None:
    from bertsecrets.jobs.scripts import shell_script, slurm_script
    from bertsecrets.store.files import guarded_writes

    options, gpu = session.options, session.resources.device.type == "cuda"
    with guarded_writes(options.store_folder):
        options.store_folder.mkdir(parents=True, exist_ok=True)  # the script fails on machines that cannot access it
    print(slurm_script(estimates, options, gpu=gpu) if slurm else shell_script(estimates, options), end="")


def _facts(session: "Session", estimates: Sequence["JobEstimate"], jobs: int) -> dict[str, Any]:
    """Return the contents of a plan as JSON data."""
    from bertsecrets.jobs.disk import disk
    from bertsecrets.jobs.plan_table import totals
    from bertsecrets.provenance import device_name

    needed = disk(session.store.root, estimates, jobs)
    seeds = {job.request.subject.seed for job in estimates} if session.adds_seeds else session.seeds
    return {
        "model": session.model,
        "seeds": sorted(seeds),
        "budget_seconds": session.budget if session.adds_seeds else None,
        "store": str(session.store.root.resolve()),
        "device": device_name(session.resources.device),
        "jobs_at_a_time": jobs,
        "totals": totals(estimates),
        "disk": needed.as_json() if needed else None,
    }


def _print_plan(session: "Session", estimates: Sequence["JobEstimate"], facts: Mapping[str, Any]) -> None:
    """Print a plan as a table with totals."""
    from bertsecrets.jobs.plan_table import COLUMNS, rows
    from bertsecrets.judging import skipped
    from bertsecrets.report.tables import table

    for reason, names in facts["skipped"].items():
        print(skipped(names, reason))
    if facts["without_data"]:
        print(f"no local data, planned with the official numbers of rows: {', '.join(facts['without_data'])}")
    print(table(COLUMNS, rows(estimates)))
    print(_totals_line(facts))
    if facts["totals"]["seconds"] is None:
        print("unknown times: this store has no record of such a job yet; the first run records one")
    prospect = facts["decided_if_as_published"]
    if prospect["claims"]:
        print(
            f"if the model is as published, {prospect['decided']:g} of {prospect['claims']} claims are decided on "
            "average (bertsecrets explain shows each; --decides lists what fits the budget)"
        )
    disk = facts["disk"]
    if disk and disk["checkpoints"]:
        taken = {keep: sizes["taken_bytes"] for keep, sizes in disk["by_keep_checkpoints"].items()}
        too_little = taken[session.options.keep_checkpoints] > disk["free_bytes"]
        print(
            f"disk: {in_bytes(taken['full'])}, or {in_bytes(taken['none'])} with --keep-checkpoints none; "
            f"{in_bytes(disk['free_bytes'])} free in {session.store.root}"
            + (", which is not enough: select fewer tasks or claims, or choose another --store" if too_little else "")
        )


def _totals_line(facts: Mapping[str, Any]) -> str:
    totals, at_once = facts["totals"], facts["jobs_at_a_time"]
    seconds, budget = totals["seconds"], facts["budget_seconds"]
    seeds = (
        f"; a budget of {in_time(budget)} is enough for {len(facts['seeds'])} of at most 5 seeds"
        if budget and seconds
        else ""
    )
    parallel = f", about {in_time(seconds / at_once)} with --jobs {at_once}" if seconds and at_once > 1 else ""
    return (
        f"{totals['jobs']} jobs, {totals['trainings']} of them trainings, on {facts['device']}: "
        f"{totals['stored']} stored, {totals['to_do']} to do, {totals['not_yet']} unknown; "
        f"time {in_time(seconds)}{parallel}, memory of the largest job {in_bytes(totals['memory_bytes'])}, "
        f"disk {in_bytes(totals['disk_bytes'])}{seeds}"
    )


def run(options: argparse.Namespace) -> int:
    """Run the jobs that the chosen claims need, judge, print the verdicts, and return the exit code.

    Raises:
        UserError: If `report` would raise it, or the number of jobs or GPUs or the Ray cluster cannot be used.
    """
    from bertsecrets.jobs.on_ray import check_ray, ray_cluster
    from bertsecrets.jobs.prepare import prepare, with_share

    check_outputs(options)
    chosen, tasks = selected(options)
    given = with_share(RunOptions.of(options), options.jobs)
    if options.gpus is not None and options.ray is None:
        raise UserError("--gpus requires --ray: local jobs use --device")
    if options.ray is not None:
        check_ray(options.gpus)
    session, judged = open_session(given, chosen, tasks)
    if options.ray is None:
        local = nullcontext(partial(prepare, session, jobs=options.jobs))
        judge_cases(session, judged, local, options.jobs, trained_at_once=options.jobs)
    else:
        # Ray schedules jobs in any order, so all checkpoints may exist at the same time.
        cluster = ray_cluster(session, address=options.ray or None, gpus=options.gpus)
        judge_cases(session, judged, cluster, options.jobs, trained_at_once=None)
    add_examples(options, session, judged)
    return conclude(options, judged)
