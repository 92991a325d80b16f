"""Folders and archives read alike, and an archive cannot write or point outside of itself."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.data.published import write_folder, write_tar, write_zip
from xfed.data.raw.containers import Container, Folder, Tar, Zip, open_container
from xfed.errors import InputError

FILES = {"a.txt": b"one", "deep/b.txt": b"two", "c.bin": bytes(5000)}


@pytest.fixture(params=["folder", "tar", "zip"])
def container(request: pytest.FixtureRequest, tmp_path: Path) -> Container:
    """The same files, unpacked or in an archive."""
    if request.param == "folder":
        return open_container(write_folder(tmp_path / "top", {**FILES, ".hidden": b"x", ".git/y": b"y"}))
    if request.param == "tar":
        return open_container(write_tar(tmp_path / "x.tar.gz", "top", FILES), ["top"])
    return open_container(write_zip(tmp_path / "x.zip", "top", FILES), ["top"])


def test_all_forms_read_alike(container: Container) -> None:
    assert container.names() == ["a.txt", "c.bin", "deep/b.txt"]
    assert dict(container.read(["deep/b.txt", "a.txt"])) == {"a.txt": b"one", "deep/b.txt": b"two"}
    assert container.get("a.txt") == b"one"
    assert "a.txt" in container.where("a.txt")
    assert str(container.path) in container.where("a.txt")


def test_a_missing_file_is_named(container: Container) -> None:
    with pytest.raises(InputError, match=r"is incomplete: it has no d\.txt"):
        list(container.read(["a.txt", "d.txt"]))


def test_signature_tells_changes(tmp_path: Path) -> None:
    folder = Folder(write_folder(tmp_path / "f", {"a": b"1", "b/c": b"22"}))
    before = folder.signature()
    assert [(name, size) for name, size, _ in before] == [("a", 1), ("b/c", 2)]
    (tmp_path / "f" / "a").write_bytes(b"12")
    assert folder.signature() != before
    archive = Container(tmp_path / "f" / "a")
    assert [(name, size) for name, size, _ in archive.signature()] == [("a", 2)]


def test_one_plain_file(tmp_path: Path) -> None:
    (tmp_path / "one.npz").write_bytes(b"content")
    container = open_container(tmp_path / "one.npz")
    assert container.names() == ["one.npz"]
    assert container.get("one.npz") == b"content"


@pytest.mark.parametrize("member", ["../evil.txt", "top/../../evil.txt", "/evil.txt"])
@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_members_outside_the_folder_are_refused_and_not_written(
    tmp_path: Path, root: Path, member: str, kind: str
) -> None:
    path = root / ("x.tar" if kind == "tar" else "x.zip")
    if kind == "tar":
        with tarfile.open(path, "w") as archive:
            info = tarfile.TarInfo(member)
            info.size = 4
            archive.addfile(info, io.BytesIO(b"evil"))
    else:
        with zipfile.ZipFile(path, "w") as zipped:
            zipped.writestr(member, b"evil")
    with pytest.raises(InputError, match="points outside its folder"):
        open_container(path, ["top"]).names()
    with pytest.raises(InputError, match="points outside its folder"):
        list(open_container(path, ["top"]).read(["evil.txt"]))
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [path]


def test_links_in_an_archive_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        link = tarfile.TarInfo("top/a.txt")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path / "secret")
        archive.addfile(link)
    with pytest.raises(InputError, match=r"has no a\.txt"):
        list(Tar(tmp_path / "x.tar", ["top"]).read(["a.txt"]))


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 0.95])
def test_a_cut_archive_is_told(tmp_path: Path, share: float) -> None:
    noise = {"a.txt": bytes(range(256)) * 200, "b.txt": b"".join(n.to_bytes(4, "big") for n in range(40_000))}
    for path in (write_tar(tmp_path / "x.tar.gz", "top", noise), write_zip(tmp_path / "x.zip", "top", noise)):
        content = path.read_bytes()
        path.write_bytes(content[: int(share * len(content))])
        with pytest.raises(InputError, match=r"is damaged or cut short \(.*\); delete it and fetch it again"):
            list(open_container(path, ["top"]).read(["a.txt", "b.txt"]))


def test_a_flipped_byte_in_a_zip_is_told(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "x.zip", "top", {"a.txt": b"A" * 1000})
    content = bytearray(path.read_bytes())
    content[content.index(b"A" * 100)] = ord("B")
    path.write_bytes(content)
    with pytest.raises(InputError, match="damaged"):
        Zip(path, ["top"]).get("a.txt")
