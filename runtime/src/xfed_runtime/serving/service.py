"""From a request's bytes to its answers: the whole of serving but HTTP."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from xfed_runtime import Bundle, Device, InputsError, PolicyError, Predictions
from xfed_runtime.serving import ServingError
from xfed_runtime.serving.decoding import decode
from xfed_runtime.serving.limits import Limits
from xfed_runtime.serving.networks import Networks
from xfed_runtime.serving.schemas import (
    Answer,
    BundleDescription,
    ExitCost,
    KnownPolicy,
    PredictResponse,
    RequestError,
    input_schema,
    parse,
)


@dataclass(frozen=True)
class Setup:
    """How a bundle is served."""

    client: int | None = None
    """Who answers where a request names no client; a bundle's only client does anyway."""
    format: str = "onnx-stages"
    threads: int = 1
    """Threads that one input is computed with; requests are computed side by side on the cores that leaves."""
    device: Device | None = None
    """This device's latencies, for deadlines."""
    limits: Limits = field(default_factory=Limits)


class Service:
    """Answers requests, in whatever thread it is called."""

    def __init__(self, bundle: Bundle, setup: Setup) -> None:
        self.bundle, self.setup = bundle, setup
        self._clients = frozenset(bundle.clients)
        self.client = bundle.clients[0] if len(bundle.clients) == 1 and setup.client is None else setup.client
        exits, device = len(bundle.macs), setup.device
        if device is not None and len(device.exits_ms) != exits:
            raise ServingError(f"the latency table is for {len(device.exits_ms)} exits, but the bundle has {exits}")
        self.networks = Networks(
            lambda client: bundle.runtime(client, setup.format, setup.threads, setup.device), setup.limits.networks
        )
        self.networks.get(bundle.clients[0] if self.client is None else self.client)

    def predict(self, body: bytes) -> tuple[PredictResponse, Predictions]:
        """Answer one request; what is asked for wrongly is refused in one sentence."""
        request = parse(body, self.setup.limits.inputs)
        client = self._client(request.client)
        try:
            inputs = decode(self.bundle.inputs, request.inputs)
            runtime = self.networks.get(client)
            policy = runtime.choose(request.policy, request.budget, request.deadline_ms)
            if request.answer not in (None, policy.answer):
                if request.budget is not None:
                    raise RequestError(
                        422, f"policies for budgets were calibrated for {policy.answer} answers; leave out 'answer'"
                    )
                policy = replace(policy, answer=request.answer)
            found = runtime.predict(inputs, policy)
        except (InputsError, PolicyError) as error:
            raise RequestError(422, str(error)) from None
        answers = [
            Answer.model_construct(
                label=label,
                name=self.bundle.classes[label],
                confidence=max(probabilities),
                probabilities=probabilities,
                exit=exit_index + 1,
                macs=macs,
                ms=ms,
            )
            for label, probabilities, exit_index, macs, ms in zip(
                *(part.tolist() for part in (found.labels, found.probabilities, found.exits, found.macs, found.ms)),
                strict=True,
            )
        ]
        return PredictResponse.model_construct(client=client, policy=policy.to_json(), answers=answers), found

    def describe(self, client: int | None) -> BundleDescription:
        """Say what is served."""
        bundle, full = self.bundle, self.bundle.macs[-1]
        whose = bundle.clients[0] if client is None and self.client is None else self._client(client)
        known = bundle.policies(whose)
        return BundleDescription(
            clients=list(bundle.clients),
            default_client=self.client,
            classes=list(bundle.classes),
            exits=[ExitCost(exit=j, macs=macs, share=macs / full) for j, macs in enumerate(bundle.macs, 1)],
            inputs=input_schema(bundle.inputs),
            most_inputs=self.setup.limits.inputs,
            format=self.setup.format,
            deadlines=self.setup.device is not None,
            policies_of=whose,
            policies={
                name: KnownPolicy(policy=each.policy.to_json(), macs=each.macs, accuracy=each.accuracy)
                for name, each in known.items()
            },
        )

    def _client(self, named: int | None) -> int:
        client = self.client if named is None else named
        if client is None:
            raise RequestError(422, "the request names no client; GET /bundle lists them")
        if client not in self._clients:
            raise RequestError(422, f"the bundle has no client {client}; GET /bundle lists those it has")
        return client
