"""What each command does. Each imports what it computes with when it is called."""

import argparse
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from bertsecrets.cli import claims, doctor
from bertsecrets.cli import patterns as pattern_commands
from bertsecrets.errors import UserError
from bertsecrets.options import FRAMES_VARIABLE, glue_folders, path_from, store_folder
from bertsecrets.settings import SEEDS, params
from bertsecrets.texts.tasks import ALL_TASKS, TASKS, task
from bertsecrets.types import Initialisation, Subject

if TYPE_CHECKING:
    from bertsecrets.claims.schema import Case
    from bertsecrets.session import Workbench


def workbench(options: argparse.Namespace) -> "Workbench":
    """The workbench that the shared options ask for; environment variables stand in for paths that are not given.

    Raises:
        UserError: an option names what is not there.
    """
    from bertsecrets.provenance import pipeline_problem
    from bertsecrets.session import open_workbench

    spacy = getattr(options, "spacy", None)
    if spacy and (problem := pipeline_problem(spacy)):
        raise UserError(problem)
    return open_workbench(
        store_folder(options),
        glue_folders(options),
        options.device,
        options.limit,
        options.train_limit,
        options.offline,
        options.allow_unofficial_data,
        getattr(options, "frames", None) or path_from(FRAMES_VARIABLE),
        spacy,
        options.grid_limit,
    )


def model_name(options: argparse.Namespace) -> str:
    """The model asked for, or the default."""
    return options.model or params().model


def check_model(name: str, offline: bool) -> None:
    """Make sure that a model can be had, before anything expensive starts.

    Raises:
        UserError: it cannot.
    """
    from bertsecrets.models import loading, locations

    loading.open_config(locations.locate(name), offline)


def seed_list(count: int | None) -> Sequence[int]:
    """Seeds 1 to `count`, or those of `params.yaml`.

    Raises:
        UserError: a count below 1.
    """
    if count is None:
        return params().seeds
    if count < 1:
        raise UserError(f"--seeds {count} leaves nothing to run: give 1 or more")
    return range(1, count + 1)


def corpus(options: argparse.Namespace) -> None:
    """Write the suite's own corpus."""
    from bertsecrets.texts.corpus import MOST, write_corpus
    from bertsecrets.texts.glue import SPLITS, load_folder

    demo = params().demo
    rows = (
        demo.train_rows if options.train_rows is None else options.train_rows,
        demo.dev_rows if options.dev_rows is None else options.dev_rows,
    )
    asked = f"{rows[0]} training and {rows[1]} validation pairs"
    if min(rows) < 1 or sum(rows) > MOST:
        raise UserError(f"a corpus of {asked}: give 1 or more of each, and at most {MOST} in all")
    folder = write_corpus(options.folder, *rows)
    found = tuple(len(load_folder(folder, task("rte"), name)) for name in SPLITS)
    if found != rows:
        raise UserError(f"{folder} holds {found[0]} and {found[1]} pairs already, not {asked}: name a new folder")
    print(f"{folder}: RTE, {asked}")


def fetch(options: argparse.Namespace) -> None:
    """Get and check a model and tasks."""
    from bertsecrets.models import loading, locations

    bench = workbench(options)
    wanted = [task(name) for name in options.task or TASKS]
    location = locations.locate(model_name(options))
    loading.open_classifier(model_name(options), wanted[0], offline=options.offline)
    print(f"{location.name}: {location.path}{'@' + location.revision if location.revision else ''}")
    for each in wanted:
        for name in ("train", "dev"):
            split = bench.texts.split(each.name, name)
            mark = "" if split.official else " (unofficial)"
            print(f"{each.title} {name}: {len(split)} rows{mark}, {split.fingerprint[:12]}")


def check_seed(seed: int) -> None:
    """Make sure that a seed can be used.

    Raises:
        UserError: it is negative or too large.
    """
    if not 0 <= seed < SEEDS:
        raise UserError(f"--seed {seed} cannot be used: give 0 to {SEEDS - 1}")


def finetune(options: argparse.Namespace) -> None:
    """Train one checkpoint."""
    from bertsecrets.store.files import check_free

    if options.output:
        check_free(options.output)
    subject = Subject(model_name(options), task(options.task).name, options.init, options.seed)
    check_model(subject.model, options.offline)
    bench = workbench(options)
    folder = bench.export_checkpoint(subject, options.output) if options.output else bench.checkpoint(subject)
    print(folder)


def measure(options: argparse.Namespace) -> None:
    """Run one measure, or all that fit the subject."""
    from bertsecrets.measures import ANNOTATED, ENCODER, MEASURES, check_measure, fitting
    from bertsecrets.store.entries import finite, write_json
    from bertsecrets.store.measurements import keep

    no_task = options.measure in MEASURES and MEASURES[options.measure].kind in ENCODER
    if options.task is None and not no_task:
        raise UserError(f"measure {options.measure} needs --task: one of {', '.join(TASKS)}")
    if no_task and (options.task, options.init, options.seed) != (None, "pretrained", 1):
        raise UserError(f"{options.measure} has neither task nor training: leave out --task, --init and --seed")
    the_task = ALL_TASKS if no_task else task(options.task).name
    if options.measure == "all" and (options.save is None or options.json is not None):
        raise UserError("measure all keeps what it measures in --save DIR; --json takes one measure")
    names = fitting(options.init) if options.measure == "all" else [check_measure(options.measure).name]
    compares = any(check_measure(name).compares for name in names)
    if options.model is None and options.checkpoint is not None and not compares:
        options.model = str(options.checkpoint)  # a checkpoint that is compared with nothing needs no other model
    if options.padded_to is not None and (names != ["attention-change"] or options.padded_to < 1):
        raise UserError("--padded-to takes 1 or more tokens and belongs to attention-change alone")
    if options.heads is not None and names != ["head-ablation"]:
        raise UserError("--heads names sets of heads to disable and belongs to head-ablation alone")
    if options.cased and names != ["scores"]:
        raise UserError("--cased belongs to scores alone")
    if options.init == "untrained" and compares and options.checkpoint is None:
        raise UserError(f"{names[0]} compares with the untrained model itself: choose another --init")
    on_maps = no_task and MEASURES[options.measure].kind == ANNOTATED
    if on_maps and options.checkpoint is not None:
        raise UserError(f"{options.measure} looks at annotated maps, at no model: leave out --checkpoint")
    initialisation: Initialisation = "untrained" if no_task else options.init
    subject = Subject(model_name(options), the_task, initialisation, options.seed)
    bench = workbench(options)
    if (options.checkpoint is None or compares) and not on_maps:
        check_model(subject.model, options.offline)
    given = {
        "padded_to": options.padded_to,
        "heads": options.heads and " ".join(options.heads.split()),
        "cased": options.cased or None,
    }
    runs = [(name, {key: value for key, value in given.items() if value is not None}) for name in names]
    if options.measure == "all" and "attention-change" in names:
        runs.append(("attention-change", {"padded_to": params().attention.max_length}))
    found = [bench.measurement(name, subject, options.checkpoint, **chosen) for name, chosen in runs]
    for each in found:
        if options.save:
            keep(each, options.save)
        if options.json:
            write_json(options.json, each.as_json())
        where = options.json or options.save
        if where is None:
            print(json.dumps(finite(each.as_json()), indent=1))
        else:
            print(f"{where}: {each.measure} of {subject}, {each.examples} examples{' (stored)' if each.reused else ''}")


def report(options: argparse.Namespace) -> None:
    """Judge claims and show the verdicts."""
    from bertsecrets.claims.plan import plan_kept, verdict
    from bertsecrets.claims.schema import cases, find_claims
    from bertsecrets.report.html import page
    from bertsecrets.report.json import layer_rows, metrics
    from bertsecrets.report.text import verdict_table
    from bertsecrets.store.entries import write_json
    from bertsecrets.store.files import write_whole
    from bertsecrets.store.measurements import Shelf
    from bertsecrets.store.verdicts import keep_verdict

    ids = {claim.id for wanted in options.claim or () for claim in find_claims(wanted)}
    model, seeds = model_name(options), seed_list(options.seeds)
    names = [ALL_TASKS if name == ALL_TASKS else task(name).name for name in options.task or ()]
    chosen = [case for case in cases() if (not names or case.task in names) and (not ids or case.claim.id in ids)]
    bench: Workbench | Shelf
    advice = "no implemented claim fits --task and --claim, or its data are not there"
    if options.measurements:
        _check_alone(options)
        bench = Shelf.read(options.measurements)
        plan = plan_kept(bench, chosen, model, None if options.seeds is None else seeds)
        kept = ", ".join(f"{name} (seeds {' '.join(map(str, own))})" for name, own in bench.seeds().items())
        advice = f"{options.measurements} has {kept}: choose among them by --model and --seeds, or other claims"
    else:
        bench = workbench(options)
        check_model(model, options.offline)
        plan = [(case, seeds) for case in _possible(bench, chosen, names)]
    if not plan:
        raise UserError(f"nothing to judge of {model}: {advice}")
    found = []
    for case, own_seeds in plan:
        found.append(verdict(bench, case, model, own_seeds, settings=params().judge))
        if not isinstance(bench, Shelf):
            keep_verdict(bench.store.root, found[-1].as_json(), model)
    print(verdict_table(found))
    if options.json:
        write_json(options.json, [verdict.as_json() for verdict in found])
        print(f"verdicts: {options.json.resolve()}")
    if options.metrics:
        write_json(options.metrics, metrics(found))
    if options.plots:
        write_json(options.plots, layer_rows(found))
    if options.html:
        write_whole(options.html, page(found, model))
        print(f"report: {options.html.resolve()}")


def _check_alone(options: argparse.Namespace) -> None:
    """Make sure that nothing is asked for which measurements made elsewhere cannot heed.

    Raises:
        UserError: it is.
    """
    for name in ("glue", "store", "device", "limit", "train_limit", "grid_limit", "frames", "spacy"):
        if getattr(options, name) is not None:
            raise UserError(f"--{name.replace('_', '-')} has no effect on --measurements, made before: leave it out")


def _possible(bench: "Workbench", chosen: Sequence["Case"], names: Sequence[str]) -> list["Case"]:
    """The cases whose data and tools are here; says in a line what else than a task's own data others lack.

    Raises:
        UserError: a task was asked for by name and its data are missing.
    """
    from bertsecrets.claims.plan import missing

    for name in names:
        problem = bench.texts.missing_rows(name)
        if problem:
            raise UserError(problem)
    there = {name for name in {case.task for case in chosen} if bench.texts.missing_rows(name) is None}
    problems = [(case, missing(bench, case)) for case in chosen if case.task in there]
    for reason in dict.fromkeys(problem for _, problem in problems if problem):
        left_out = ", ".join(str(case) for case, problem in problems if problem == reason)
        print(f"not judged: {left_out}: {reason}")
    return [case for case, problem in problems if problem is None]


def train_parser(options: argparse.Namespace) -> None:
    """Train a small tagger and parser."""
    from bertsecrets.texts.train_parser import train_pipeline

    scores = train_pipeline(options.treebank, options.folder)
    print(f"{options.folder}: {json.dumps(scores)}")


RUN: dict[str, Callable[[argparse.Namespace], None]] = {
    "claims": claims.claims,
    "explain": claims.explain,
    "corpus": corpus,
    "fetch": fetch,
    "finetune": finetune,
    "measure": measure,
    "report": report,
    "train-parser": train_parser,
    "annotate": pattern_commands.annotate,
    "import-patterns": pattern_commands.import_patterns,
    "sheets": pattern_commands.sheets,
    "train-patterns": pattern_commands.train,
    "doctor": doctor.doctor,
}


def run(options: argparse.Namespace) -> None:
    """Carry out the command that was called.

    Raises:
        UserError: something in its way that the user can put right.
    """
    if hasattr(options, "seed"):
        check_seed(options.seed)
    RUN[options.command](options)
