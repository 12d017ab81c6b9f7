"""Record the results of the speed benchmarks for docs/performance.md.

pytest benchmarks/speed --glue DIR --benchmark-json speed.json
python benchmarks/speed/record.py speed.json    # writes expected/evidence/speed.json and the figure of the page

Several files are merged.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
import transformers
from growth import Point, draw

from bertsecrets.settings import project_path
from bertsecrets.store.entries import write_json
from bertsecrets.store.files import write_whole


def record(files: Sequence[Path]) -> None:
    """Write the ratios and the figure from pytest-benchmark's JSON files."""
    runs = [json.loads(file.read_text()) for file in files]
    benchmarks = [benchmark for run in runs for benchmark in run["benchmarks"]]
    infos = [benchmark["extra_info"] for benchmark in benchmarks]
    growth = {axis: points for info in infos for axis, points in info.get("growth", {}).items()}
    evidence = {
        "made": runs[-1]["datetime"],
        "processor": runs[-1]["machine_info"]["cpu"]["brand_raw"],
        "threads": torch.get_num_threads(),
        "software": {"torch": torch.__version__, "transformers": transformers.__version__},
        "ratios": [
            {**row, "command": benchmark["fullname"]}
            for benchmark in benchmarks
            for row in benchmark["extra_info"].get("rows", [])
        ],
        "growth": growth,
    }
    write_json(project_path("expected") / "evidence" / "speed.json", evidence)
    points = {axis: [Point(**point) for point in values] for axis, values in growth.items()}
    write_whole(project_path("docs") / "images" / "ablation-cost.svg", draw(points))


if __name__ == "__main__":
    record([Path(name) for name in sys.argv[1:]])
