"""Archives are read completely, within limits, and with any compression; truncated archives are rejected."""

import gzip
import io
import tarfile

import pytest
from packed import tarred, zipped

from instruments import archives
from instruments.archives import DamagedArchiveError, read_members

FILES = {"a/" * 99 + "long.txt": b"long", "a/one.txt": b"one " * 300, "a/two.txt": b"two", "a/other.md": b"other"}
PACKERS = [bytes, gzip.compress]


def read(tmp_path, data: bytes, **options) -> dict[str, bytes]:
    (tmp_path / "packed").write_bytes(data)
    return dict(read_members(tmp_path / "packed", lambda name: name.endswith(".txt"), **options))


WANTED = {name: content for name, content in FILES.items() if name.endswith(".txt")}


@pytest.mark.parametrize("pack", PACKERS)
@pytest.mark.parametrize("kind", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_the_wanted_files_of_every_kind_of_tar_are_read(tmp_path, pack, kind):
    assert read(tmp_path, pack(tarred(FILES, kind))) == WANTED


def test_the_wanted_files_of_a_zip_are_read(tmp_path):
    assert read(tmp_path, zipped(FILES)) == WANTED


@pytest.mark.parametrize("data", [tarred(FILES), zipped(FILES)])
def test_a_file_or_an_archive_beyond_its_limit_is_refused(tmp_path, data, monkeypatch):
    assert read(tmp_path, data, limit=1200) == WANTED
    with pytest.raises(DamagedArchiveError, match=r"a/one.txt unpacks to more than"):
        read(tmp_path, data, limit=1199)
    monkeypatch.setattr(archives, "TOTAL_LIMIT", 1202)
    with pytest.raises(DamagedArchiveError, match="unpacks to more than"):
        read(tmp_path, data)


def test_unwanted_members_count_towards_the_size_limit_of_a_tar(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "TOTAL_LIMIT", 2**20)
    data = tarred({"a/rest.md": bytes(2**21), **FILES})
    with pytest.raises(DamagedArchiveError, match="it unpacks to more than 1 MiB"):
        read(tmp_path, gzip.compress(data))


@pytest.mark.parametrize("pack", PACKERS)
def test_an_archive_without_the_end_of_its_stream_is_refused(tmp_path, pack):
    """In compressed archives, all files and the zeros after them are present; only the final checksum is cut off."""
    data = pack(tarred(FILES))
    if pack is bytes:
        data = data.rstrip(b"\0")
    with pytest.raises(DamagedArchiveError):
        read(tmp_path, data[:-3])


def test_a_name_given_twice_is_refused(tmp_path):
    twice = io.BytesIO()
    with tarfile.open(fileobj=twice, mode="w") as archive:
        for _ in range(2):
            archive.addfile(tarfile.TarInfo("a.txt"))
    with pytest.raises(DamagedArchiveError, match="duplicate file"):
        read(tmp_path, twice.getvalue())
