"""A served bundle, and inputs for it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.deployed import Deployed, rewrite
from tests.serving.served import LIMITS, Caller, serving
from xfed_runtime import Bundle, Policy
from xfed_runtime.serving.service import Service, Setup


@pytest.fixture(scope="session")
def bundle(deployed: Deployed, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Clients 0, 3 and 4 on digits, with policies of known cost."""
    path = tmp_path_factory.mktemp("served") / "bundle"
    shutil.copytree(deployed.path, path)
    macs = deployed.bundle().macs
    policies = json.loads((path / "policies" / "shared.json").read_text())
    for exit_number, accuracy in ((1, 0.5), (3, 0.9)):
        fixed = {"kind": "fixed", "exit": exit_number}
        policies[f"exit-{exit_number}"] = {"policy": fixed, "macs": macs[exit_number - 1], "accuracy": accuracy}
    rewrite(path, "policies/shared.json", json.dumps(policies).encode())
    return Bundle.open(path)


@pytest.fixture(scope="session")
def pixels(deployed: Deployed) -> Any:
    return deployed.dataset.inputs[:12].numpy()


@pytest.fixture(scope="session")
def halving(bundle: Bundle, pixels: Any) -> dict[int, Policy]:
    """For each client, a policy by which half of the inputs leave at exit 1."""
    policies = {}
    for client in bundle.clients:
        confidence = bundle.runtime(client).predict(pixels, Policy("fixed", exit=1)).probabilities.max(axis=1)
        policies[client] = Policy("confidence", threshold=float(np.median(confidence)))
    return policies


@pytest.fixture(scope="session")
def caller(bundle: Bundle) -> Iterator[Caller]:
    with serving(Service(bundle.root, Setup(limits=LIMITS))) as ready:
        yield ready
