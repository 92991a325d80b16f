"""The example that runs a bundle in the browser, against the runtime."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.browser import open_browser
from tests.deployed import Deployed, rewrite
from xfed_runtime import Bundle, Policy

EXAMPLE = Path(__file__).parents[2] / "examples" / "web"

pytestmark = pytest.mark.slow

WALK = """
const [client, wishes, images, done] = arguments;
import("/walk.js").then(async ({ open, walk, within }) => {
  const network = await open("bundle", client), found = [];
  for (const wish of wishes) for (const image of images) {
    let exits = 0;
    const policy = wish.kind ? wish : within(network, wish.share);
    found.push({ ...await walk(network, image, policy, () => exits++), passed: exits });
  }
  done({ found });
}).catch((error) => done({ error: String(error) }));
"""


class Quiet(SimpleHTTPRequestHandler):
    def end_headers(self) -> None:
        self.send_header("cache-control", "no-store")
        super().end_headers()

    def log_message(self, format: str, *arguments: Any) -> None: ...


@pytest.fixture(scope="module")
def site(deployed: Deployed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Bundle]]:
    """The example with a bundle beside it, behind Python's own web server."""
    if shutil.which("npm") is None:
        pytest.skip("needs npm, for onnxruntime-web")
    folder = tmp_path_factory.mktemp("site")
    for file in EXAMPLE.iterdir():
        if file.is_file():
            shutil.copy(file, folder)
    if (EXAMPLE / "node_modules").is_dir():
        (folder / "node_modules").symlink_to(EXAMPLE / "node_modules")
    else:
        command = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund"]
        made = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
        if made.returncode:
            pytest.skip(f"npm does not install onnxruntime-web: {made.stderr.strip().splitlines()[-1]}")
    shutil.copytree(deployed.path, folder / "bundle")
    macs = deployed.bundle().macs
    name = deployed.bundle().manifest.policies
    policies = json.loads((folder / "bundle" / name).read_text())
    for number, accuracy in ((1, 0.5), (2, 0.7), (3, 0.9)):
        fixed = {"kind": "fixed", "exit": number, "answer": "own"}
        policies[f"exit-{number}"] = {"policy": fixed, "macs": macs[number - 1], "accuracy": accuracy}
    rewrite(folder / "bundle", name, json.dumps(policies).encode())
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", Bundle.open(folder / "bundle")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def browser(site: tuple[str, Bundle], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with open_browser(tmp_path_factory.mktemp("profile"), width=700, height=900) as opened:
        opened.set_script_timeout(60)
        opened.get(f"{site[0]}/?client=3")
        yield opened


@pytest.mark.parametrize("client", [0, 3, 4])
def test_the_walk_answers_as_the_runtime_does(
    site: tuple[str, Bundle], browser: Any, deployed: Deployed, client: int
) -> None:
    runtime, pixels = site[1].runtime(client), deployed.dataset.inputs[:8].numpy()
    confidence = runtime.predict(pixels, Policy("fixed", exit=1)).probabilities.max(axis=1)
    policies = [
        Policy("confidence", threshold=float(np.median(confidence))),
        Policy("margin", threshold=(0.02, 0.05)),
        Policy("entropy", threshold=2.2, answer="running"),
        Policy("entropy", threshold=2.2, enabled=(False, True, True)),
        Policy("fixed", exit=3, answer="running"),
    ]
    shares = [0.4, 0.9, 1.0]
    wishes = [policy.to_json() for policy in policies] + [{"share": share} for share in shares]
    got = browser.execute_async_script(WALK, client, wishes, pixels.reshape(8, -1).tolist())
    assert "error" not in got, got
    wanted = [runtime.predict(pixels, policy) for policy in policies]
    wanted += [runtime.predict(pixels, budget=f"{share:.0%}") for share in shares]
    found = iter(got["found"])
    assert len({int(exit_index) for each in wanted[:3] for exit_index in each.exits}) > 1, "some leave early"
    for each in wanted:
        for row in range(8):
            answer = next(found)
            assert answer["exit"] == answer["passed"] == each.exits[row] + 1, "and no exit behind it was computed"
            assert answer["macs"] == each.macs[row]
            np.testing.assert_allclose(answer["probabilities"], each.probabilities[row], atol=1e-5)


def test_a_file_that_someone_changed_is_refused(site: tuple[str, Bundle], browser: Any) -> None:
    weights = site[1].root / "networks" / "client-000004.bin"
    kept = weights.read_bytes()
    weights.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
    try:
        got = browser.execute_async_script(WALK, 4, [{"share": 1}], [[0] * 64])
    finally:
        weights.write_bytes(kept)
    assert got == {"error": "Error: networks/client-000004.bin is not what bundle.json vouches for"}


def test_the_page(site: tuple[str, Bundle], browser: Any) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    def wait(condition: str) -> None:
        WebDriverWait(browser, 60).until(lambda _: browser.execute_script(f"return {condition}"))

    wait("document.documentElement.dataset.ready === 'yes'")
    browser.execute_script("[...document.querySelectorAll('button')].find(b => b.textContent === '3').click()")
    wait("document.getElementById('answer').textContent.endsWith('by exit 3 of 3')")
    script = "const b = document.getElementById('budget'); b.value = 60; b.dispatchEvent(new Event('input'))"
    browser.execute_script(script)
    wait("document.getElementById('answer').textContent.endsWith('by exit 1 of 3')")
    assert browser.execute_script("return document.querySelectorAll('#exits tr').length") == 1
    if os.environ.get("XFED_SCREENSHOTS"):
        browser.save_screenshot(str(Path(os.environ["XFED_SCREENSHOTS"]) / "web.png"))
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
