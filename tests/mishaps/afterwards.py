"""What comes after training: policies, bundles, pages, and where they may not go."""

from __future__ import annotations

from tests.mishaps.mishap import folder, text, values
from tests.mishaps.runs import EXPORT, run

CASES = [
    run("no wish", "calibrate run", r"calibrate needs exactly one of budget, latency, deadline, max_drop and risk"),
    run("a budget too low", "calibrate run --budget 1%", r"a budget of .* is below what leaving at exit 1 costs"),
    run(
        "policies among other files",
        "calibrate run --budget 60% -o cut",
        r"folder 'cut' holds '.*' and would be replaced; give",
    ),
    run(
        "policies that are none",
        EXPORT,
        r"policy file 'run/policies/shared\.json': policy kind is 'magic'; allowed: confidence",
        text("run/policies/shared.json", '{"kind": "magic"}'),
    ),
    run(
        "a device's table that is none",
        "calibrate run --latency 5ms --device d.json",
        r"latency table 'd\.json': a latency table is a JSON object, not list",
        text("d.json", "[]"),
    ),
    run(
        "a page in the place of a device",
        "report run -o /dev/null",
        r"'/dev/null' is no plain file and would be replaced by one",
    ),
    run("no bundle", "verify run", r"'run' is not a bundle: bundle\.json cannot be read"),
    run(
        "a bundle without clients",
        "verify b",
        r"bundle 'b' has a damaged bundle\.json: clients; allowed: at least one",
        values(
            "b/bundle.json",
            {
                "bundle": 2,
                "files": {},
                "classes": ["a"],
                "macs": [1],
                "formats": ["onnx-stages"],
                "personal": [],
                "together": None,
                "clients": {},
            },
        ),
    ),
    run(
        "a bundle of another version",
        "verify b",
        r"bundle 'b' has version 0; this runtime reads",
        values("b/bundle.json", {"bundle": 0}),
    ),
    run("no folder of runs", "runs nowhere", r"'nowhere' is no folder; runs go to 'runs'"),
    run("no runs in it", "report hollow -o p.html", r"there is no finished run under 'hollow'", folder("hollow")),
    run("no place for a bundle", "export run", r"Missing option '-o'"),
    run(
        "policies in the place of a file",
        "calibrate run --budget 60% -o run/settings.yaml",
        r"'run/settings\.yaml' is no folder and would be replaced by one; give another name",
    ),
    run(
        "a page in the place of settings",
        "report run -o run/settings.yaml",
        r"'run/settings\.yaml' is there and no page; give another name",
    ),
    run(
        "latencies in the place of settings",
        "device-bench b -o run/settings.yaml",
        r"'run/settings\.yaml' is there and no table of latencies; give another name",
    ),
    run("delta without a risk", "calibrate run --budget 60% --delta 0.5", r"delta goes with risk, not with budget"),
    run("a loss without a risk", "calibrate run --max-drop 1% --loss error", r"loss goes with risk, not with max_drop"),
    run(
        "a quantile without a deadline",
        "calibrate run --risk 0.1 --quantile 0.99",
        r"quantile goes with deadline, not with risk",
    ),
    run("a run as a folder of kept ones", "paper page run", r"'run' is a run; 'xfed paper keep run --to FOLDER' keeps"),
]
