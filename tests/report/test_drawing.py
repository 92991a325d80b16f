"""Figures: what is written below them fits."""

from __future__ import annotations

import pytest

from xfed.report.drawing import Drawing


@pytest.mark.parametrize(("panels", "width"), [(1, 5.2), (2, 5.2), (1, 8.0)])
@pytest.mark.parametrize("text", ["short", "otherwise than there: model = convnet, rounds = 60. " * 6])
def test_a_footer_stays_within_its_figure(panels: int, width: float, text: str) -> None:
    drawing = Drawing.of(panels, "title", text.strip(), width)
    figure = drawing.figure
    figure.draw_without_rendering()
    (footer,) = [each for each in figure.texts if each.get_text() != "title"]
    assert footer.get_text().split() == text.split()
    box = footer.get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.width
