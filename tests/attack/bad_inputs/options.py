"""Bad options: the environment, `pyproject.toml`, `params.yaml`, option values, outputs, and files to compare."""

import functools

from bad_input import COMMON, BadInput

from bertsecrets.settings import project_path

SCORES = ("measure", "scores", "--task", "rte", "--init", "untrained", *COMMON)
WITHOUT_MODEL = ("plan", "--task", "rte", *COMMON[2:])
CLAIM = ("report", "--task", "rte", "--claim", "E1-rte", *COMMON)
PIN = str(project_path("expected") / "variants" / "minilm-slice.yaml")


def written(name, content):
    return functools.partial(lambda room: room.file(name, content))


def loop(name):
    return lambda room: (room.folder / name).symlink_to(name)


ENVIRONMENT = [
    *(
        BadInput(f"OMP_NUM_THREADS={value}", SCORES, ("OMP_NUM_THREADS", "give 1 to 1024"),
                 environment=(("OMP_NUM_THREADS", value),))
        for value in ("abc", "0", "2000", "9" * 30)
    ),
    BadInput("BERTSECRETS_MODEL is blank", WITHOUT_MODEL, "the model's name is empty",
             environment=(("BERTSECRETS_MODEL", " "),)),
]  # fmt: skip

PYPROJECT = [
    BadInput(f"pyproject.toml: {text}", WITHOUT_MODEL, says, written("pyproject.toml", f"[tool.bertsecrets]\n{text}\n"))
    for text, says in {
        "glue = []": "glue is empty",
        "store = ''": "store is empty",
        "budget = '2h'": "unknown option 'budget': known: model",
    }.items()
]

PARAMS = project_path("params.yaml").read_text(encoding="utf-8")
RUNS = [
    BadInput("no revision", (*SCORES, "--model", "minilm@"), "minilm@ has no revision after the @"),
    BadInput("an option of a measure twice", (*SCORES, "--option", "cased=true", "--option", "cased=false"),
             "option cased is given twice"),
    BadInput("a store that is a loop of links", (*SCORES, "--store", "{room}/loop"),
             ("{room}/loop", "a file exists where a folder is needed"), loop("loop")),
    BadInput("a seed twice", CLAIM, "seeds: has a seed twice (1, 2, 1)",
             written("params.yaml", PARAMS.replace("seeds: auto", "seeds: [1, 2, 1]", 1)),
             (("BERTSECRETS_PARAMS", "{room}/params.yaml"),)),
]  # fmt: skip

SPECIFICATIONS = ("instruments", "specifications", "--task", "rte", "--claim", "E1", *COMMON)
OUTPUTS = [
    BadInput("one file for two outputs", (*CLAIM, "--html", "{room}/x", "--json", "{room}/./x"), "two outputs to"),
    BadInput("a folder for the page", (*CLAIM, "--html", "{room}"), "it is a folder, not a file"),
    *(
        BadInput(f"a file for {words[-1]}", (*words, "{room}/x"), "cannot write {room}/x", written("x", "mine"))
        for words in ((*SCORES, "--save"), (*SPECIFICATIONS, "--figures"))
    ),
]  # fmt: skip

COMPARED = [BadInput("verdicts and a pin", ("compare", "{room}/v.json", PIN), "compare two files of verdicts")]

ROWS = [*ENVIRONMENT, *PYPROJECT, *RUNS, *OUTPUTS, *COMPARED]
