"""The site: it builds, its links hold, it asks no other host for anything, the code writes its reference."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import xfed
from tests.pages.blocks import ROOT, read_blocks
from xfed.cli.group import COMMANDS
from xfed.components import load_plugins
from xfed.experiment.experiment import ROLES, SECTION_OF

LOADS = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "link": "href",
}
FOREIGN = re.compile(r"\s*(?:https?:)?//")
OWN_PAGES = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "runtime/README.md"]


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    specification = importlib.util.spec_from_file_location("site_build", ROOT / "docs" / "site" / "build.py")
    assert specification
    assert specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


class Requests(HTMLParser):
    """Collects what a browser would load to show a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        address = given.get(LOADS.get(tag, ""))
        if address and not (tag == "link" and given.get("rel") == "canonical"):
            self.found.append(address)


@pytest.mark.slow
def test_the_site_builds_and_stays_at_home(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pages = sorted((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        requests = Requests()
        requests.feed(page.read_text(encoding="utf-8"))
        assert requests.found
        assert not [address for address in requests.found if FOREIGN.match(address)], page
    for sheet in (tmp_path / "site").rglob("*.css"):
        imported = re.findall(r"url\(['\"]?([^)'\"]+)|@import ['\"]([^'\"]+)", sheet.read_text(encoding="utf-8"))
        assert not [address for pair in imported for address in pair if FOREIGN.match(address)], sheet
    formulas = (tmp_path / "site" / "explanation" / "xfed.html").read_text(encoding="utf-8")
    assert formulas.count("<math") > 20
    assert 'arithmatex">\\(' not in formulas


def test_pages_and_folders_of_results_find_their_place(
    generator: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generator, "ROOT", tmp_path)
    for name in ("index", "how-to/known", "how-to/new", "results/README", "results/b/README", "results/a/README"):
        (tmp_path / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "docs" / f"{name}.md").touch()
    nav = [{"xfed": ["index.md"]}, {"How-to": ["how-to/known.md"]}, {"Results": ["results/README.md"]}]
    assert generator.on_config(SimpleNamespace(site_name="xfed", nav=nav)).nav == [
        {"xfed": ["index.md"]},
        {"How-to": ["how-to/known.md", "how-to/new.md"]},
        {"Results": ["results/README.md", {"a": "results/a/README.md"}, {"b": "results/b/README.md"}]},
    ]


def test_plain_text_is_no_markdown(generator: ModuleType) -> None:
    commands = generator.commands_page()
    assert "`--methods a,b,c|all`" in commands
    assert re.search(r"(?<!\\)\$\(xfed completion", commands) is None, "a shell's words are no formula"
    assert generator.on_page_content("<td>1 ± 2 (seeds ± 3)</td> 4 ± 5") == (
        "<td>1&nbsp;±&nbsp;2 (seeds&nbsp;±&nbsp;3)</td> 4 ± 5"
    )


def test_the_reference_is_complete(generator: ModuleType) -> None:
    settings, commands, python = generator.settings_page(), generator.commands_page(), generator.python_page()
    for name in SECTION_OF:
        assert f"| `{name}` |" in settings
    for registry in ROLES.values():
        for component in registry:
            assert f"### {component.name}\n" in settings
            for setting in component.Settings.model_fields:
                assert f"| `{component.name}.{setting}` |" in settings
    for name in COMMANDS:
        assert f"## xfed {name}\n" in commands
    for name in xfed.__all__:
        assert name.startswith("__") or f"### xfed.{name}\n" in python


def test_a_new_method_is_small_and_documents_itself(generator: ModuleType, tmp_path: Path) -> None:
    [block] = [b for b in read_blocks(ROOT / "docs/how-to/new-method.md") if b.save_as == "anchored.py"]
    assert len(block.content.splitlines()) < 60
    plugin = tmp_path / "anchored.py"
    plugin.write_text(block.content.replace('"anchored"', '"documented"'), encoding="utf-8")
    load_plugins([plugin])
    page = generator.settings_page()
    assert "### documented\n\nPersonal exits that warm up first" in page
    assert "| `documented.mu` | float | `0.01` | μ of the pull" in page


@pytest.mark.parametrize("page", OWN_PAGES)
def test_links_beside_the_site_hold(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not FOREIGN.match(target) and "://" not in target:
            assert ((ROOT / page).parent / target.partition("#")[0]).exists(), f"{page} links to {target}"
