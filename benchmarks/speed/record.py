"""Record the results of the speed benchmarks for docs/performance.md.

    pytest benchmarks/speed --glue DIR --benchmark-json speed.json
    python benchmarks/speed/record.py speed.json    # writes expected/evidence/speed.json and the chart of the page
    make tables                                     # renews the tables of the page

Several files are merged. Results of a machine with a GPU are written to speed-gpu.json, without a chart.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from growth import Point, draw

from bertsecrets.settings import project_path
from bertsecrets.store.entries import write_json
from bertsecrets.store.files import write_whole


def record(files: Sequence[Path]) -> None:
    """Write the ratios and the chart from pytest-benchmark's JSON files."""
    runs = [json.loads(file.read_text()) for file in files]
    benchmarks = [benchmark for run in runs for benchmark in run["benchmarks"]]
    infos = [benchmark["extra_info"] for benchmark in benchmarks]
    growth = {axis: points for info in infos for axis, points in info.get("growth", {}).items()}
    machine = runs[-1]["machine_info"]
    evidence = {
        "made": runs[-1]["datetime"],
        "processor": machine["gpu"] or machine["cpu"]["brand_raw"],
        "threads": machine["threads"],
        "software": machine["software"],
        "ratios": [
            {**row, "command": benchmark["fullname"]}
            for benchmark in benchmarks
            for row in benchmark["extra_info"].get("rows", [])
        ],
    }
    evidence_folder = project_path("expected") / "evidence"
    if machine["gpu"]:
        figures = {
            benchmark["name"]: {name: value for name, value in benchmark["extra_info"].items() if name != "rows"}
            for benchmark in benchmarks
        }
        write_json(evidence_folder / "speed-gpu.json", {**evidence, "figures": figures})
        return
    write_json(evidence_folder / "speed.json", {**evidence, "growth": growth})
    points = {axis: [Point(**point) for point in values] for axis, values in growth.items()}
    write_whole(project_path("docs") / "images" / "ablation-cost.svg", draw(points))


if __name__ == "__main__":
    record([Path(name) for name in sys.argv[1:]])
