"""Runs that were edited, damaged, mixed up or used by two: `run` is a finished one, `cut` an interrupted one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.bits import vouch
from tests.mishaps.mishap import Mishap, Prepare, cut, each, edited, flip, folder, gone, swapped, text, the
from xfed.files import read_tensors, write_tensors

NOT_WRITTEN = "is damaged or was changed: its content is not what was written"
SHORTER = r"is damaged: it has [\d,]+ bytes, and [\d,]+ were written"
ADVICE = "'xfed check run' says what can be done"
EXPORT, CALIBRATE = "export run -o bundle", "calibrate run --budget 60%"


def run(name: str, command: str, sentence: str, prepare: Prepare | None = None, code: int = 2) -> Mishap:
    """A mishap of a run."""
    return Mishap(name, command, sentence, prepare, code, runs=True)


def rewritten(name: str, change: Any) -> Prepare:
    """Write a JSON file of a run otherwise, and let the run's index vouch for it."""

    def prepare(root: Path) -> None:
        path = root / name
        path.write_text(json.dumps(change(json.loads(path.read_text()))))
        vouch(path.parent)

    return prepare


def without_a_tensor(root: Path) -> None:
    """Leave one tensor out of a client's model."""
    path = the(root, "run/models/client-000001.safetensors")
    tensors = {name: tensor.clone() for name, tensor in read_tensors(path).items()}
    write_tensors(path, dict(list(tensors.items())[1:]), {"shared": the(root, "run/models/shared-*").name})


def other_columns(root: Path) -> None:
    """Write a table of something else."""
    pq.write_table(pa.table({"loss": [1.0]}), root / "cut" / "rounds.parquet")


SETTINGS = [
    run("no run", "show nowhere", r"'nowhere' is not a run directory \(it has no settings\.yaml\)"),
    run("an empty folder", "check hollow", r"'hollow' is not a run directory", folder("hollow")),
    run(
        "a circle of links",
        "show loop",
        r"'loop/settings\.yaml' cannot be used: its symbolic links lead in a circle",
        lambda root: (root / "loop").symlink_to("loop"),
        1,
    ),
    run(
        "a very long name",
        f"show {'x' * 300}",
        r"'x{200}…' cannot be used: the name is too long; use a shorter one",
        code=1,
    ),
    run(
        "rate edited, show",
        "show run",
        r"edited .* \(training\.lr was 0\.05 and is 0\.5\).*'xfed check run --settings' puts it back",
        edited("run/settings.yaml", "lr: 0.05", "lr: 0.5"),
    ),
    run(
        "rate edited, resume",
        "resume cut",
        r"'cut/settings\.yaml' was edited .*\(training\.lr was 0\.05 and is 0\.2\)",
        edited("cut/settings.yaml", "lr: 0.05", "lr: 0.2"),
    ),
    run(
        "rounds edited",
        "show run",
        r"training\.rounds was 3 and is 30\).*'xfed resume run --rounds N' is for more rounds",
        edited("run/settings.yaml", "rounds: 3", "rounds: 30"),
    ),
    run(
        "seed edited",
        "diff run cut",
        r"'cut/settings\.yaml' was edited after the run started \(seed was 1 and is 2\)",
        edited("cut/settings.yaml", "seed: 1", "seed: 2"),
    ),
    run(
        "edited, check",
        "check run",
        r"- 'run/settings\.yaml' was edited .*seed was 1 and is 22(.|\n)*'xfed check run --settings' puts",
        edited("run/settings.yaml", "seed: 1", "seed: 22"),
        1,
    ),
    run("settings gone", "show run", r"'run' is not a run directory", gone("run/settings.yaml")),
    run(
        "settings gone, check",
        "check run",
        r"- 'run/settings\.yaml' is missing\n  'xfed check run --settings' puts the settings back",
        gone("run/settings.yaml"),
        1,
    ),
    run(
        "settings cut short",
        "show run",
        r"'run/settings\.yaml' was edited .*\(.*settings\.model\.\w+ was .* and is None, and \d+ more\), and the run's",
        cut("run/settings.yaml", b"    depth:"),
    ),
    run(
        "settings no longer YAML",
        "report run -o p.html",
        r"\(it is no longer YAML\), and the run's numbers are not",
        text("run/settings.yaml", "a: ["),
    ),
    run(
        "settings binary",
        "show run",
        r"'run/settings\.yaml' is damaged: 'utf-8' codec",
        text("run/settings.yaml", b"\xff\xff"),
    ),
    run("out that exists", "run --out run", r"run directory 'run' exists already; .*'xfed resume run'"),
    run(
        "out that is a file",
        "run --out cut/data.json",
        r"'cut/data\.json' exists already, and is no run; give another --out",
    ),
    run(
        "out below a file",
        "run --rounds 1 --clients 4 --engine serial --out run/data.json/x",
        r"'run/data\.json/x' cannot be used: a part of the path is a file and no folder; use another path",
        code=1,
    ),
]
INDEX = [
    run("index gone", "show run", rf"'run/index\.json' is missing; {ADVICE}", gone("run/index.json")),
    run(
        "index gone, check",
        "check run",
        r"- 'run/index\.json' is missing\n  what it vouched for cannot be checked; .*xfed run",
        gone("run/index.json"),
        1,
    ),
    run(
        "index cut short",
        "show run",
        rf"'run/index\.json' is damaged: .*(Unterminated|Expecting).*; {ADVICE}",
        cut("run/index.json"),
    ),
    run(
        "index edited",
        "resume cut",
        r"'cut/index\.json' is damaged: it is not what was written; 'xfed check cut'",
        edited("cut/index.json", '"bytes": ', '"bytes": 1'),
    ),
    run(
        "index of another version",
        "show run",
        r"'run/index\.json' is damaged: it is not what was written",
        edited("run/index.json", '"index": 1', '"index": 2'),
    ),
    run("surroundings gone", "show run", r"'run/environment\.json' is missing", gone("run/environment.json")),
    run(
        "surroundings cut short",
        "show run",
        rf"'run/environment\.json' {SHORTER}; {ADVICE}",
        cut("run/environment.json"),
    ),
    run(
        "surroundings edited", "resume cut", rf"'cut/environment\.json' {NOT_WRITTEN}", flip("cut/environment.json", 20)
    ),
    run(
        "surroundings of another form",
        "show run",
        r"'run/environment\.json' is damaged: it lacks .*code",
        rewritten("run/environment.json", lambda noted: {"indexed": True}),
    ),
    run(
        "other code",
        "resume cut",
        r"run 'cut' was started by another version of the code \(.*older\); only the same",
        rewritten("cut/environment.json", lambda noted: {**noted, "code": "older"}),
    ),
    run("card gone", EXPORT, r"'run/data\.json' is missing", gone("run/data.json")),
    run("card cut short", EXPORT, rf"'run/data\.json' {SHORTER}", cut("run/data.json")),
    run(
        "card of another form",
        EXPORT,
        r"the data card is damaged \(name: ",
        rewritten("run/data.json", lambda card: {}),
    ),
    run("start cut short", "resume cut", rf"'cut/initial\.safetensors' {SHORTER}", cut("cut/initial.safetensors")),
    run(
        "partition of another bit",
        "resume cut",
        rf"'cut/partition\.safetensors' {NOT_WRITTEN}",
        flip("cut/partition.safetensors"),
    ),
    run(
        "plug-in edited",
        "resume mine",
        r"'mine/plugins/0-mine\.py' is damaged: it has",
        text("mine/plugins/0-mine.py", "print()"),
    ),
]
NUMBERS = [
    run("rounds cut short", "show run", rf"'run/rounds\.parquet' {SHORTER}", cut("run/rounds.parquet")),
    run("rounds with another bit", "show run", rf"'run/rounds\.parquet' {NOT_WRITTEN}", flip("run/rounds.parquet", 60)),
    run("rounds gone", "show run", r"'run/rounds\.parquet' is missing", gone("run/rounds.parquet")),
    run(
        "rounds cut short, not finished",
        "resume cut",
        r"'cut/rounds\.parquet' cannot be read: ",
        cut("cut/rounds.parquet"),
    ),
    run(
        "rounds of another form",
        "show cut",
        r"'cut/rounds\.parquet' is damaged: it lacks round, clients",
        other_columns,
    ),
    run(
        "an evaluation gone",
        "show run",
        r"'run/metrics/round-000001\.parquet' is missing",
        gone("run/metrics/*1.parquet"),
    ),
    run(
        "evaluations swapped",
        "show run",
        r"'run/metrics/round-000002\.parquet' is damaged",
        swapped("run/metrics/round-000002.parquet", "run/metrics/round-000003.parquet"),
    ),
    run(
        "an evaluation more",
        "show run",
        r"'run/metrics/round-000009\.parquet' was not written by this run",
        text("run/metrics/round-000009.parquet", "x"),
    ),
    run(
        "an evaluation cut short, not finished",
        "show cut",
        r"'cut/metrics/round-000002\.parquet' cannot be read: ",
        cut("cut/metrics/round-000002.parquet"),
    ),
    run(
        "calibration trace cut short",
        CALIBRATE,
        rf"'run/traces/calibration-000003\.parquet' {SHORTER}",
        cut("run/traces/calibration*"),
    ),
    run(
        "calibration trace gone",
        CALIBRATE,
        r"'run/traces/calibration-000003\.parquet' is missing",
        gone("run/traces/calibration*"),
    ),
    run(
        "calibration trace with another bit, export",
        EXPORT,
        rf"'run/traces/calibration-000003\.parquet' {NOT_WRITTEN}",
        flip("run/traces/calibration*", 60),
    ),
    run(
        "test trace with another bit",
        "report run -o p.html",
        rf"'run/traces/test-000003\.parquet' {NOT_WRITTEN}",
        flip("run/traces/test-000003.parquet", 60),
    ),
    run("damaged, listed", "runs .", r"run is damaged: 'xfed check run' says how", cut("run/rounds.parquet"), 0),
]
MODELS = [
    run(
        "model cut short",
        EXPORT,
        rf"'run/models/client-000000\.safetensors' {SHORTER}",
        cut("run/models/client-000000*"),
    ),
    run("a tensor deleted", EXPORT, rf"'run/models/client-000001\.safetensors' {SHORTER}", without_a_tensor),
    run(
        "models swapped",
        EXPORT,
        rf"'run/models/client-000000\.safetensors' {NOT_WRITTEN}",
        swapped("run/models/client-000000*", "run/models/client-000001*"),
    ),
    run("model gone", EXPORT, r"'run/models/client-000000\.safetensors' is missing", gone("run/models/client-000000*")),
    run("shared model gone", EXPORT, r"'run/models/shared-\w+\.safetensors' is missing", gone("run/models/shared-*")),
    run(
        "shared model of another run",
        EXPORT,
        rf"'run/models/client-000003\.safetensors' {SHORTER}",
        swapped("run/models/shared-*", "run/models/client-000003*"),
    ),
    run(
        "shared model with another bit",
        EXPORT,
        rf"'run/models/shared-\w+\.safetensors' {NOT_WRITTEN}",
        flip("run/models/shared-*"),
    ),
    run(
        "model cut short, check",
        "check run",
        r"- 'run/models/client-000002.*were written\n  'xfed resume run --round 2' computes the last round once more",
        cut("run/models/client-000002*"),
        1,
    ),
    run(
        "model of a client that is not",
        "export run --clients 77 -o b",
        r"--clients is '77', but the run has clients 0 to 5",
    ),
    run(
        "models of a run that is not done",
        "export cut -o b",
        r"run 'cut' is not finished; 'xfed resume cut' continues it",
    ),
    run("bundle where something is", "export run -o cut", r"'cut' exists already; give another folder for the bundle"),
]
CONTINUING = [
    run("checkpoint gone", "resume cut --round 77", r"no checkpoint of round 77; there are: 2, 3"),
    run(
        "checkpoint's list cut short, check",
        "check cut",
        r"checkpoint 'cut/checkpoints/round-000003' is damaged: .*\n  'xfed resume cut --round 2' goes on after",
        cut("cut/checkpoints/round-000003/versions.safetensors"),
        1,
    ),
    run(
        "all checkpoints damaged",
        "check cut",
        r"no checkpoint is whole; the same settings give the same bits",
        each(
            flip("cut/checkpoints/round-000003/server.safetensors"),
            flip("cut/checkpoints/round-000002/server.safetensors"),
        ),
        1,
    ),
    run(
        "a state gone, check",
        "check cut",
        r"state file 'cut/state/.*' is missing\n  (no checkpoint is whole|'xfed resume)",
        gone("cut/state/clients/000/*-000003*"),
        1,
    ),
    run(
        "states swapped, check",
        "check cut",
        r"state file 'cut/state/clients/.*' is damaged or another's: its content",
        swapped("cut/state/clients/000/*0-00000*", "cut/state/clients/000/*5-00000*"),
        1,
    ),
    run(
        "fewer rounds than done",
        "resume run --rounds 2",
        r"rounds is 2, and run 'run' would go on after round 3; allowed",
    ),
    run("the last round again", "resume run --round 3", r"rounds is 3, and run 'run' would go on after round 3"),
    run("rounds that are no number", "resume run --rounds many", r"rounds is 'many': input should be a valid integer"),
    run("an engine that is none", "resume cut --engine wrap", r"unknown engine 'wrap'.*serial"),
    run(
        "a plug-in of nobody",
        "resume cut --plugin other.py",
        r"plug-in 'other\.py' takes no plug-in's place in run 'cut'; its own: none",
        text("other.py", ""),
    ),
    run(
        "a way to fail that is none",
        "resume cut --on-failure cry",
        r"on_failure is 'cry': input should be 'stop' or 'drop'",
    ),
]
CASES = SETTINGS + INDEX + NUMBERS + MODELS + CONTINUING
