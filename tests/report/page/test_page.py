"""The page in a real browser: what it says live is what Python says for the same thresholds."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.conftest import tiny
from xfed import Run, run
from xfed.calibration.outcomes import outcome
from xfed.cli import execute
from xfed.report.page.content import GRID
from xfed.runs.directory import TraceOf
from xfed_runtime.policy import Policy

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
DRIVER = shutil.which("chromedriver")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason="needs chromium and chromedriver"),
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Two methods on digits, with calibration samples; the first answers with running means."""
    out = tmp_path_factory.mktemp("runs")
    answers = {"fedper": "running", "xfed": "own"}
    return {
        name: run(tiny(method=name, answers=kind, out=out / name, calibration=0.3, alpha=0.3, epochs=3), progress=False)
        for name, kind in answers.items()
    }


@pytest.fixture(scope="module")
def browser(runs: dict[str, Run], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    """Chromium with the page of both runs open, written by the command."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    folder = tmp_path_factory.mktemp("page")
    page = folder / "report.html"
    assert execute(["report", *(str(each.path) for each in runs.values()), "-o", str(page)]) == 0
    settings = webdriver.ChromeOptions()
    assert CHROMIUM is not None
    settings.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1280,1000"):
        settings.add_argument(argument)
    settings.add_experimental_option("prefs", {"download.default_directory": str(folder)})
    settings.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=settings, service=Service(DRIVER))
    try:
        driver.execute_cdp_cmd("Network.enable", {})
        offline = {"offline": True, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        driver.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
        driver.get(page.as_uri())
        until(lambda: driver.execute_script("return document.documentElement.dataset.ready") == "yes")
        yield driver
    finally:
        driver.quit()


def until(true: Callable[[], object]) -> None:
    for _ in range(200):
        if true():
            return
        time.sleep(0.05)
    raise AssertionError("waited in vain")


def expected(found: Run, thresholds: float | dict[int, float] | tuple[float, ...], of: TraceOf = "test") -> Any:
    """Give mean accuracy, mean cost and mean shares over clients, by the runtime's own policies."""
    trace = found.trace(of)
    assert trace is not None
    outcomes = []
    for client, own in trace.by_client().items():
        threshold = thresholds[client] if isinstance(thresholds, dict) else thresholds
        policy = Policy("confidence", threshold=threshold, answer=found.experiment.answering())
        outcomes.append(outcome(policy, own, found.exit_macs))
    return (
        np.mean([each.accuracy for each in outcomes]),
        np.mean([each.cost for each in outcomes]),
        np.mean([each.shares for each in outcomes], axis=0),
    )


def live(browser: Chrome) -> tuple[float, float, list[float]]:
    def value(name: str) -> str:
        text: str = browser.find_element("id", f"live-{name}").get_attribute("data-value") or ""
        return text

    return float(value("accuracy")), float(value("cost")), json.loads(value("shares"))


def same(browser: Chrome, wanted: Any) -> None:
    accuracy, cost, shares = live(browser)
    assert accuracy == pytest.approx(wanted[0], abs=5e-5)
    assert cost == pytest.approx(wanted[1], rel=5e-5)
    assert shares == pytest.approx(wanted[2].tolist(), abs=5e-5)
    assert browser.find_element("id", "live-accuracy").text == f"{100 * wanted[0]:.2f} %"


def chosen(browser: Chrome, name: str = "shared") -> float:
    return float(browser.find_element("id", f"threshold-{name}-said").text)


def choose_mode(browser: Chrome, value: str) -> None:
    browser.execute_script("arguments[0].click()", browser.find_element("css selector", f"input[value={value}]"))


def slide(browser: Chrome, name: str, threshold: float) -> None:
    """Move a slider with the keyboard, from its far end."""
    from selenium.webdriver.common.keys import Keys

    slider = browser.find_element("id", f"threshold-{name}")
    steps = int(np.searchsorted(GRID, threshold))
    slider.send_keys(Keys.HOME)
    browser.execute_script(
        "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))", slider, steps - 1
    )
    slider.send_keys(Keys.ARROW_RIGHT)
    assert chosen(browser, name) == threshold


def test_nothing_is_loaded_and_nothing_fails(browser: Chrome) -> None:
    assert [entry["message"] for entry in browser.get_log("browser")] == []
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert browser.find_element("id", "active").text.split() == ["fedper", "xfed"]


def test_dragging_the_point(browser: Chrome, runs: dict[str, Run]) -> None:
    from selenium.webdriver import ActionChains

    choose_mode(browser, "shared")
    handle = browser.find_element("id", "handle")
    seen = set()
    for distance in (-250, 90, 130):
        ActionChains(browser).drag_and_drop_by_offset(handle, distance, 20).perform()
        seen.add(chosen(browser))
        same(browser, expected(runs["xfed"], chosen(browser)))
    assert len(seen) == 3


def test_keyboard_moves_the_point(browser: Chrome, runs: dict[str, Run]) -> None:
    from selenium.webdriver.common.keys import Keys

    choose_mode(browser, "shared")
    handle = browser.find_element("id", "handle")
    handle.send_keys(Keys.HOME)
    same(browser, expected(runs["xfed"], 0.0))
    handle.send_keys(Keys.PAGE_UP, Keys.PAGE_UP, Keys.ARROW_RIGHT)
    assert chosen(browser) == 0.101
    same(browser, expected(runs["xfed"], 0.101))
    handle.send_keys(Keys.END)
    same(browser, expected(runs["xfed"], 1.0))


@pytest.mark.parametrize("threshold", [0.25, 0.45, 0.6, 0.801, 0.9997])
def test_live_figures(browser: Chrome, runs: dict[str, Run], threshold: float) -> None:
    choose_mode(browser, "shared")
    slide(browser, "shared", threshold)
    same(browser, expected(runs["xfed"], threshold))
    there = expected(runs["xfed"], threshold, "calibration")
    assert browser.find_element("id", "live-other").text.startswith(f"{100 * there[0]:.2f} %")


def test_thresholds_per_exit_and_their_policy(browser: Chrome, runs: dict[str, Run]) -> None:
    choose_mode(browser, "exits")
    slide(browser, "1", 0.35)
    slide(browser, "2", 0.52)
    wanted = expected(runs["xfed"], (0.35, 0.52))
    same(browser, wanted)
    assert downloaded(browser, "shared.json").threshold == (0.35, 0.52)


def test_thresholds_per_client_and_their_policy(browser: Chrome, runs: dict[str, Run]) -> None:
    from selenium.webdriver.support.ui import Select

    choose_mode(browser, "shared")
    slide(browser, "shared", 0.5)
    choose_mode(browser, "client")
    Select(browser.find_element("id", "client")).select_by_value("3")
    slide(browser, "client", 0.3)
    trace = runs["xfed"].trace("test")
    assert trace is not None
    own = outcome(Policy("confidence", threshold=0.3), trace.of_client(3), runs["xfed"].exit_macs)
    accuracy, cost, shares = live(browser)
    assert (accuracy, cost) == (pytest.approx(own.accuracy, abs=5e-5), pytest.approx(own.cost, rel=5e-5))
    everyone = expected(runs["xfed"], {client: 0.3 if client == 3 else 0.5 for client in trace.clients})
    assert shares == pytest.approx(everyone[2].tolist(), abs=5e-5)
    policy = downloaded(browser, "client-000003.json")
    assert (policy.kind, policy.threshold, policy.answer) == ("confidence", 0.3, "own")
    choose_mode(browser, "shared")


def test_running_answers_and_their_policy(browser: Chrome, runs: dict[str, Run]) -> None:
    from selenium.webdriver.support.ui import Select

    hint = browser.find_element("id", "answers-hint")
    assert "an exit's own answer (xfed); the running mean of the exits passed (fedper)" in hint.text
    active = Select(browser.find_element("id", "active"))
    active.select_by_visible_text("fedper")
    try:
        choose_mode(browser, "shared")
        slide(browser, "shared", 0.45)
        same(browser, expected(runs["fedper"], 0.45))
        assert downloaded(browser, "shared.json").answer == "running"
    finally:
        active.select_by_visible_text("xfed")


def downloaded(browser: Chrome, name: str) -> Policy:
    path = Path(browser.current_url.removeprefix("file://")).with_name(name)
    path.unlink(missing_ok=True)
    browser.find_element("id", "download").click()
    until(path.is_file)
    return Policy.read(path)


def test_at_equal_cost(browser: Chrome, runs: dict[str, Run]) -> None:
    choose_mode(browser, "shared")
    slide(browser, "shared", 0.45)
    rows = browser.find_elements("css selector", "#equal tbody tr")
    assert [row.find_elements("tag name", "td")[0].text for row in rows] == ["xfed", "fedper"]
    accuracy, cost, _ = expected(runs["xfed"], 0.45)
    assert rows[0].find_elements("tag name", "td")[1].text == f"{100 * accuracy:.2f} %"
    affordable = [t for t in GRID if expected(runs["fedper"], float(t))[1] <= cost]
    cells = [cell.text for cell in rows[1].find_elements("tag name", "td")]
    assert float(cells[3]) == max(affordable)
    assert cells[1] == f"{100 * expected(runs['fedper'], max(affordable))[0]:.2f} %"


def test_summary_sorts(browser: Chrome, runs: dict[str, Run]) -> None:
    def column() -> list[str]:
        return [row.text.split()[0] for row in browser.find_elements("css selector", "#summary tbody tr")]

    button = "#summary thead th:nth-child(2) button"
    first = column()
    assert first[-1] == "majority"
    means = {name: each.summary().last.mean for name, each in runs.items()}
    assert first[:2] == sorted(means, key=lambda name: means[name], reverse=True)
    browser.execute_script("arguments[0].click()", browser.find_element("css selector", button))
    assert column()[:2] == first[:2][::-1]
    browser.execute_script("arguments[0].click()", browser.find_element("css selector", button))


@pytest.mark.parametrize(("width", "height"), [(1280, 1000), (390, 844)])
def test_nothing_is_wider_than_the_screen(browser: Chrome, width: int, height: int) -> None:
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        until(lambda: browser.execute_script("return document.documentElement.scrollWidth") <= width)
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
