"""Bad inputs around models: configurations, tokenizers, manifests, weights."""

import json

from bad_input import COMMON, BadInput

SCORES = ("measure", "scores", "--task", "rte", "--init", "untrained", *COMMON)


def config(**changes):
    """Return a function that changes fields of the model's config.json; a field set to ... is removed."""

    def make(room):
        data = json.loads((room.model / "config.json").read_text())
        data = {name: value for name, value in {**data, **changes}.items() if value is not ...}
        room.file("model/config.json", json.dumps(data))

    return make


ROWS = [
    BadInput("no attention heads", SCORES, ("{model}", "num_attention_heads"), config(num_attention_heads=0)),
    BadInput("heads as text", SCORES, ("{model}", "num_attention_heads"), config(num_attention_heads="3")),
]
