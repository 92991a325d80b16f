"""Figures: what is written below them fits, and no two series look alike."""

from __future__ import annotations

import pytest

from xfed.report.drawing import PALETTE, Drawing, bars


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


def test_bars_of_a_variant_are_the_methods_own_hatched() -> None:
    """Ten series of five methods, as in Table 3, and more methods than there are colours."""
    pairs = {name: [1.0] for method in "abcde" for name in (method, f"{method}, local KD")}
    for series in (pairs, {f"method {number}": [1.0] for number in range(2 * len(PALETTE))}):
        axes = Drawing.of(1, "title", "text").panels[0]
        bars(axes, ["exit 1"], series)
        looks = [(axes.patches[k].get_facecolor(), axes.patches[k].get_hatch()) for k in range(len(series))]
        assert len(set(looks)) == len(series)
        if series is pairs:
            assert all(plain[0] == variant[0] for plain, variant in zip(looks[::2], looks[1::2], strict=True))
