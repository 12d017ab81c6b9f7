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
    BadInput(
        "config.json is missing", SCORES, "holds no config.json", lambda room: (room.model / "config.json").unlink()
    ),
]
