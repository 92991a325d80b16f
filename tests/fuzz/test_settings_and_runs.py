"""Settings, run directories, checkpoints, words, policies and bundles that were damaged or forged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.bits import files
from tests.conftest import TINY, tiny
from tests.deployed import Deployed
from tests.fuzz.mutations import FUZZ, PLAIN, altered, damaged, outcome
from tests.protocol.test_words import WORDS
from xfed import Experiment, InputError, Run, open_run, run
from xfed.experiment import read_settings
from xfed.protocol.message import Message, WireError
from xfed.protocol.words import Word, frame, from_bytes, to_bytes, unframe
from xfed.runs.checkpoint import Checkpoint, Checkpoints
from xfed_runtime.bundle import Bundle
from xfed_runtime.manifest import MANIFEST, BundleError
from xfed_runtime.policy import Policy, PolicyError

SETTINGS = {**TINY, "method": "xfed", "dataset": "digits", "model": "convnet", "xfed": {"mu": 0.7}, "plugin": []}


@FUZZ
@given(value=st.one_of(altered(SETTINGS), PLAIN))
def test_settings(tmp_path: Path, value: Any) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(yaml.safe_dump(value), encoding="utf-8")
    outcome(lambda: Experiment.from_mapping(read_settings(path)), InputError)


TAGS = "method: !!python/object/apply:os.system ['true']\nplugin: !!python/name:os.system\n"


@FUZZ
@given(content=st.one_of(damaged(yaml.safe_dump(SETTINGS).encode()), damaged(TAGS.encode()), st.binary(max_size=80)))
def test_damaged_settings(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "settings.yaml"
    path.write_bytes(content)
    outcome(lambda: Experiment.from_mapping(read_settings(path)), InputError)


@FUZZ
@given(data=st.data())
def test_checkpoints(tmp_path: Path, data: st.DataObject) -> None:
    """A checkpoint that is read is the one that was written: this one, or the one before it."""
    shutil.rmtree(tmp_path / "checkpoints", ignore_errors=True)
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    for round in (1, 2):
        checkpoints.write(Checkpoint(round, {"x": torch.full((4,), float(round))}, {7: round}, {}))
    chosen = data.draw(st.sampled_from(sorted((tmp_path / "checkpoints").rglob("*.*"))))
    chosen.write_bytes(data.draw(damaged(chosen.read_bytes())))
    found = outcome(checkpoints.read, InputError)
    assert isinstance(found, Checkpoint), "the other one is whole"
    assert found.tensors["x"].tolist() == [float(found.round)] * 4
    assert found.client_versions == {7: found.round}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run(tiny(out=tmp_path_factory.mktemp("fuzzed") / "run", rounds=1, clients=2, sample=1.0), progress=False)


def look(path: Path) -> None:
    """Everything that reads a run."""
    opened = open_run(path)
    opened.records()
    opened.evaluations()
    opened.environment()
    opened.card  # noqa: B018
    opened.metrics()
    opened.model(0)
    opened.trace("test")
    opened.notes(1)


@FUZZ
@given(data=st.data())
def test_run_directories(trained: Run, tmp_path: Path, data: st.DataObject) -> None:
    copy = tmp_path / "copy"
    if not copy.exists():
        shutil.copytree(trained.path, copy)
    chosen = copy / data.draw(st.sampled_from(sorted(files(copy))))
    content = chosen.read_bytes()
    try:
        chosen.write_bytes(data.draw(damaged(content)))
        outcome(lambda: look(copy), InputError)
    finally:
        chosen.write_bytes(content)


@FUZZ
@given(data=st.data())
def test_words(data: st.DataObject) -> None:
    word = data.draw(st.sampled_from(WORDS))
    outcome(lambda: from_bytes(data.draw(damaged(to_bytes([word])))), WireError)
    outcome(
        lambda: Message.from_bytes(data.draw(damaged(Message({"a": torch.ones(3)}, {"n": 1}).to_bytes()))), WireError
    )


@FUZZ
@given(data=st.data())
def test_forged_words(data: st.DataObject) -> None:
    plain, tensors = frame([data.draw(st.sampled_from(WORDS))])
    found = outcome(lambda: unframe(data.draw(altered(plain)), tensors), WireError)
    assert isinstance(found, WireError) or all(isinstance(word, Word) for word in found)


POLICY = {"kind": "confidence", "threshold": [0.5, 0.9], "enabled": [True, False, True], "answer": "own", "note": "x"}


@FUZZ
@given(value=st.one_of(altered(POLICY), PLAIN))
def test_policies(tmp_path: Path, value: Any) -> None:
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(value))
    found = outcome(lambda: Policy.read(path), PolicyError)
    if isinstance(found, Policy):
        outcome(lambda: found.start(3), PolicyError)


@FUZZ
@given(data=st.data())
def test_bundles(deployed: Deployed, tmp_path: Path, data: st.DataObject) -> None:
    """A file of a bundle is damaged; or its manifest is forged, which then vouches for whatever it names."""
    copy = tmp_path / "bundle"
    if not copy.exists():
        shutil.copytree(deployed.path, copy)
    forged = data.draw(st.booleans())
    chosen = copy / (MANIFEST if forged else data.draw(st.sampled_from(sorted(files(copy)))))
    content = chosen.read_bytes()
    try:
        if forged:
            chosen.write_text(json.dumps(data.draw(altered(json.loads(content)))))
        else:
            chosen.write_bytes(data.draw(damaged(content)))
        found = outcome(lambda: Bundle.open(copy), BundleError)
        if isinstance(found, Bundle):
            for client in found.clients:
                outcome(lambda client=client: found.policies(client), BundleError, PolicyError)
                outcome(lambda client=client: found.tensors(client), BundleError)
    finally:
        chosen.write_bytes(content)


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "a/../../b", "..\\x", "c:x", "a\0b"])
def test_a_bundle_that_names_a_file_outside_of_itself(deployed: Deployed, tmp_path: Path, name: str) -> None:
    copy = tmp_path / "bundle"
    shutil.copytree(deployed.path, copy)
    manifest = json.loads((copy / MANIFEST).read_text())
    (copy / MANIFEST).write_text(
        json.dumps({**manifest, "files": {**manifest["files"], name: {"sha256": "", "bytes": 0}}})
    )
    with pytest.raises(BundleError, match=r"outside of itself|damaged"):
        Bundle.open(copy)
