"""From a missing data set to a decoded one: downloads, interruptions, folders."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from xfed.data.raw.cache import Contents
from xfed.data.raw.containers import Container
from xfed.data.raw.download import Download, md5
from xfed.data.raw.source import PublishedSource
from xfed.errors import InputError


class Numbers(PublishedSource):
    """Two files of bytes; each byte is a sample and its own label."""

    name = "numbers"
    forms = ("numbers", "numbers.tar.gz")
    decoded = 0

    def decode(self, raw: Container) -> Contents:
        Numbers.decoded += 1
        values = np.frombuffer(raw.get("a") + raw.get("b"), dtype=np.uint8)
        return Contents((len(values), 1, 1, 1), [values[:, None, None, None]], values, tuple("0123"))


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Numbers:
    """A data set that is published in a folder of this machine."""
    monkeypatch.setattr(Numbers, "decoded", 0)
    files = []
    for name, content in (("a", b"\x00\x01"), ("b", b"\x02\x03")):
        (tmp_path / name).write_bytes(content)
        files.append(Download((tmp_path / name).as_uri(), md5(content)))
    monkeypatch.setattr(Numbers, "downloads", tuple(files), raising=False)
    return Numbers()


def test_downloads_once_and_decodes_once(source: Numbers, root: Path, tmp_path: Path) -> None:
    assert source.find() is None
    assert source.load().labels.tolist() == [0, 1, 2, 3]
    assert sorted(path.name for path in (root / "numbers").iterdir()) == ["a", "b"]
    (tmp_path / "a").unlink()
    assert Numbers().load().labels.tolist() == [0, 1, 2, 3]
    assert Numbers.decoded == 1


def test_an_interrupted_download_shows_nothing_and_continues(source: Numbers, root: Path, tmp_path: Path) -> None:
    (tmp_path / "b").rename(tmp_path / "later")
    with pytest.raises(InputError, match="was not found and could not be downloaded"):
        source.load()
    assert source.find() is None
    (tmp_path / "later").rename(tmp_path / "b")
    (tmp_path / "a").unlink()
    assert source.load().labels.tolist() == [0, 1, 2, 3]
    assert [path.name for path in root.iterdir()] == ["numbers"]


def test_without_internet_the_message_says_which_file_to_put_where(source: Numbers, root: Path, tmp_path: Path) -> None:
    (tmp_path / "a").unlink()
    with pytest.raises(InputError) as caught:
        source.load()
    sentence = str(caught.value)
    assert sentence.startswith(f"data set 'numbers' was not found and could not be downloaded (file://{tmp_path}/a: ")
    assert sentence.endswith(f"; put a, b into '{root}/numbers'")
    assert "\n" not in sentence


def test_one_archive_is_named_with_its_folder(source: Numbers, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Numbers, "downloads", (Download("file:///nowhere/numbers.tar.gz", "0"),))
    with pytest.raises(InputError) as caught:
        source.load()
    assert str(caught.value).endswith(f"; put numbers.tar.gz or its unpacked folder numbers into '{root}'")


def test_a_folder_that_cannot_be_written_is_told(source: Numbers, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "file").write_text("in the way")
    monkeypatch.setenv("XFED_DATA", str(root / "file"))
    with pytest.raises(InputError, match=r"data set 'numbers' cannot be stored in '.*': Not a directory"):
        source.load()


def test_the_first_folder_wins_and_empty_ones_do_not_count(
    source: Numbers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, content in (("first", {}), ("second", {"a": b"\x03", "b": b"\x03"}), ("third", {"a": b"", "b": b""})):
        folder = tmp_path / name / "numbers"
        folder.mkdir(parents=True)
        for file, values in content.items():
            (folder / file).write_bytes(values)
    monkeypatch.setenv("XFED_DATA", f"{tmp_path}/first:{tmp_path}/second:{tmp_path}/third")
    assert source.load().labels.tolist() == [3, 3]
