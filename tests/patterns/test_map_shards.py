"""The suite's annotated maps: whole and in order, one file a draw, outside the package; where they are missing."""

import pytest
from calls import started
from patterned import pattern_map, pattern_set, save_read

from bertsecrets.cli.main import main
from bertsecrets.errors import MissingError, UserError
from bertsecrets.patterns.map_set import (
    ANNOTATIONS,
    MAPS,
    UNSEEN,
    VARIABLE,
    MapSet,
    add_draw,
    fingerprint,
    own_maps,
    shards,
)
from bertsecrets.session import Session


def test_the_maps_are_those_and_in_that_order_on_which_the_classifier_was_trained():
    """Names, values, labels and groups, in the order of the single file that held them before there was one a draw."""
    expected = {
        "": "f28233636ef31ea42a0e3a0c1ec0366aefbb690a2eda14ac525e7dc9432f61a0",
        UNSEEN: "c9dde36a2931fe240602be5505e010c2f5f3ba87793209942d415f80d73467a2",
    }
    assert {part: fingerprint(MapSet.load(own_maps(part))) for part in expected} == expected


def test_a_further_draw_rewrites_no_map(tmp_path):
    whole = pattern_set(10)
    whole[:6].save(tmp_path)
    first = (tmp_path / MAPS).read_bytes()
    assert add_draw(tmp_path, whole[6:]).name == "maps-0002.npz"
    assert (tmp_path / MAPS).read_bytes() == first
    assert [path.name for path in shards(tmp_path)] == ["maps-0001.npz", "maps-0002.npz"]
    loaded = MapSet.load(tmp_path)
    assert [one.name for one in loaded] == [one.name for one in whole]
    assert loaded.labels == whole.labels


def test_a_fingerprint_does_not_depend_on_how_maps_are_cut_into_files(tmp_path):
    whole = pattern_set(10)
    whole.save(tmp_path / "one")
    whole[:3].save(tmp_path / "three")
    add_draw(tmp_path / "three", whole[3:4])
    add_draw(tmp_path / "three", whole[4:])
    digests = {fingerprint(MapSet.load(tmp_path / name)) for name in ("one", "three")}
    assert digests == {fingerprint(whole)}
    assert fingerprint(whole[:9]) not in digests
    assert fingerprint(whole.take([1, 0, *range(2, 10)])) not in digests
    assert fingerprint(whole.relabelled({"tiny_0": "block"})) not in digests


def test_a_name_that_is_taken_is_refused_and_nothing_is_written(tmp_path):
    pattern_set(4).save(tmp_path)
    with pytest.raises(UserError, match="two maps are called 'tiny_3'"):
        add_draw(tmp_path, MapSet((pattern_map(3), pattern_map(9))))
    assert len(shards(tmp_path)) == 1
    (tmp_path / "maps-0002.npz").write_bytes((tmp_path / MAPS).read_bytes())
    with pytest.raises(UserError, match="maps-0002.npz has a map 'tiny_0' that is also in another file"):
        MapSet.load(tmp_path)


def test_a_set_that_an_earlier_version_wrote_is_read(tmp_path):
    pattern_set(4).save(tmp_path)
    (tmp_path / MAPS).rename(tmp_path / "maps.npz")
    assert len(MapSet.load(tmp_path)) == 4


def test_labels_whose_maps_are_missing_are_not_overwritten(tmp_path):
    pattern_set(4).save(tmp_path)
    (tmp_path / MAPS).unlink()
    with pytest.raises(UserError, match="holds other files"):
        pattern_set(3).save(tmp_path)
    assert (tmp_path / ANNOTATIONS).read_text().count("\n") == 5


@pytest.mark.parametrize("arguments", [("lab", "train-patterns"), ("measure", "pattern-quality", "--model", "minilm")])
def test_missing_maps_are_one_line_that_says_how_to_get_them(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nowhere"))
    monkeypatch.chdir(tmp_path)
    assert main([*arguments, *(["--offline"] if "measure" in arguments else [])]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert f"annotated maps are not in {tmp_path / 'nowhere'}" in line
    assert "dvc pull data/patterns.dvc" in line
    assert "BERTSECRETS_MAPS=DIR" in line


def test_a_run_over_many_claims_skips_the_one_that_needs_the_maps(tmp_path, monkeypatch):
    bench = Session(store=tmp_path / "runs", device="cpu", offline=True)
    assert bench.missing("pattern-quality", "all") is None
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert "dvc pull data/patterns.dvc" in bench.missing("pattern-quality", "all")
    with pytest.raises(MissingError):
        own_maps()


def test_maps_may_lie_elsewhere(tmp_path, monkeypatch):
    pattern_set(5).save(tmp_path / "mine")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "mine"))
    assert len(MapSet.load(own_maps())) == 5
    with pytest.raises(MissingError, match="unseen"):
        own_maps(UNSEEN)


def alone(code: str, *absent: str) -> tuple[int, str, str]:
    """Run Python in which some packages cannot be imported; return exit code, output and errors."""
    process = started("\n".join(["import sys", *(f"sys.modules[{name!r}] = None" for name in absent), code]))
    output, errors = process.communicate()
    return process.returncode, output, errors


@pytest.mark.slow
def test_measuring_patterns_needs_neither_scikit_learn_nor_pillow():
    code = (
        "import torch\n"
        "import bertsecrets.measures.patterns\n"
        "from bertsecrets.patterns.classifier import PatternClassifier, chosen_folder, held_out_errors, read_report\n"
        "from bertsecrets.patterns.map_stack import MapStack\n"
        "held_out_errors(read_report(chosen_folder()), 'special')\n"
        "column = torch.zeros(12, 12)\n"
        "column[:, 0] = 1\n"
        "maps = MapStack.of([column.numpy()], [7])\n"
        "print(int(PatternClassifier.load(chosen_folder(), 'special').of_maps(maps).argmax()))"
    )
    _, output, errors = alone(code, "sklearn", "PIL")
    assert output.strip() == "0", errors  # vertical


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "name", "command"),
    [
        ("sklearn", "scikit-learn", "lab train-patterns --cnn-epochs 0 --data set --output out"),
        ("sklearn", "scikit-learn", "measure pattern-quality --model minilm --offline --store runs"),
        ("PIL", "pillow", "lab sheets set out"),
    ],
)
def test_what_needs_the_extra_names_it_in_one_line(package, name, command, tmp_path, monkeypatch):
    save_read(pattern_set(60), tmp_path / "set")
    monkeypatch.chdir(tmp_path)
    code, _, errors = alone(f"from bertsecrets.cli.main import main\nsys.exit(main({command.split()!r}))", package)
    assert code == 2, errors
    last = errors.strip().splitlines()[-1]
    assert f'needs {name}, which is not installed: pip install "bertsecrets[lab]"' in last


def test_whether_the_classifier_can_be_judged_is_told_without_torch_or_scikit_learn():
    code = (
        "from bertsecrets.patterns.needs import held_out_problem\n"
        "print(held_out_problem(), {'torch', 'sklearn'} & sys.modules.keys())\n"
        "sys.modules['sklearn'] = None\n"
        "print(held_out_problem())"
    )
    _, output, errors = alone(code)
    known, missing = output.splitlines()
    assert known == "None set()", errors
    assert 'pip install "bertsecrets[lab]"' in missing
