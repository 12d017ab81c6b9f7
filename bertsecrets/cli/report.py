"""The command that judges: `bertsecrets report --task rte --html report.html`."""

import argparse
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from bertsecrets.cli.crash import in_short, of_the_machine
from bertsecrets.cli.fetch import ROW_OPTIONS
from bertsecrets.cli.notices import tell
from bertsecrets.errors import MissingError, UserError
from bertsecrets.extras import check_extra
from bertsecrets.options import CHECKPOINT, EXAMPLES, PARSING, RunOptions, add_options, path, seed_range
from bertsecrets.texts.tasks import ALL_TASKS, task
from bertsecrets.types import AUTO, INITIALISATIONS

if TYPE_CHECKING:
    from bertsecrets.claims.plan import Bench
    from bertsecrets.claims.schema import Case
    from bertsecrets.claims.verdict import Verdict
    from bertsecrets.report.viewer import Examples
    from bertsecrets.session import Session

SELECTION = (*ROW_OPTIONS, "seeds", "budget", "keep_checkpoints", "frames", "spacy")  # options of a run that judges
OF_ONE_MODEL = ("metrics", "plots", "json", "markdown", "badge", "eval_results", "record", "checkpoint")
SWITCHES = ("-v", "--verbose", "--strict", "--strict-verdicts")
# What chooses claims, and what is written of them: left out where one claim is judged again.
CHOOSING = (
    *("--task", "--claim", "--metrics", "--plots", "--html", "--json", "--markdown", "--badge", "--eval-results"),
    *("--record", "--examples", *SWITCHES),
)


def add_parsers(commands) -> None:
    """Add the command's options to the command line."""
    parser = commands.add_parser("report", help="judge claims, print a table of verdicts, write an HTML page")
    parser.add_argument(
        "--model",
        dest="models",
        action="append",
        help=f"{PARSING['model']['help']}; repeatable: the page then shows models side by side",
    )
    add_selection(parser, [name for name in SELECTION if name != "model"])
    parser.add_argument(
        "--measurements",
        type=path,
        metavar="DIR",
        help="judge only what `measure --save` saved in this folder; measure nothing",
    )
    parser.add_argument(
        "--init",
        dest="of_inits",
        action="append",
        choices=INITIALISATIONS,
        help="with --measurements: read none but those of this initialisation, and of the --task given; repeatable",
    )
    parser.add_argument(
        "--seed",
        dest="of_seeds",
        action="append",
        type=int,
        help="with --measurements: read none but those of this seed, and of the --task given; repeatable",
    )
    parser.add_argument("--checkpoint", **CHECKPOINT)
    add_outputs(parser)
    parser.set_defaults(run=report)


def add_selection(parser: argparse.ArgumentParser, names: Sequence[str] = SELECTION) -> None:
    """Add the options that choose claims, and those of the run that measures what they need."""
    parser.add_argument(
        "--task",
        action="append",
        help="repeatable; `all` for claims without a task or across tasks (default: every task with data)",
    )
    parser.add_argument(
        "--claim",
        action="append",
        help="judge only this claim, named as tables do: D1, D1-random, D1-rte or D1-rte-random; or a family such as "
        "D; repeatable",
    )
    add_options(parser.add_argument, names)


def add_outputs(parser: argparse.ArgumentParser) -> None:
    """Add the options that name the files to write, and what the exit code says."""
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="also print each claim's statement, band, reason and remarks"
    )
    parser.add_argument("--metrics", type=path, help="write outcomes and observed values to this JSON file")
    parser.add_argument("--plots", type=path, help="write the curves over layers to this JSON file")
    parser.add_argument("--html", type=path, help="write the report to this HTML file")
    parser.add_argument("--examples", **EXAMPLES)
    parser.add_argument("--json", type=path, help="write the verdicts to this JSON file")
    parser.add_argument("--markdown", type=path, metavar="FILE", help="write a summary to this Markdown file")
    parser.add_argument(
        "--badge",
        type=path,
        metavar="FILE",
        help="write how many claims hold to this JSON file, for shields.io",
    )
    parser.add_argument(
        "--eval-results",
        type=path,
        metavar="DIR",
        help="write the scores of table 1 to this folder, as a hub's model repository keeps them in .eval_results",
    )
    parser.add_argument(
        "--strict",
        "--strict-verdicts",
        action="store_true",
        help="exit with 1 also if a claim that was asked for is not decided",
    )
    parser.add_argument(
        "--record",
        type=path,
        metavar="FILE",
        help="write what every seed gave to this JSON file; as expected/evidence/seeds-MODEL.json it tells later "
        "verdicts how far seeds differ",
    )


def check_outputs(options: argparse.Namespace) -> None:
    """Make sure, before anything is measured, that the files asked for can be written.

    Raises:
        UserError: a package is missing that writes one, or its place cannot be written.
    """
    from bertsecrets.store.files import check_writable

    if options.html:
        check_extra("report")
    for name in ("metrics", "plots", "html", "json", "markdown", "badge", "record"):
        if (file := getattr(options, name)) is not None:
            check_writable(file)


def without(words: Sequence[str], names: Collection[str]) -> list[str]:
    """Return a command without some of its options.

    >>> without(["report", "--claim", "C1", "--html=x.html", "-v", "--offline"], CHOOSING)
    ['report', '--offline']
    """
    kept, skipping = [], False
    for word in words:
        name, given, _ = word.partition("=")
        if skipping:
            skipping = False
        elif name in names:
            skipping = not given and name not in SWITCHES
        else:
            kept.append(word)
    return kept


@dataclass
class Judged:
    """What became of the claims of one report, and what ended it early.

    Args:
        cases: those that can be measured.
        asked: all that were asked for, of tasks that have data.
        tell: is given a line on each verdict as soon as there is one.
        examples: for the attention viewer of the page.
    """

    model: str
    cases: Sequence["Case"]
    asked: Sequence["Case"] = ()
    verdicts: list["Verdict"] = field(default_factory=list)
    ended: BaseException | None = None
    crash: Exception | None = None
    tell: Callable[[str], None] | None = None
    examples: "Examples | None" = None

    def run(self, judge: Callable[["Case"], "Verdict"], cases: Sequence["Case"]) -> None:
        """Judge cases, all or some of them once more; one that fails does not take the others with it."""
        from bertsecrets.claims.plan import attempt, not_measured

        try:
            for case in cases:
                try:
                    self._keep(attempt(case, partial(judge, case)))
                except MissingError as error:
                    print(f"1 claim skipped ({case}): {error}")
                except UserError:
                    raise
                except Exception as error:
                    line = of_the_machine(error)
                    self.crash = self.crash or (error if line is None else None)
                    self._keep(not_measured(case, line or in_short(error)))
        except (UserError, KeyboardInterrupt) as error:
            self.ended = error

    def _keep(self, verdict: "Verdict") -> None:
        """Keep a verdict, instead of an earlier one on the same case; all are in the order of the cases."""
        from bertsecrets.report.terminal import verdict_line

        if self.tell is not None:
            self.tell(verdict_line(verdict))
        places = {str(case): place for place, case in enumerate(self.cases)}
        others = [one for one in self.verdicts if str(one.case) != str(verdict.case)]
        self.verdicts = sorted([*others, verdict], key=lambda one: places[str(one.case)])

    @property
    def note(self) -> str:
        """What is missing, in words; empty if every claim had its turn."""
        if self.ended is None:
            return ""
        why = "it was interrupted" if isinstance(self.ended, KeyboardInterrupt) else str(self.ended)
        return f"{len(self.verdicts)} of {len(self.cases)} claims were judged before the run ended ({why})"

    @property
    def undecided(self) -> list[str]:
        """The claims that were asked for and neither hold nor fail, though the model can have them."""
        outcomes = {str(verdict.case): verdict.outcome for verdict in self.verdicts}
        names = [str(case) for case in self.asked or self.cases]
        return [name for name in names if outcomes.get(name, "inconclusive") == "inconclusive"]

    def exit_code(self, *, strict: bool = False) -> int:
        """Return 1 if a claim deviates that was not known to, otherwise 0.

        A deviation counts even if it does not survive that many claims were judged: the code is that of the benchmarks,
        which are judged one by one, and must not depend on what else was asked for.

        Args:
            strict: return 1 also if a claim that was asked for is undecided.

        Raises:
            BaseException: what ended the run early, or the first bug.
            UserError: a claim could not be measured.
        """
        failure = self.ended or self.crash
        if failure is not None:
            raise failure
        failed = [verdict for verdict in self.verdicts if verdict.outcome == "not measured"]
        if failed:
            names = ", ".join(str(verdict.case) for verdict in failed[:5])
            more = f" and {len(failed) - 5} more" if len(failed) > 5 else ""
            raise UserError(
                f"{len(failed)} of {len(self.cases)} claims could not be measured ({names}{more}): {failed[0].reason}"
            )
        from bertsecrets.formats import FAILURES

        failing = [verdict for verdict in self.verdicts if verdict.outcome in FAILURES]
        unexpected = any(
            verdict.outcome == "degenerate" or verdict.case.known_deviation(self.model) is None for verdict in failing
        )
        return int(unexpected or (strict and bool(self.undecided)))


def report(options: argparse.Namespace) -> int:
    """Judge claims, print the verdicts, write the files asked for, and return the exit code."""
    check_outputs(options)
    models: list[str | None] = [*dict.fromkeys(options.models)] if options.models else [None]
    if len(models) > 1 and (of_one := [name for name in OF_ONE_MODEL if getattr(options, name) is not None]):
        raise UserError(f"--{of_one[0].replace('_', '-')} is for one model: leave it out, or give --model once")
    judging = [_judging(argparse.Namespace(**vars(options), model=model)) for model in models]
    runs: list[Judged] = []
    for judge in judging:  # all can be judged, as far as is known before anything is measured
        runs.append(judge())
        if runs[-1].ended is not None:
            break
    return conclude(options, *runs)


def _judging(options: argparse.Namespace) -> Callable[[], Judged]:
    """Return what judges the chosen claims of one model, after checks of what it needs.

    Raises:
        UserError: the model, its data or an option is not as it should be.
    """
    chosen, names = selected(options)
    checkpoint = options.checkpoint
    if options.measurements:
        if checkpoint is not None:
            raise UserError("--measurements are of checkpoints that are named in them: leave out --checkpoint")
        return partial(_of_measurements, options, chosen, names)
    for name, given in (("--init", options.of_inits), ("--seed", options.of_seeds)):
        if given:
            raise UserError(f"{name} chooses among --measurements, and has no effect without: leave it out")
    from bertsecrets.planning.prepare import prepare_in_turn

    session, possible = open_session(RunOptions.of(options).judging(checkpoint, names), chosen, names)

    def judge() -> Judged:
        judged = judged_by(session, possible, partial(prepare_in_turn, session), asked=asked_for(session, chosen))
        add_examples(options, session, judged)
        return judged

    return judge


def add_examples(options: argparse.Namespace, session: "Session", judged: Judged) -> None:
    """Measure what the page's attention viewer shows, if a page is asked for and the run has not ended early."""
    if not options.html or not options.examples or judged.ended is not None:
        return
    from bertsecrets.report.viewer import Examples, subjects_shown

    try:
        judged.examples = Examples(*session.example_maps(subjects_shown(judged.verdicts)), options.examples)
    except KeyboardInterrupt as error:  # what is judged is shown and written
        judged.ended = error


def judged_by(
    session: "Session",
    possible: Sequence["Case"],
    bench: "Callable[[Sequence[Case], Sequence[int]], Bench]",
    jobs: int = 1,
    asked: Sequence["Case"] = (),
    trained_at_once: int | None = 1,
) -> Judged:
    """Return the verdicts on cases; a session that adds seeds adds them for the cases that are still open.

    Claims for which nothing has to be made come first. Where anything has, each verdict is told as soon as it is there.

    Args:
        bench: makes what cases need on some seeds, and returns the source of it.
        jobs: at a time.
        asked: the cases that were asked for, also those that cannot be judged.
        trained_at_once: checkpoints that are whole at a time where not all are kept; None for all.

    Raises:
        UserError: the disk is too small, or what cases need cannot be made.
    """
    from bertsecrets.claims.plan import measure_case
    from bertsecrets.planning.budget import Budget
    from bertsecrets.planning.disk import announce
    from bertsecrets.planning.prepare import stored_first

    judged, chosen = Judged(session.model, possible, asked), possible
    budget = Budget(session, at_once=jobs, tell=tell)

    def look(seeds: Sequence[int]) -> None:
        def judge(source: "Bench", case: "Case") -> "Verdict":
            measured = measure_case(source, case, session.model, seeds)
            return session.verdict(case, measured, first=len(seeds))

        own = session.options.checkpoint is not None
        ready, waiting = ([], list(chosen)) if own else stored_first(session, chosen, seeds)
        judged.tell = tell if waiting else judged.tell
        judged.run(partial(judge, session), ready)
        if not waiting or judged.ended is not None:
            return
        if not own:
            announce(session, waiting, seeds, at_once=trained_at_once, tell=tell)
        judged.run(partial(judge, bench(waiting, seeds)), waiting)

    look(session.looks[0])
    try:
        for seeds in session.looks[1:]:
            chosen = [verdict.case for verdict in judged.verdicts if verdict.open]
            if judged.ended is not None or not chosen or not budget.affords(chosen, seeds[-1]):
                break
            look(seeds)
    except (UserError, KeyboardInterrupt) as error:  # what is judged so far is shown and written
        judged.ended = error
    if judged.ended is None:
        session.close()
    return judged


def selected(options: argparse.Namespace) -> tuple[list["Case"], list[str]]:
    """Return the cases that `--task` and `--claim` choose, and the tasks that were named.

    Raises:
        UserError: an unknown task or claim.
    """
    from bertsecrets.claims.schema import cases, find_cases

    wanted = {str(case) for name in options.claim or () for case in find_cases(name)}
    names = [ALL_TASKS if name == ALL_TASKS else task(name).name for name in options.task or ()]
    of_tasks = [case for case in cases() if not names or case.task in names]
    usual = [case for case in of_tasks if not case.claim.on_request]
    return [case for case in of_tasks if str(case) in wanted] if wanted else usual, names


def conclude(options: argparse.Namespace, *runs: Judged) -> int:
    """Print the verdicts, write the files asked for, and return the exit code; of several models one after another."""
    for judged in runs:
        if len(runs) > 1:
            print(f"\n{judged.model}")
        if judged.verdicts:
            _tell(options, judged)
            _write(options, judged)
    if options.html and any(judged.verdicts for judged in runs):
        _write_page(options, runs)
    for judged in runs:
        if judged.note:
            print(f"incomplete: {judged.note}")
        if options.strict and judged.undecided:
            print(f"not decided: {', '.join(judged.undecided)}")
    return max(judged.exit_code(strict=options.strict) for judged in runs)


def _tell(options: argparse.Namespace, judged: Judged) -> None:
    """Print the table of verdicts and what they say together."""
    from bertsecrets.report.terminal import Screen, fold, verdict_table
    from bertsecrets.report.text import run_lines
    from bertsecrets.settings import load_settings

    screen = Screen.of(sys.stdout)
    print(verdict_table(judged.verdicts, screen, verbose=options.verbose))
    lines = run_lines(judged.verdicts, load_settings().judge.confidence)
    print("\n".join(fold(line, screen.width) for line in lines))
    if not options.verbose:
        print("details: -v, or bertsecrets explain ID")


def _write(options: argparse.Namespace, judged: Judged) -> None:
    """Write the files asked for, but for the page."""
    from bertsecrets.report.json import as_file, badge, layer_rows, metrics
    from bertsecrets.report.markdown import summary
    from bertsecrets.settings import load_settings
    from bertsecrets.store.entries import write_json
    from bertsecrets.store.files import write_whole

    verdicts, params = judged.verdicts, load_settings()
    written = as_file(verdicts, judged.model, params, note=judged.note)
    if options.json:
        write_json(options.json, written.model_dump(mode="json"))
        print(f"verdicts: {options.json.resolve()}")
    if options.record:
        from bertsecrets.claims.record import record

        write_json(options.record, record(judged.model, verdicts))
        print(f"seeds: {options.record.resolve()}")
    if options.metrics:
        incomplete = {"incomplete": judged.note} if judged.note else {}
        write_json(options.metrics, metrics(verdicts, params.judge.confidence) | incomplete)
    if options.plots:
        write_json(options.plots, layer_rows(verdicts))
    if options.markdown:
        write_whole(options.markdown, summary(verdicts, written))
    if options.badge:
        write_json(options.badge, badge(written))
    if options.eval_results:
        from bertsecrets.report.eval_results import eval_results

        files, left_out = eval_results(verdicts, written)
        for line in left_out:
            print(line)
        for name, content in files.items():
            write_whole(options.eval_results / name, content)
            print(f"evaluation result: {options.eval_results.resolve() / name}")


def _write_page(options: argparse.Namespace, runs: Sequence[Judged]) -> None:
    """Write the page of one model, or of several side by side."""
    from bertsecrets.report.html import page
    from bertsecrets.report.viewer import Examples
    from bertsecrets.settings import load_settings
    from bertsecrets.store.files import write_whole

    examples = [judged.examples for judged in runs if judged.examples is not None]
    content = page(
        {judged.model: judged.verdicts for judged in runs},
        load_settings().judge,
        note="; ".join(judged.note for judged in runs if judged.note),
        command=["bertsecrets", *options.words],
        rerun=["bertsecrets", *without(options.words, (*CHOOSING, *(["--model"] if len(runs) > 1 else [])))],
        examples=Examples(
            [one for of_model in examples for one in of_model.measurements],
            [line for of_model in examples for line in of_model.problems],
            options.examples,
        ),
    )
    write_whole(options.html, content)
    print(f"report: {options.html.resolve()}")


def open_session(options: RunOptions, chosen: list["Case"], names: Sequence[str]) -> tuple["Session", list["Case"]]:
    """Return a session, and those of the chosen cases that it can measure.

    Raises:
        UserError: nothing can be judged, or a task named by the user has no data.
    """
    from bertsecrets.claims.plan import reads_model
    from bertsecrets.session import Session

    session = Session(options)
    if not chosen or any(reads_model(case) for case in chosen):
        session.check_model()
    if chosen and not any(map(session.speaks_of, chosen)):
        raise UserError(f"{chosen[0]} is about {' and '.join(chosen[0].claim.architectures)}: name one with --model")
    possible = _possible(session, chosen, names)
    if not possible:
        raise UserError(
            f"nothing to judge for {session.model}: no implemented claim matches --task and --claim, "
            "or its data are missing (see bertsecrets doctor)"
        )
    return session, possible


def _possible(session: "Session", chosen: Sequence["Case"], names: Sequence[str]) -> list["Case"]:
    """Return the cases whose data and tools are available; prints a line for those that lack something else.

    Cases whose own task has no data are left out silently.

    Raises:
        UserError: a task was named by the user and its data are missing.
    """
    from bertsecrets.claims.plan import missing, reads_rows

    rows = session.resources.rows
    with_rows = {case.task for case in chosen if reads_rows(case)}
    for name in names:
        problem = rows.missing(name) if name in with_rows else None
        if problem:
            raise UserError(problem)
    problems = [(case, missing(session, case)) for case in asked_for(session, chosen)]
    for reason in dict.fromkeys(problem for _, problem in problems if problem):
        skipped = [str(case) for case, problem in problems if problem == reason]
        claims = "1 claim" if len(skipped) == 1 else f"{len(skipped)} claims"
        print(f"{claims} skipped ({', '.join(skipped)}): {reason}")
    return [case for case, problem in problems if problem is None]


def asked_for(session: "Session", chosen: Sequence["Case"]) -> list["Case"]:
    """Return the cases about such models whose own task has data, and those that read none."""
    from bertsecrets.claims.plan import reads_rows

    reading = {case.task for case in chosen if reads_rows(case)}
    without = {name for name in reading if session.resources.rows.missing(name) is not None}
    there = [case for case in chosen if case.task not in without or not reads_rows(case)]
    return [case for case in there if session.speaks_of(case)]


def _of_measurements(options: argparse.Namespace, chosen: list["Case"], tasks: Sequence[str]) -> Judged:
    """Return the verdicts on measurements saved in a folder.

    Raises:
        UserError: an option that has no effect on saved measurements, or nothing to judge.
    """
    from bertsecrets.claims.judge import judge
    from bertsecrets.claims.looks import judge_in_looks
    from bertsecrets.claims.plan import measure_case, plan_kept
    from bertsecrets.settings import load_settings
    from bertsecrets.store.measurements import Shelf

    made = (
        *("glue", "store", "device", "threads", "limit", "train_limit", "grid_limit", "frames", "spacy", "budget"),
        "keep_checkpoints",
    )
    for name in made:
        if getattr(options, name) is not None:
            raise UserError(
                f"--{name.replace('_', '-')} has no effect on --measurements, which are already made: leave it out"
            )
    given, settings = RunOptions.of(options), load_settings()
    model = given.model or settings.model
    shelf = Shelf.read(options.measurements)
    if options.of_inits or options.of_seeds:
        shelf = shelf.part(tasks, options.of_inits, options.of_seeds)
    seeds = seed_range(given.seeds) if isinstance(given.seeds, int) else None
    adds = (given.seeds or settings.seeds) == AUTO
    planned = plan_kept(shelf, chosen, model, seeds)
    if not planned:
        kept = ", ".join(f"{name} (seeds {' '.join(map(str, own))})" for name, own in shelf.seeds().items())
        raise UserError(
            f"nothing to judge for {model}: {options.measurements} has {kept}: "
            "choose among these with --model and --seeds, or choose other claims"
        )
    seeds_of = {str(case): own for case, own in planned}
    of_seeds = judge_in_looks if adds else judge
    judged = Judged(model, [case for case, _ in planned])
    judged.run(
        lambda case: of_seeds(case, measure_case(shelf, case, model, seeds_of[str(case)]), settings.judge), judged.cases
    )
    if options.html and options.examples:
        from bertsecrets.report.viewer import MEASURE, Examples, subjects_shown

        maps = [shelf.find(MEASURE, subject, {}) for subject in subjects_shown(judged.verdicts)]
        judged.examples = Examples([one for one in maps if one is not None], rows=options.examples)
    return judged
