"""The paper's sentences, from FrameNet as distributed and from JSON lines."""

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertsecrets.errors import UserError
from bertsecrets.texts.framenet import (
    FrameSentence,
    choose,
    distance,
    find_words,
    read_jsonl,
    sentences_digest,
    token_range,
)
from bertsecrets.texts.framenet_xml import open_frames, read_framenet

HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
SPACE = 'xmlns="http://framenet.icsi.berkeley.edu"'

FRAME = f"""{HEAD}<frame name="Humming" ID="7" {SPACE}>
 <definition>Someone &lt;t&gt;hums&lt;/t&gt;.</definition>
 <FE name="Hummer" coreType="Core"/><FE name="Tune" coreType="Core"/><FE name="Listener" coreType="Core"/>
 <FE name="Place" coreType="Peripheral"/>
 <FEcoreSet><memberFE name="Hummer"/><memberFE name="Tune"/></FEcoreSet>
</frame>"""


def sentence(text, target, *elements, status="MANUAL", targets=None):
    """Return a <sentence> in FrameNet's format. Elements are (name, text); a text of None is a null instantiation."""
    places = "".join(label("Target", text, t) for t in targets or [target])
    overt = "".join(
        f'<label name="{name}" itype="INI"/>' if part is None else label(name, text, part) for name, part in elements
    )
    escaped = text.replace("&", "&amp;")
    return f"""<sentence ID="1"><text>{escaped}</text>
      <annotationSet status="UNANN"><layer rank="1" name="BNC"><label name="PNP" start="0" end="1"/></layer>
      </annotationSet>
      <annotationSet status="{status}"><layer rank="1" name="FE">{overt}</layer>
       <layer rank="2" name="FE"><label name="Hummer" start="0" end="0"/></layer>
       <layer rank="1" name="Target">{places}</layer></annotationSet></sentence>"""


def label(name, text, part):
    start = text.index(part)
    return f'<label name="{name}" start="{start}" end="{start + len(part) - 1}"/>'


def unit(*sentences):
    body = "\n".join(sentences)
    return f"""{HEAD}<lexUnit name="hum.v" frame="Humming" ID="1" {SPACE}>
 <header><frame><FE type="Core" name="Hummer"/></frame></header>
 <subCorpus name="manually-added">{body}</subCorpus></lexUnit>"""


GOOD = sentence("Ann & Bo were softly humming .", "humming", ("Hummer", "Ann & Bo"), ("Tune", None))
CASES = {
    "too long": sentence("Ann sat in the old red chair by the fire and was humming .", "humming", ("Hummer", "Ann")),
    "element too long": sentence("My four old aunts were all humming .", "humming", ("Hummer", "My four old aunts")),
    "element too near": sentence("Then Ann was humming .", "humming", ("Hummer", "Ann")),
    "other element too near": sentence("Ann was there humming .", "humming", ("Hummer", "Ann"), ("Place", "there")),
    "two targets": sentence("Ann will in time hum along .", "", ("Hummer", "Ann"), targets=["hum", "along"]),
    "target of two words": sentence("Ann will in time hum along .", "hum along", ("Hummer", "Ann")),
    "no core set": sentence("To him , some were humming .", "humming", ("Listener", "To him")),
    "not core": sentence("At home , some were humming .", "humming", ("Place", "At home")),
    "no annotation": sentence("Ann was once again humming .", "humming", ("Hummer", "Ann"), status="UNANN"),
}


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "fn"
    write(folder / "frame" / "Humming.xml", FRAME)
    write(folder / "lu" / "lu10.xml", unit(*CASES.values()))
    write(folder / "lu" / "lu9.xml", unit(GOOD))
    write(folder / "luIndex.xml", "<luIndex/>")
    return folder


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@pytest.mark.parametrize("case", CASES)
def test_each_filter_refuses_its_own_case(corpus, case):
    write(corpus / "lu" / "lu10.xml", unit(CASES[case]))
    chosen, refused = choose(*read_framenet(corpus))
    assert chosen == [FrameSentence("Ann & Bo were softly humming .", (21, 28), ((0, 8),))]
    assert chosen[0].words() == ("humming", ("Ann & Bo",))
    # Long and unannotated sentences are not read at all.
    assert sum(refused.values()) == (0 if case in {"too long", "no annotation"} else 1)


def test_a_folder_as_nltk_unpacks_it_is_the_same(corpus, tmp_path):
    expected = open_frames(corpus)
    nltk = tmp_path / "corpora" / "framenet_v17"
    shutil.copytree(corpus, nltk)
    assert open_frames(tmp_path / "corpora") == expected


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("lu/lu10.xml", unit(GOOD)[:-30], "lu10.xml is damaged"),
        ("lu/lu10.xml", unit(GOOD.replace('end="27"', 'end="x"')), "lu10.xml is damaged"),
        ("frame/Humming.xml", '<!DOCTYPE frame [<!ENTITY x "y">]>' + FRAME.removeprefix(HEAD), "may declare entities"),
        ("frame/Humming.xml", "<lexUnit/>", "Humming.xml is damaged"),
        ("frame/Humming.xml", FRAME.replace("<FE ", "<a>" * 100_000 + "<FE ", 1), "Humming.xml is damaged"),
        ("lu/lu10.xml", unit(GOOD.replace("Ann &amp; Bo were softly humming .", "")), "a sentence without words"),
        ("lu/lu10.xml", unit(GOOD.replace("text>", "texts>")), "no <text>"),
        ("lu/lu10.xml", unit(GOOD.replace('end="27"', 'end="2700"')), "a label spans characters 21 to 2700"),
    ],
    ids=lambda text: text[:20],
)
def test_a_damaged_file_is_named(corpus, name, text, complaint):
    write(corpus / name, text)
    with pytest.raises(UserError, match=complaint):
        open_frames(corpus)


def test_an_invalid_framenet_states_the_expected_format(tmp_path, corpus):
    with pytest.raises(UserError, match="framenet_v17"):
        open_frames(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match='holds the folders "lu" and "frame"'):
        open_frames(tmp_path / "empty")
    write(tmp_path / "fn.tar.xz", "an archive")
    with pytest.raises(UserError, match="fn.tar.xz is neither a JSONL file nor a folder: .* unpack it"):
        open_frames(tmp_path / "fn.tar.xz")
    shutil.copytree(corpus, corpus.parent / "two" / "one")
    shutil.copytree(corpus, corpus.parent / "two" / "other")
    with pytest.raises(UserError, match="contains two FrameNet folders"):
        open_frames(corpus.parent / "two")
    write(corpus / "lu" / "lu9.xml", unit(CASES["two targets"]))
    with pytest.raises(UserError, match="passes the filters"):
        open_frames(corpus)


texts = st.text(alphabet="ab ", min_size=1, max_size=12)


@settings(deadline=None)
@given(texts, st.data())
def test_token_ranges_equal_a_loop_over_characters(text, data):
    tokens, number, inside = [], -1, False
    for c in text:
        number += not c.isspace() and not inside
        inside = not c.isspace()
        tokens.append(number if inside else None)
    places = [i for i, token in enumerate(tokens) if token is not None]
    if places:
        start = data.draw(st.sampled_from(places))
        stop = data.draw(st.sampled_from([p for p in places if p >= start])) + 1
        assert list(token_range(text, (start, stop))) == sorted({t for t in tokens[start:stop] if t is not None})


@settings(deadline=None)
@given(*[st.integers(0, 9)] * 2, *[st.integers(1, 3)] * 2)
def test_distance_is_between_the_nearest_tokens(one, other, length, other_length):
    first, second = range(one, one + length), range(other, other + other_length)
    assert distance(first, second) == min(abs(i - j) for i in first for j in second)


def test_whole_words_come_before_parts_of_words():
    assert find_words("There he is , he said", "he") == [(6, 8), (14, 16)]
    assert find_words("unhappy", "happy") == [(2, 7)]
    assert find_words("a ( b", "( b") == [(2, 5)]
    assert find_words("abc", "x") == []


def test_json_lines_are_read_with_spans(tmp_path):
    write(
        tmp_path / "a.jsonl",
        '{"sentence": "He said he was tired .", "target": "tired", "core_elements": ["he", "He"]}\n\n'
        '{"sentence": "Öl , ran & ran .", "target": "ran", "core_elements": ["Öl"]}\n',
    )
    one, other = read_jsonl(tmp_path / "a.jsonl")
    assert (one.target, one.core_elements) == ((15, 20), ((8, 10), (0, 2)))
    assert (other.target, other.core_elements) == ((5, 8), ((0, 2),))
    assert open_frames(tmp_path / "a.jsonl") == [one, other]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "line 2: not valid JSON"),
        ("\udcff", "line 2: not UTF-8"),
        ("[" * 100_000, "line 2: not valid JSON"),
        ("[1]", "line 2: found a JSON list"),
        ('{"sentence": "a b", "target": "a"}', "line 2: an entry is missing"),
        ('{"sentence": "a b", "target": 3, "core_elements": ["b"]}', "line 2: an entry is missing"),
        ('{"sentence": "a b", "target": "c", "core_elements": ["b"]}', "line 2: target 'c' is not in"),
        ('{"sentence": "a b", "target": "a", "core_elements": ["b", "d"]}', "line 2: core element 'd' is not in"),
        (f'{{"sentence": "{"b" * 1999} a", "target": "a", "core_elements": ["a"]}}', "2001 characters and 1 core elem"),
        ('{"sentence": "a b", "target": "a", "core_elements": ["b"%s]}' % (', "b"' * 50), "and 51 core elements, but"),
    ],
    ids=lambda text: text[:20],
)
def test_a_bad_line_is_named(tmp_path, line, complaint):
    path = tmp_path / "a.jsonl"
    text = f'{{"sentence": "a b", "target": "a", "core_elements": ["b"]}}\n{line}\n'
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(UserError, match=complaint) as error:
        read_jsonl(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_files_that_macos_adds_are_skipped(corpus):
    write(corpus / "lu" / "._lu9.xml", "\0\5\x16\7")
    assert len(open_frames(corpus)) == 1


@pytest.mark.skipif("BERTSECRETS_FRAMENET" not in os.environ, reason="names no FrameNet folder")
def test_the_filters_on_the_real_framenet():
    """FrameNet 1.5 has 439 of the paper's 470 distinct sentences; 1.7 has them all."""
    annotations, core_sets = read_framenet(Path(os.environ["BERTSECRETS_FRAMENET"]))
    assert len(core_sets) > 1000
    assert 430 <= len(choose(annotations, core_sets)[0]) <= 480
    assert len(annotations) > 20000


def test_sentences_are_recognised_by_their_texts_in_any_order():
    one = FrameSentence("He was becoming agitated .", (16, 24), ((0, 2),))
    two = FrameSentence("Her eyes shone .", (9, 14), ((0, 8),))
    spaced = FrameSentence(" Her eyes shone .", (10, 15), ((1, 9),))
    assert sentences_digest([one, two]) == sentences_digest([two, one])
    others = ([one], [one, one, two], [one, spaced], [one, FrameSentence("Her eyes shone .", (9, 14), ((4, 8),))])
    assert len({sentences_digest(each) for each in ([one, two], *others)}) == 5
