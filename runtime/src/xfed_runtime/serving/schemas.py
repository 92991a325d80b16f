"""What goes over the wire: requests, answers, and their description in OpenAPI."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationError, WithJsonSchema
from pydantic.json_schema import models_json_schema

from xfed_runtime.inputs import ImageInputs, Inputs
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
    answer: Literal["own", "running"] | None = Field(
        None, description="an exit's own answer, or the running mean of the exits passed; the policy's unless given"
    )


class Answer(BaseModel):
    """The answer to one input."""

    label: int = Field(description="index of the class")
    name: str = Field(alias="class", description="name of the class")
    confidence: float = Field(description="probability of the class")
    probabilities: list[float] = Field(description="of all classes, in the order of GET /bundle")
    exit: int = Field(description="exit that answered, counted from 1")
    macs: int = Field(description="what leaving there costs, the exits passed included")
    ms: float = Field(description="time until the answer, from when the computation of its batch started")


class PredictResponse(BaseModel):
    """Answers in the order of the inputs, and the policy that decided."""

    client: int
    policy: dict[str, Any]
    answers: list[Answer]


class Problem(BaseModel):
    """Why there is no answer."""

    detail: str = Field(description="one sentence")


class Health(BaseModel):
    """The process is up."""

    status: Literal["ok"] = "ok"


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

    clients: list[int]
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


def input_schema(inputs: Inputs) -> dict[str, Any]:
    """Describe one input, as this bundle's network takes it."""
    if not isinstance(inputs, ImageInputs):
        rows = {
            "type": "array",
            "items": {"type": "integer", "minimum": 0, "maximum": inputs.tokens - 1},
            "minItems": 1,
            "maxItems": inputs.length,
            "description": "token ids",
        }
        return {"anyOf": [{"type": "string"}, rows]} if inputs.vocabulary else rows
    pixels: dict[str, Any] = {"type": "number", "minimum": 0, "maximum": inputs.scale}
    for size in reversed(inputs.shape):
        pixels = {"type": "array", "items": pixels, "minItems": size, "maxItems": size}
    shape = " × ".join(map(str, inputs.shape))
    pixels["description"] = f"pixels {shape} (channels first), from 0 to {inputs.scale:g}"
    return {
        "anyOf": [
            pixels,
            _encoded("raw", f"base64 of {shape} bytes, channels first, one per pixel, from 0 to {inputs.scale:g}"),
            _encoded("file", f"base64 of a PNG or JPEG file of {inputs.shape[-1]} × {inputs.shape[-2]} pixels"),
        ]
    }


def _encoded(name: str, description: str) -> dict[str, Any]:
    text = {"type": "string", "contentEncoding": "base64", "description": description}
    return {"type": "object", "properties": {name: text}, "required": [name], "additionalProperties": False}


def request_schemas(inputs: Inputs) -> dict[str, Any]:
    """Give the OpenAPI components of a request to this bundle: FastAPI knows those of answers only."""
    _, described = models_json_schema([(PredictRequest, "validation")], ref_template="#/components/schemas/{model}")
    components: dict[str, Any] = described["$defs"]
    components[PredictRequest.__name__]["properties"]["inputs"]["items"] = input_schema(inputs)
    return components
