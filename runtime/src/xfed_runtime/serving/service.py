"""From requests' bytes to answers: the whole of serving but HTTP."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from xfed_runtime import BundleError, Device, InputsError, Policy, PolicyError, Predictions, Runtime
from xfed_runtime.serving import ServingError
from xfed_runtime.serving.decoding import decode
from xfed_runtime.serving.describing import input_schema
from xfed_runtime.serving.limits import Extent, Limits
from xfed_runtime.serving.networks import Networks
from xfed_runtime.serving.schemas import (
    BundleDescription,
    ExitAnswer,
    ExitCost,
    FinalAnswer,
    KnownPolicy,
    PredictResponse,
    RequestError,
    parse,
)
from xfed_runtime.serving.snapshot import Snapshot
from xfed_runtime.serving.tokens import Access
from xfed_runtime.sessions import CPU, SessionSettings


@dataclass(frozen=True)
class Setup:
    """How a bundle is served."""

    client: int | None = None
    """Who answers where a request names no client; a bundle's only client does anyway."""
    format: str = "onnx-stages"
    threads: int = 1
    """Threads that one input is computed with; requests are computed side by side on the cores that leaves."""
    providers: tuple[str, ...] = (CPU,)
    """On what ONNX Runtime computes."""
    sharing: bool = False
    """Whether clients share in memory what they share in the bundle."""
    digest: str | None = None
    """The only bundle to be served, by its digest; any unless given."""
    device: Device | None = None
    """This device's latencies, for deadlines."""
    batch_wait_ms: float = 0.0
    """How long a request waits for others to be computed with; without, only those that wait anyway are."""
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True)
class Question:
    """A request that can be answered: everything about it is checked."""

    client: int
    runtime: Runtime
    policy: Policy
    inputs: Any
    explain: bool

    @property
    def kind(self) -> Hashable:
        """Tell which questions can be answered as one batch; one with a deadline has its own clock, and goes alone."""
        if self.policy.kind == "anytime":
            return id(self)
        return id(self.runtime), self.policy, self.explain, isinstance(self.inputs, list)


@dataclass(frozen=True)
class Reply:
    """An answer as it goes out, and what it took."""

    content: bytes
    exits: Sequence[int]
    """Exits left at, counted from 0."""
    macs: int


class Service:
    """Answers requests from one bundle, in whatever thread it is called."""

    def __init__(self, path: Path, setup: Setup) -> None:
        if setup.device is not None and setup.format != "onnx-stages":
            raise ServingError(
                f"a device's latencies are for deadlines, which need the format onnx-stages; {setup.format} has none"
            )
        self._snapshot = Snapshot(path, setup.digest)
        self.setup, self.id, self.bundle = setup, self._snapshot.id, self._snapshot.bundle
        self._clients = frozenset(self.bundle.clients)
        self._extent = Extent.of(self.bundle.inputs, setup.limits.inputs)
        only = len(self.bundle.clients) == 1 and setup.client is None
        self.client = self.bundle.clients[0] if only else setup.client
        exits, device = len(self.bundle.macs), setup.device
        if device is not None and len(device.exits_ms) != exits:
            raise ServingError(f"the latency table is for {len(device.exits_ms)} exits, but the bundle has {exits}")
        self.networks = Networks(self._load, setup.limits.networks)
        self.networks.get(self.bundle.clients[0] if self.client is None else self.client)

    def _load(self, client: int) -> Runtime:
        """Load a network from files that were checked, and see that it answers with numbers."""
        setup = self.setup
        settings = SessionSettings(setup.threads, setup.providers)
        runtime = self.bundle.runtime(
            client, setup.format, device=setup.device, settings=settings, sharing=setup.sharing
        )
        if not self._snapshot.unchanged():
            raise BundleError("someone changed the server's own copy of the bundle; reload it")
        for number in range(1, runtime.exits + 1):
            runtime.predict(self.bundle.inputs.example(), Policy("fixed", exit=number))
        return runtime

    def read(self, body: bytes, access: Access) -> Question:
        """Make a question of a request; what is asked for wrongly is refused in one sentence."""
        self._extent.check(body)
        request = parse(body, self.setup.limits.inputs)
        client = self._client(request.client, access)
        try:
            inputs = decode(self.bundle.inputs, request.inputs)
            runtime = self.networks.get(client)
            policy = runtime.choose(
                request.policy, request.budget, request.deadline_ms, request.quantile, request.answer
            )
        except (InputsError, PolicyError) as error:
            raise RequestError(422, str(error)) from None
        except BundleError as error:
            raise RequestError(503, f"the network of client {client} cannot be used: {error}") from None
        return Question(client, runtime, policy, inputs, request.explain)

    def answer(self, questions: Sequence[Question]) -> list[Reply | RequestError]:
        """Answer questions of one kind as one batch; where that fails, each on its own, to see whose fault it is."""
        runtime, policy, inputs = questions[0].runtime, questions[0].policy, _joined([q.inputs for q in questions])
        # with 'explain' each exit is asked on its own, so that its time is what an answer from there takes
        exits = range(1, runtime.exits + 1) if questions[0].explain else ()
        try:
            found = runtime.predict(inputs, policy)
            passed = [runtime.predict(inputs, Policy("fixed", exit=j, answer=policy.answer)) for j in exits]
        except (InputsError, PolicyError, BundleError) as error:
            if len(questions) == 1:
                return [RequestError(422, str(error))]
            return [reply for question in questions for reply in self.answer([question])]
        sizes = [len(question.inputs) for question in questions]
        return [
            self._reply(question, found, passed, range(end - size, end))
            for question, size, end in zip(questions, sizes, accumulate(sizes), strict=True)
        ]

    def _reply(
        self, question: Question, found: Predictions, passed: Sequence[Predictions], rows: Sequence[int]
    ) -> Reply:
        answers = [
            FinalAnswer.model_construct(
                **self._fields(found, row),
                probabilities=found.probabilities[row].tolist(),
                exits=[ExitAnswer.model_construct(**self._fields(each, row)) for each in passed] or None,
            )
            for row in rows
        ]
        response = PredictResponse.model_construct(
            bundle=self.id, client=question.client, policy=question.policy.to_json(), answers=answers
        )
        content = response.model_dump_json(by_alias=True, exclude_none=True).encode()
        return Reply(content, found.exits[rows].tolist(), int(found.macs[rows].sum()))

    def _fields(self, found: Predictions, row: int) -> dict[str, Any]:
        label = int(found.labels[row])
        return {
            "label": label,
            "name": self.bundle.classes[label],
            "confidence": float(found.probabilities[row].max()),
            "exit": int(found.exits[row]) + 1,
            "macs": int(found.macs[row]),
            "ms": float(found.ms[row]),
        }

    def describe(self, client: int | None, access: Access) -> BundleDescription:
        """Say what is served, to whom may know."""
        bundle, full = self.bundle, self.bundle.macs[-1]
        clients = [each for each in bundle.clients if access.to(each)]
        if client is None and self._default(access) is None and clients:
            client = clients[0]
        whose = self._client(client, access)
        return BundleDescription(
            bundle=self.id,
            clients=clients,
            default_client=self._default(access),
            classes=list(bundle.classes),
            exits=[ExitCost(exit=j, macs=macs, share=macs / full) for j, macs in enumerate(bundle.macs, 1)],
            inputs=input_schema(bundle.inputs),
            most_inputs=self.setup.limits.inputs,
            format=self.setup.format,
            deadlines=self.setup.device is not None,
            policies_of=whose,
            policies={
                name: KnownPolicy(policy=each.policy.to_json(), macs=each.macs, accuracy=each.accuracy)
                for name, each in bundle.policies(whose).items()
            },
        )

    def intact(self) -> bool:
        """Tell whether the bundle's files are still those that were checked."""
        return self._snapshot.unchanged()

    def close(self) -> None:
        """Remove the server's copy of the bundle."""
        self._snapshot.close()

    def _default(self, access: Access) -> int | None:
        """Give who answers where a request names no client: whom the caller is bound to goes first."""
        if access.clients is not None and sum(map(len, access.clients)) == 1:
            return access.clients[0][0]
        return self.client

    def _client(self, named: int | None, access: Access) -> int:
        client = self._default(access) if named is None else named
        if client is None:
            raise RequestError(422, "the request names no client; GET /bundle lists them")
        if not access.to(client):
            raise RequestError(403, f"this token may not ask for client {client}; GET /bundle lists whom it may")
        if client not in self._clients:
            raise RequestError(422, f"the bundle has no client {client}; GET /bundle lists those it has")
        return client


def _joined(parts: Sequence[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], list):
        return [text for part in parts for text in part]
    return np.concatenate(parts)
