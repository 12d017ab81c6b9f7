"""Bad models and options: configurations, tokenizers, manifests, weights, option values and output paths."""

import json
from collections.abc import Callable
from pathlib import Path

from bad_input import COMMON, BadInput, Room

SCORES = ("measure", "scores", "--task", "rte", "--init", "untrained", *COMMON)
CHECKPOINT = ("measure", "scores", "--task", "rte", "--checkpoint", "{model}", *COMMON)


def corrupted(name: str, change: Callable[[dict], object]) -> Callable[[Room], object]:
    def make(room: Room) -> None:
        data = json.loads((room.own_model() / name).read_text())
        change(data)
        room.file(f"model/{name}", json.dumps(data))

    return make


def written(name: str, content: bytes) -> Callable[[Room], object]:
    return lambda room: (room.own_model() / name).write_bytes(content)


def config(says: str, **changes: object) -> BadInput:
    name = ", ".join(f"{field}={value!r:.20}" for field, value in changes.items())
    make = corrupted("config.json", lambda data: data.update(changes))
    return BadInput(f"config with {name}", SCORES, ("{model}", says), make)


def file(name: str, content: bytes) -> BadInput:
    return BadInput(f"{name} is {content[:6]!r}", SCORES, "{model}", written(name, content))


def option(name: str, value: str, says: str) -> BadInput:
    return BadInput(f"{name} {value[:12]!r}", (*SCORES, name, value), says)


MODELS = [
    config("num_attention_heads in config.json is 0", num_attention_heads=0),
    config("num_hidden_layers in config.json is 1000000", num_hidden_layers=10**6),
    BadInput("hidden_size is no multiple of the heads", SCORES, "{model}",
             corrupted("config.json", lambda data: data.update(hidden_size=30))),
    config("does not know 'nope'", hidden_act="nope"),
    file("tokenizer.json", b"{}"),
    BadInput("a tokenizer that fails on a text", SCORES, "its tokenizer fails on a short text",
             corrupted("tokenizer.json", lambda data: data["model"].update(vocab=["a"]))),
    *(
        BadInput(f"model_max_length {length!r}", SCORES, ("{model}", "model_max_length"),
                 corrupted("tokenizer_config.json", lambda data, length=length: data.update(model_max_length=length)))
        for length in ("x", 0)
    ),
    BadInput("an index of weights that names a file of another folder", SCORES, ("{model}", "not a file of its folder"),
             written("model.safetensors.index.json", b'{"weight_map": {"w": "../w.safetensors"}}')),
]  # fmt: skip

OPTIONS = [
    option("--device", "c" * 5000, "is not available"),
    option("--task", "t" * 5000, "unknown task"),
    option("--option", "=", "NAME=VALUE"),
    option("--option", "a" * 5000 + "=3", "has no option"),
]

CLAIM = ("report", "--task", "rte", "--claim", "E1-rte", *COMMON)
WRITING = {
    "finetune --output": ("finetune", "--task", "rte", *COMMON, "--output"),
    "measure --save": (*SCORES, "--save"),
    "report --html": (*CLAIM, "--html"),
}
PLACES = {
    "/dev/full": "cannot write",
    "{glue}/RTE/dev.tsv/out": "cannot write",
    f"{{room}}/{'x' * 300}": "is too long for a path",
}
OUTPUTS = [
    BadInput(f"{name} {place[:12]}", (*words, place), says)
    for name, words in WRITING.items()
    for place, says in PLACES.items()
    if place != "/dev/full" or Path(place).exists()
]

ROWS = [*MODELS, *OPTIONS, *OUTPUTS]
