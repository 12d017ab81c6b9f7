"""How a history reads: a line a verdict with a drawing, and a sentence for each step."""

from bertsecrets.report.history import drawing, history_lines, seed_ranges

FIRST = {
    "id": "E1-rte", "task": "rte", "model": "minilm", "limited": False, "unit": "depth", "verdict": "deviates",
    "made": "2026-11-02T10:00:00Z", "last": "2026-11-04T10:00:00Z", "times": 3, "commit": "abc1234" + "0" * 33,
    "modified": False, "seeds": [1, 2, 3], "observed": -0.062, "interval": [-0.07, -0.05], "band": [0, None],
    "software": {"bertsecrets": "0.2.0"}, "circumstances": {"transformers": "5.1"}, "measurements": {},
}  # fmt: skip
SECOND = FIRST | {
    "verdict": "inconclusive", "made": "2026-11-09T10:30:00Z", "times": 1, "commit": "def5678" + "0" * 33,
    "modified": True, "observed": -0.021, "interval": [-0.03, 0.01], "circumstances": {"transformers": "5.2"},
}  # fmt: skip


def test_a_step_is_marked_and_told_in_a_sentence():
    heading, columns, _, first, second, told = "\n".join(history_lines([FIRST, SECOND])).splitlines()
    assert heading == "E1-rte on RTE, minilm, in depth"
    assert columns.split() == ["date", "commit", "seeds", "observed", "verdict", "-0.07", "0.01"]
    assert "2026-11-02 10:00  abc1234   1-3    -0.062 [-0.07, -0.05]  deviates, 3 times, last 2026-11-04" in first
    assert "2026-11-09 10:30  def5678+  1-3    -0.021 [-0.03, 0.01]   inconclusive, stepped" in second
    assert told == (
        "stepped between 2026-11-02 10:00 (abc1234) and 2026-11-09 10:30 (def5678+): -0.062 to -0.021; "
        "commit abc1234 -> def5678 (modified), transformers 5.1 -> 5.2"
    )
    assert {len(line.rsplit(maxsplit=1)[1]) for line in (first, second)} == {41}


def test_a_change_of_the_judge_alone_is_said_to_be_one():
    same = {"measurements": {"scores": "2026-11-02T09:00:00Z"}}
    told = list(history_lines([FIRST | same, SECOND | same | {"circumstances": FIRST["circumstances"]}]))[-1]
    assert "; the measurements are the same, so this is the judge's doing; commit " in told


def test_a_verdict_without_value_interval_commit_or_band_is_a_line_too():
    bare = FIRST | {"observed": None, "interval": None, "band": None, "commit": None, "modified": None, "seeds": []}
    *_, line = "\n".join(history_lines([bare])).splitlines()
    assert line.split()[2:5] == ["-", "-", "-"]
    assert line.endswith("." * 41)


def test_value_interval_and_band_lie_where_they_belong():
    one = {"observed": 5, "interval": (3, 7), "band": (1, 6)}
    assert drawing(one, 0, 10, width=11) == ".|.==o#=..."
    assert drawing(one | {"interval": (None, None), "band": None}, 0, 10, width=11) == "<====o====>"


def test_seeds_in_short():
    assert [seed_ranges(seeds) for seeds in ([], [5], [1, 2], [1, 3, 4, 5, 9])] == ["-", "5", "1-2", "1, 3-5, 9"]
