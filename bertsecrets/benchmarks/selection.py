"""Selection of benchmarks by `-k` and `-m`: the marks of a case, and the deselection of claims about several tasks."""

import re
from contextlib import suppress

import pytest

from bertsecrets.benchmarks.output import case_of, session_of, shown_id, start_folder
from bertsecrets.benchmarks.pytest_options import get_option
from bertsecrets.claims.schema import Case
from bertsecrets.cli.console import USER_ERROR
from bertsecrets.errors import UserError
from bertsecrets.texts.tasks import ALL_TASKS, TASKS, own_task_names

LEFT_OUT_LINE = pytest.StashKey[str]()  # the line about deselected claims over several tasks


def marks(case: Case) -> list[str]:
    """Return the marks of a case for `-m`: its id, family, claim and tasks.

    A claim about the bare encoder has the marks of all tasks. Names of measures are not used as marks: `-k` also
    searches marks, and the D in `-k "sst2 and D"` must not match the name of a measure.
    """
    tasks = case.on_tasks or TASKS if case.task == ALL_TASKS else ()
    return [str(case), case.claim.family, case.claim.id, case.task, *tasks]


def check_marks(config: pytest.Config) -> None:
    """Check that no task of the user has the name of a mark that another plugin or a settings file registered."""
    registered = [re.split(r"[:(]", line)[0].strip() for line in config.getini("markers")]
    for name in own_task_names():
        if registered.count(name) > 1:  # once by this suite
            message = f"the task {name} has the name of a mark that is used for other tests: give it another name"
            pytest.exit(message, returncode=USER_ERROR)


def names_claim(config: pytest.Config, claim: str) -> bool:
    """Return whether a claim is named by `-k` (case-insensitive, as in pytest), `-m` or an argument."""
    name = rf"(?<![^\W_]){re.escape(claim)}(?![^\W_])"  # G1 occurs in G1-rte, but not in G11
    words = " ".join((config.option.markexpr, *config.args))
    return bool(re.search(name, config.option.keyword, re.IGNORECASE) or re.search(name, words))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect claims about several tasks if they need new measurements on tasks that are not selected.

    Claims that are named explicitly, such as D2-mean, are kept. If no single-task claim is selected, nothing is
    deselected. `--deselect` also accepts the ids shown in pytest's summary, which differ from the actual ids outside a
    checkout.
    """
    # Another hook may have listed benchmarks twice, which pytest cannot run.
    items[:] = [item for place, item in enumerate(items) if case_of(item) is None or items.index(item) == place]
    prefixes = tuple(config.option.deselect or ())
    named = [item for item in items if case_of(item) and shown_id(item.nodeid, config).startswith(prefixes)]
    if named:
        config.hook.pytest_deselected(items=named)
        items[:] = [item for item in items if item not in named]
    words = f"{config.option.keyword} {config.option.markexpr}"
    cases = [case for item in items if (case := case_of(item))]
    tasks = {case.task for case in cases} - {ALL_TASKS}
    several = [
        case
        for case in cases
        if set(case.on_tasks) - tasks and not any(names_claim(config, name) for name in (case.claim.name, str(case)))
    ]
    if not words.strip() or re.search(rf"\b{ALL_TASKS}\b", words) or not tasks or not several:
        return
    from bertsecrets.jobs.plan import left_out_line, split_by_stored_tasks

    kept: list[Case] = []
    line = left_out_line(several)
    if not config.option.collectonly and get_option(config, "measurements") is None:
        with suppress(UserError), start_folder(config):  # the error is reported after selection, and ends the run
            kept, line = split_by_stored_tasks(session_of(config), several, sorted(tasks))
    config.stash[LEFT_OUT_LINE] = line
    left_out = {str(case) for case in several if case not in kept}
    config.hook.pytest_deselected(items=[item for item in items if str(case_of(item)) in left_out])
    items[:] = [item for item in items if str(case_of(item)) not in left_out]


def pytest_report_collectionfinish(config: pytest.Config) -> str | None:
    """Return a line that names the deselected claims about several tasks, if there are any."""
    return config.stash.get(LEFT_OUT_LINE, "") or None
