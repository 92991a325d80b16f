"""The page for a person and the page of the interface, in a browser that reaches nothing but the server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.browser import open_browser
from tests.serving.served import Caller, serving
from xfed_runtime import Bundle, Policy
from xfed_runtime.serving.service import Service, Setup

pytestmark = pytest.mark.slow

SCREENSHOTS = os.environ.get("XFED_SCREENSHOTS")
"""A folder to leave screenshots in, for whoever wants to look."""


@pytest.fixture(scope="module")
def page(caller: Caller, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with open_browser(tmp_path_factory.mktemp("profile")) as browser:
        browser.get(f"http://127.0.0.1:{caller.port}/")
        yield browser


def wait(browser: Any, condition: str) -> Any:
    """Wait until a JavaScript expression holds; give its value."""
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, 30).until(lambda _: browser.execute_script(f"return {condition}"))


def find(browser: Any, selector: str) -> Any:
    from selenium.webdriver.common.by import By

    return browser.find_element(By.CSS_SELECTOR, selector)


def rows(browser: Any) -> list[list[str]]:
    script = "return [...document.querySelectorAll('#exits tbody tr')].map(r => [...r.cells].map(c => c.innerText))"
    return [list(map(str, row)) for row in browser.execute_script(script)]


def set_budget(browser: Any, share: int) -> None:
    browser.execute_script(
        "const b = document.getElementById('budget'); b.value = arguments[0]; b.dispatchEvent(new Event('input'))",
        share,
    )
    wait(browser, f"document.getElementById('share').textContent === '{share} %'")


def keep(browser: Any, name: str) -> None:
    if SCREENSHOTS:
        browser.save_screenshot(str(Path(SCREENSHOTS) / f"{name}.png"))


def test_a_picture_is_answered_by_every_exit_as_the_runtime_does(
    page: Any, bundle: Bundle, pixels: Any, tmp_path: Path
) -> None:
    wait(page, "!document.getElementById('main').hidden")
    picture = np.repeat(np.repeat((pixels[5, 0] * (255 / 16)).astype(np.uint8), 35, axis=0), 35, axis=1)
    Image.fromarray(picture).save(tmp_path / "digit.png")
    page.execute_script("document.getElementById('client').value = '3'")
    find(page, "#file").send_keys(str(tmp_path / "digit.png"))
    wait(page, "document.querySelectorAll('#exits tbody tr').length === 3")
    seen = (pixels[5, 0] * (255 / 16)).astype(np.uint8)[None, None] * (16 / 255)
    for number, row in enumerate(rows(page), 1):
        wanted = bundle.runtime(3).predict(seen, Policy("fixed", exit=number))
        assert row[1].split()[0] == str(wanted.labels[0])
        assert abs(int(row[2].split()[0]) - 100 * wanted.probabilities.max()) <= 1
        assert row[3].endswith(" ms")
        assert row[4] == f"{round(100 * bundle.macs[number - 1] / bundle.macs[-1])} %"
    assert find(page, "#problem").is_displayed() is False


def test_the_budget_decides_which_exit_answers(page: Any, bundle: Bundle) -> None:
    """The bundle has a policy for exit 1 and one for exit 3, each with its cost."""
    wait(page, "!document.getElementById('main').hidden")
    page.execute_script("[...document.querySelectorAll('#samples button')].find(b => b.innerText === '3').click()")
    set_budget(page, 100)
    wait(page, "document.querySelector('#exits tr.taken td')?.innerText === '3'")
    keep(page, "desktop-100")
    set_budget(page, 60)
    wait(page, "document.querySelector('#exits tr.taken td')?.innerText === '1'")
    assert "by exit 1 of 3" in find(page, "#sure").text
    keep(page, "desktop-60")


def test_the_keyboard_is_enough(page: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    wait(page, "!document.getElementById('main').hidden")
    page.execute_script("document.activeElement.blur()")
    reached = []
    for _ in range(20):
        page.switch_to.active_element.send_keys(Keys.TAB)
        reached.append(page.switch_to.active_element.get_attribute("id") or page.switch_to.active_element.text)
    assert {"client", "choose", "clear", "7", "budget"} <= set(reached)
    budget = find(page, "#budget")
    budget.send_keys(Keys.END)
    budget.send_keys(Keys.ARROW_LEFT)
    assert find(page, "#share").text == "99 %"


def test_drawing(page: Any) -> None:
    from selenium.webdriver import ActionChains

    find(page, "#clear").click()
    pad = find(page, "#pad")
    before = page.execute_script("return document.getElementById('pad').toDataURL()")
    ActionChains(page).move_to_element_with_offset(pad, 0, -80).click_and_hold().move_by_offset(
        0, 160
    ).release().perform()
    wait(page, "document.querySelectorAll('#exits tbody tr').length === 3")
    assert page.execute_script("return document.getElementById('pad').toDataURL()") != before


def test_nothing_was_wrong_and_nothing_came_from_elsewhere(page: Any, caller: Caller) -> None:
    assert page.get_log("browser") == []
    names = page.execute_script("return performance.getEntriesByType('resource').map(each => each.name)")
    assert names
    assert all(name.startswith((f"http://127.0.0.1:{caller.port}/", "data:")) for name in names)


def test_a_phone_in_the_dark(caller: Caller, tmp_path: Path) -> None:
    with open_browser(tmp_path, dark=True, width=390, height=844) as browser:
        for path in ("/", "/docs"):
            browser.get(f"http://127.0.0.1:{caller.port}{path}")
            wait(browser, "document.getElementById('about').textContent.length > 20")
            if path == "/":
                browser.execute_script("document.querySelectorAll('#samples button')[7].click()")
                wait(browser, "document.querySelectorAll('#exits tbody tr').length === 3")
                browser.execute_script("document.getElementById('budget').scrollIntoView()")
            assert browser.execute_script("return document.documentElement.scrollWidth") <= 390, "nothing sticks out"
            ground = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
            assert max(map(int, ground.strip("rgb()").split(","))) < 60
            keep(browser, f"phone{path.replace('/', '-')}")
        assert browser.get_log("browser") == []


def test_the_interface(page: Any, caller: Caller) -> None:
    page.get(f"http://127.0.0.1:{caller.port}/docs")
    wait(page, "document.querySelectorAll('#operations details').length > 0")
    text = page.execute_script("return document.body.textContent")
    for path, verbs in caller.get("/openapi.json")["paths"].items():
        for verb in verbs:
            assert f"{verb.upper()}{path}" in text
    assert "milliseconds until an input's answer" in text
    assert page.execute_script(
        "return [...document.querySelectorAll('a[href^=\"#\"]')].every(a => document.querySelector(a.hash))"
    )
    assert page.get_log("browser") == []


def test_a_server_that_wants_a_token(bundle: Bundle, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("a-token-for-client-3 3\n")
    with (
        serving(Service(bundle.root, Setup()), tmp_path / "tokens") as caller,
        open_browser(tmp_path / "profile") as browser,
    ):
        browser.get(f"http://127.0.0.1:{caller.port}/")
        wait(browser, "!document.getElementById('door').hidden")
        assert "a known token is needed" in find(browser, "#problem").text
        find(browser, "#token").send_keys("a-token-for-client-3\n")
        wait(browser, "!document.getElementById('main').hidden")
        assert browser.execute_script("return [...document.getElementById('client').options].map(o => o.value)") == [
            "3"
        ]
        assert find(browser, "#door").is_displayed() is False
