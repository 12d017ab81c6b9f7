"""Bad inputs around models and options: configurations, tokenizers, manifests, weights, kept measurements, words."""

import json
from collections.abc import Callable
from dataclasses import replace

from bad_input import COMMON, BadInput, Room
from measurements import scored

from bertsecrets.store.entries import read_manifest, write_manifest
from bertsecrets.store.measurements import keep
from bertsecrets.types import Subject

SCORES = ("measure", "scores", "--task", "rte", "--init", "untrained", *COMMON)
CHECKPOINT = ("measure", "scores", "--task", "rte", "--checkpoint", "{model}", *COMMON)
REPORT = ("report", "--model", "m", "--claim", "D2", "--measurements", "{room}/kept")


def spoilt(name: str, change: Callable[[dict], object]) -> Callable[[Room], object]:
    """Return a function that changes a JSON file of the model."""

    def make(room: Room) -> None:
        data = json.loads((room.model / name).read_text())
        change(data)
        room.file(f"model/{name}", json.dumps(data))

    return make


def fields(name: str, **changes: object) -> Callable[[Room], object]:
    """Return a function that sets fields of a JSON file of the model."""
    return spoilt(name, lambda data: data.update(changes))


def written(name: str, content: str | bytes) -> Callable[[Room], object]:
    """Return a function that replaces a file of the model."""
    return lambda room: room.file(f"model/{name}", content)


def config(says: str, **changes: object) -> BadInput:
    """Return the row of a spoilt config.json."""
    name = ", ".join(f"{field}={value!r:.20}" for field, value in changes.items())
    return BadInput(f"config with {name}", SCORES, ("{model}", says), fields("config.json", **changes))


def tokenizer(name: str, change: Callable[[dict], object]) -> BadInput:
    """Return the row of a spoilt tokenizer.json."""
    return BadInput(f"tokenizer of {name}", SCORES, "{model}", spoilt("tokenizer.json", change))


def kept(says: str, change: Callable[[dict], object]) -> BadInput:
    """Return the row of a measurement whose JSON has another shape than any that the suite writes."""

    def make(room: Room) -> None:
        for initialisation in ("pretrained", "untrained"):
            measured = replace(scored([1] * 9, [1] * 9), subject=Subject("m", "rte", initialisation, 1))
            entry = keep(measured, room.folder / "kept")
            data = json.loads((entry / "measurement.json").read_text())
            change(data)
            (entry / "measurement.json").write_text(json.dumps(data))
            facts = read_manifest(entry)
            write_manifest(entry, {name: facts[name] for name in ("kind", "name", "measure", "subject")})

    return BadInput(f"kept measurement: {says}", REPORT, ("is incomplete or from another version", says), make)


def option(name: str, value: str, says: str) -> BadInput:
    """Return the row of an option with a hostile value."""
    return BadInput(f"{name} {value[:12]!r}", (*SCORES, name, value), says)


def encoder_only(room: Room) -> None:
    """Save the model again without its classifier."""
    from transformers import AutoModel

    AutoModel.from_pretrained(room.model).save_pretrained(room.model)


ROWS = [
    BadInput(
        "config.json is missing", SCORES, "holds no config.json", lambda room: (room.model / "config.json").unlink()
    ),
    config("num_attention_heads in config.json is 0", num_attention_heads=0),
    config("num_attention_heads", num_attention_heads="3"),
    config("num_hidden_layers in config.json is 1000000", num_hidden_layers=10**6),
    config("num_hidden_layers in config.json is -1", num_hidden_layers=-1),
    config("num_hidden_layers", num_hidden_layers=2.5),
    config("not a multiple", hidden_size=30),
    config("hidden_size in config.json is 1000000000", hidden_size=10**9),
    config("vocab_size in config.json is 0", vocab_size=0),
    config("vocab_size in config.json is 1000000000000", vocab_size=10**12),
    config("intermediate_size in config.json is -1", intermediate_size=-1),
    config("max_position_embeddings in config.json is 10000000000000", max_position_embeddings=10**13),
    config("does not know 'nope'", hidden_act="nope"),
    config("", hidden_act=None),
    config("", model_type="zzz"),
    config("", model_type=3),
    config("", pad_token_id=9999),
    config("layer_norm_eps", layer_norm_eps="x"),
    config("", hidden_dropout_prob=7),
    config("initializer_range", initializer_range=-1),
    config("", id2label=[]),
    config("", tie_word_embeddings="x"),
    config("", architectures="x", add_cross_attention=True),
    *(
        BadInput(f"config.json is {content[:6]!r}", SCORES, "{model}", written("config.json", content))
        for content in (b"", b"[]", b"null", b"3", b'"x"', b"{", b"\xff\xfe", b"[" * 100_000)
    ),
    *(
        BadInput(f"tokenizer.json is {content!r}", SCORES, "{model}", written("tokenizer.json", content))
        for content in (b"", b"[]", b"null", b"{}", b"\xff")
    ),
    tokenizer("an unknown type", lambda data: data["model"].update(type="ZZ")),
    tokenizer("a list as vocabulary", lambda data: data["model"].update(vocab=["a"])),
    tokenizer("a negative id", lambda data: data["model"]["vocab"].update(a=-1)),
    tokenizer("an unknown normalizer", lambda data: data.update(normalizer={"type": "ZZ"})),
    tokenizer("an unknown version", lambda data: data.update(version="9.0")),
    tokenizer("a number as added tokens", lambda data: data.update(added_tokens=3)),
    *(
        BadInput(
            f"model_max_length {length!r}",
            SCORES,
            ("{model}", "model_max_length"),
            fields("tokenizer_config.json", model_max_length=length),
        )
        for length in ("x", -5, 0, [1])
    ),
    BadInput("a list as manifest", CHECKPOINT, "manifest.json is not a JSON object", written("manifest.json", b"[]")),
    BadInput("weights of no bytes", SCORES, "model.safetensors is damaged", written("model.safetensors", b"")),
    BadInput("an encoder as a checkpoint", CHECKPOINT, ("is an encoder without", "--model"), encoder_only),
    BadInput("a task's own folder", ("report", *COMMON, "--glue", "{glue}/RTE"), "give its parent folder"),
    kept("values: input should be a valid dictionary", lambda data: data.update(values=3)),
    kept("examples: input should be", lambda data: data.update(examples="x")),
    kept("examples: input should be", lambda data: data.update(examples=-1)),
    kept("subject.seed", lambda data: data["subject"].update(seed="1")),
    kept("subject.initialisation", lambda data: data["subject"].update(initialisation="x")),
    kept("provenance.limit", lambda data: data["provenance"].update(limit="x")),
    kept("provenance.official_data", lambda data: data["provenance"].update(official_data="yes")),
    kept("provenance.seconds", lambda data: data["provenance"].update(seconds=-1)),
    kept("provenance.made_by", lambda data: data["provenance"].update(made_by=[])),
    kept("options: input should be", lambda data: data.update(options=None)),
    option("--limit", "9" * 5000, "invalid int value"),
    option("--limit", "-1", "--limit -1 leaves no rows"),
    option("--limit", "", "invalid int value"),
    option("--seed", "9" * 30, "out of range"),
    option("--padded-to", "9" * 30, "--padded-to"),
    option("--store", "", "the path is empty"),
    option("--store", "x" * 5000, "no path is as long"),
    option("--glue", "x/" * 5000, "no path is as long"),
    option("--frames", "x\0y", "not valid text"),
    option("--model", "\udcff", "not valid text"),
    option("--model", "m" * 5000, "mmm"),
    option("--device", "c" * 5000, "is not available"),
    option("--task", "t" * 5000, "unknown task"),
    option("--init", "t" * 5000, "invalid choice"),
    option("--option", "=", "NAME=VALUE"),
    option("--option", "a" * 5000 + "=3", "has no option"),
    option("--heads", "1.1 " * 100_000, "characters"),
    option("--json", "{room}", "a folder stands where a file is needed"),
]
