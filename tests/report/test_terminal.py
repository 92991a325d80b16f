"""Lines and tables on a terminal: brackets are letters like others, words go on in the next line, nothing is lost."""

from __future__ import annotations

import pytest

from xfed.report.terminal import say, show_caption, show_listing, show_table


@pytest.fixture(autouse=True)
def a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")


def test_a_line_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    text = "bundle: runs/[red]/[/x] of a very long path that no terminal of forty columns holds"
    say(text)
    say(text, stderr=True)
    assert capsys.readouterr() == (f"{text}\n", f"{text}\n")


def test_a_listing_keeps_names_whole_and_wraps_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    words = "one two three four five six seven eight nine ten"
    show_listing(["name", "n", "what"], [("a-name-of-19-letters", "7", words)], whole=2, numbers=[1])
    header, rule, *rows = (line.rstrip() for line in capsys.readouterr().out.splitlines())
    assert header.split() == ["name", "n", "what"]
    assert set(rule) == {"─"}
    assert rows[0].startswith("a-name-of-19-letters  7  one two")
    assert " ".join(" ".join(rows).split()) == f"a-name-of-19-letters 7 {words}"
    assert max(map(len, (header, rule, *rows))) <= 40


def test_markup_in_cells_and_headers_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    show_listing(["[b]", "runs/[/a]"], [("[i]", "[red]x")], title="[title]")
    show_table(["[b]", "[/a]"], [["[i]", "[red]x"]], title="[title]")
    said = capsys.readouterr().out
    for text in ("[title]", "[b]", "runs/[/a]", "[i]", "[red]x"):
        assert text in said
    assert said.count("[title]") == said.count("[red]x") == 2


def test_what_is_hidden_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    header, row = ["method", "accuracy", "a column too many for it"], ["xfed", "50.00", "1"]
    hidden = show_table(header, [row])
    show_caption("One sentence. Another one that would need a third line of forty letters or so.", hidden=hidden)
    assert hidden
    said = capsys.readouterr().out
    assert "a column" not in said
    assert said.splitlines()[-1] == "One sentence. --wide: more."
    assert not show_table(header, [row], wide=True)
    assert "a column too many for it" in capsys.readouterr().out
