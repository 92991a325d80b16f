"""What goes over the wire: requests, answers, and their description in OpenAPI."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationError, WithJsonSchema

from xfed_runtime.policy import Policy

LONGEST_SENTENCE = 300


class RequestError(Exception):
    """A request that cannot be answered: an HTTP status and one sentence, kept short whatever it quotes."""

    def __init__(self, status: int, sentence: str) -> None:
        cut = sentence if len(sentence) <= LONGEST_SENTENCE else sentence[: LONGEST_SENTENCE - 1] + "…"
        super().__init__(cut)
        self.status = status


def _policy(value: Any) -> str | Policy | None:
    return value if value is None or isinstance(value, str) else Policy.from_json(value)


class PredictRequest(BaseModel):
    """Inputs for one client's network, and at most one of `policy`, `budget` and `deadline_ms`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    inputs: list[Any] = Field(min_length=1, description="what to classify, see GET /bundle")
    client: int | None = Field(
        None, description="whose network answers; may be left out where the server has a default"
    )
    policy: Annotated[str | Policy | None, PlainValidator(_policy, json_schema_input_type=str | Policy | None)] = Field(
        None, description="when to leave: the name of a policy in the bundle, or a policy; 'default' unless given"
    )
    budget: Annotated[Any, WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string"}]})] = Field(
        None, description="mean MACs, such as 3.5e8, or a share of the full network's, such as '60%'"
    )
    deadline_ms: float | None = Field(
        None, description="milliseconds until an input's answer, from when its computation starts"
    )
    quantile: float | None = Field(None, description="share of the answers that shall keep the deadline: 0.5 or 0.95")
    answer: Literal["own", "running"] | None = Field(
        None, description="an exit's own answer, or the running mean of the exits passed; the policy's unless given"
    )
    explain: bool = Field(False, description="also say what every exit answers, and when; this computes all of them")


class ExitAnswer(BaseModel):
    """What an exit answers to one input."""

    label: int = Field(description="index of the class")
    name: str = Field(alias="class", description="name of the class")
    confidence: float = Field(description="probability of the class")
    exit: int = Field(description="exit that answered, counted from 1")
    macs: int = Field(description="what leaving there costs, the exits passed included")
    ms: float = Field(description="time until the answer, from when the computation of its batch started")


class FinalAnswer(ExitAnswer):
    """The answer to one input."""

    probabilities: list[float] = Field(description="of all classes, in the order of GET /bundle")
    exits: list[ExitAnswer] | None = Field(None, description="what each exit answers, where 'explain' asks for it")


class PredictResponse(BaseModel):
    """Answers in the order of the inputs, and the policy that decided."""

    bundle: str = Field(description="id of the bundle that answered")
    client: int
    policy: dict[str, Any]
    answers: list[FinalAnswer]


class Problem(BaseModel):
    """Why there is no answer."""

    detail: str = Field(description="one sentence")


class Health(BaseModel):
    """The process is up."""

    status: Literal["ok"] = "ok"


class Readiness(BaseModel):
    """The server has a bundle whose networks can be asked."""

    status: Literal["ready"] = "ready"
    bundle: str = Field(description="id of the bundle that answers")


class Change(BaseModel):
    """Which bundle answers now."""

    bundle: str = Field(description="id of the bundle that answers from now on")
    previous: str | None = Field(description="id of the one that a rollback goes back to")
    changed: bool = Field(description="false where the bundle on disk was the one that answers already")


class ExitCost(BaseModel):
    """What leaving at an exit costs."""

    exit: int = Field(description="counted from 1")
    macs: int
    share: float = Field(description="of the full network's MACs")


class KnownPolicy(BaseModel):
    """A policy in the bundle, and what to expect of it on average, where that is known."""

    policy: dict[str, Any]
    macs: float | None
    accuracy: float | None


class BundleDescription(BaseModel):
    """What is served."""

    bundle: str = Field(description="id of the bundle: it changes with anything in it")
    clients: list[int] = Field(description="clients that the caller may ask for")
    default_client: int | None = Field(description="who answers where a request names no client")
    classes: list[str]
    exits: list[ExitCost]
    inputs: dict[str, Any] = Field(description="JSON schema of one input")
    most_inputs: int = Field(description="inputs that one request may have")
    format: str
    deadlines: bool = Field(description="whether requests may have deadline_ms: it needs this device's latencies")
    policies_of: int = Field(description="client whose policies follow; another one's with ?client=")
    policies: dict[str, KnownPolicy]


def parse(body: bytes, most_inputs: int) -> PredictRequest:
    """Read a request, or refuse it in one sentence."""
    try:
        request = PredictRequest.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        what = first["msg"].removeprefix("Value error, ")
        what = what[:1].lower() + what[1:]
        name = ".".join(map(str, first["loc"]))
        if first["type"] == "json_invalid":
            raise RequestError(400, f"the body is not JSON: {what.removeprefix('invalid JSON: ')}") from None
        if first["type"] == "extra_forbidden":
            allowed = ", ".join(PredictRequest.model_fields)
            raise RequestError(422, f"a request has no {name!r}; allowed: {allowed}") from None
        raise RequestError(422, f"{name}: {what}" if name else f"the body: {what}") from None
    if len(request.inputs) > most_inputs:
        raise RequestError(422, f"the request has {len(request.inputs):,} inputs; allowed: 1 to {most_inputs}")
    return request
