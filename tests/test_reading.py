"""Readers of the user's files: text, YAML and arrays."""

import numpy as np
import pytest

from bertsecrets.errors import UserError
from bertsecrets.reading import YamlError, lines_of, read_bytes, read_npy, read_text, read_yaml


def test_a_text_may_have_a_byte_order_mark_and_any_line_ends(tmp_path):
    (tmp_path / "a").write_bytes("\ufeffone\r\ntwo\u2028three\n".encode())
    assert lines_of(read_text(tmp_path / "a")) == ["one", "two\u2028three", ""]


def test_an_endless_device_is_refused(tmp_path):
    (tmp_path / "zeros").symlink_to("/dev/zero")
    with pytest.raises(UserError, match="larger than 1 MiB"):
        read_bytes(tmp_path / "zeros", limit=2**20)


@pytest.mark.parametrize("name", ["none", "a\0b"])
def test_a_file_that_cannot_be_read_is_named(tmp_path, name):
    with pytest.raises(UserError, match="cannot read"):
        read_text(tmp_path / name)


def test_yaml_may_have_aliases_and_merged_keys():
    _, data = read_yaml("base: &base {a: 1, b: 2}\nmore: {<<: *base, b: 3}\nsame: [*base, *base]\n")
    assert data == {"base": {"a": 1, "b": 2}, "more": {"a": 1, "b": 3}, "same": [{"a": 1, "b": 2}] * 2}


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("a: 1\nb:\n  c: 1\n  c: 2\n", 4, "duplicate key 'c'"),
        ("a: 1\nb: [", 3, "not valid YAML"),
        ("a: 0.10\nb: [-010]", 2, "-010 is not a decimal number"),
        ("a: 0\nb: 1:30", 2, "1:30 is not a decimal number"),
    ],
)
def test_an_error_in_yaml_has_its_line(text, line, told):
    with pytest.raises(YamlError, match=told) as error:
        read_yaml(text)
    assert error.value.line == line


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", ["<f4", ">f8", "|u1", "<U5"])
def test_arrays_are_read_as_numpy_writes_them(tmp_path, order, kind):
    array = np.array(np.arange(6).reshape(2, 3), dtype=kind, order=order)
    np.save(tmp_path / "a.npy", array)
    np.testing.assert_array_equal(read_npy((tmp_path / "a.npy").read_bytes()), array)
