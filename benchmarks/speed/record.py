"""Record the results of the speed benchmarks for docs/performance.md.

pytest benchmarks/speed --glue DIR --benchmark-json speed.json
python benchmarks/speed/record.py speed.json    # writes expected/evidence/speed.json and the figure of the page
"""

import json
import sys
from pathlib import Path

import torch
import transformers
from growth import Point, draw

from bertsecrets.settings import project_path
from bertsecrets.store.entries import write_json
from bertsecrets.store.files import write_whole


def record(results: Path) -> None:
    """Write the ratios and the figure from a pytest-benchmark JSON file."""
    data = json.loads(results.read_text())
    infos = [benchmark["extra_info"] for benchmark in data["benchmarks"]]
    growth = {axis: points for info in infos for axis, points in info.get("growth", {}).items()}
    evidence = {
        "made": data["datetime"],
        "commit": data["commit_info"]["id"],
        "processor": data["machine_info"]["cpu"]["brand_raw"],
        "threads": torch.get_num_threads(),
        "software": {"torch": torch.__version__, "transformers": transformers.__version__},
        "ratios": [
            {**row, "command": benchmark["fullname"]}
            for benchmark in data["benchmarks"]
            for row in benchmark["extra_info"].get("rows", [])
        ],
        "growth": growth,
    }
    write_json(project_path("expected") / "evidence" / "speed.json", evidence)
    points = {axis: [Point(**point) for point in values] for axis, values in growth.items()}
    write_whole(project_path("docs") / "images" / "ablation-cost.svg", draw(points))


if __name__ == "__main__":
    record(Path(sys.argv[1]))
