"""Downloads come whole or not at all."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from xfed.data.raw.download import Download, UnreachableError, md5
from xfed.errors import InputError

CONTENT = bytes(range(256)) * 4096  # one MiB, so several blocks
MD5 = "c35cc7d8d91728a0cb052831bc4ef372"


class _Site(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path.startswith("/gone"):
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT[: len(CONTENT) // 2] if self.path.startswith("/cut") else CONTENT)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A web site on this machine."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Site)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_file_comes_whole(site: str, tmp_path: Path) -> None:
    file = Download(f"{site}/some/file.bin", MD5)
    assert file.name == "file.bin"
    file.fetch(tmp_path / "new" / "file.bin")
    assert (tmp_path / "new" / "file.bin").read_bytes() == CONTENT
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["file.bin"]
    assert md5(CONTENT) == MD5


@pytest.mark.parametrize("page", ["file.bin", "cut.bin"])
def test_a_wrong_md5_leaves_nothing(site: str, tmp_path: Path, page: str) -> None:
    wrong = "0" * 32 if page == "file.bin" else MD5
    with pytest.raises(InputError, match=f"gave a file with md5 [0-9a-f]{{32}}, not the published {wrong}"):
        Download(f"{site}/{page}", wrong).fetch(tmp_path / "new" / page)
    assert list((tmp_path / "new").iterdir()) == []


def test_what_cannot_be_reached_is_told_with_its_address(site: str, tmp_path: Path) -> None:
    with pytest.raises(UnreachableError, match=r"/gone\.bin: Not Found"):
        Download(f"{site}/gone.bin", MD5).fetch(tmp_path / "new" / "gone.bin")
    with pytest.raises(UnreachableError, match=r"file:///nowhere/x\.bin: "):
        Download("file:///nowhere/x.bin", MD5).fetch(tmp_path / "new" / "x.bin")
    assert not (tmp_path / "new").exists()
