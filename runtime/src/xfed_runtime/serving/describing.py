"""The OpenAPI description of predictions: what goes in depends on the bundle, and FastAPI does not see it pass."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import models_json_schema

from xfed_runtime.inputs import ImageInputs, Inputs
from xfed_runtime.serving.schemas import PredictRequest, PredictResponse, Problem

_PROBLEMS = {
    400: "not JSON",
    401: "no token, or an unknown one",
    403: "the token is not for this",
    408: "the body came too slowly",
    409: "refused; nothing has changed",
    411: "the body's length is not given",
    413: "the body is too large, or has too much in it",
    415: "the body's type is not JSON",
    421: "the server is not called by this name",
    422: "what is asked for cannot be done",
    503: "too many requests at once, or a network that cannot be used",
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe refusals, as FastAPI takes them."""
    return {status: {"model": Problem, "description": _PROBLEMS[status]} for status in statuses}


def predict_path() -> dict[str, Any]:
    """Describe POST /predict."""
    refusals = {
        str(status): {"description": text, "content": _json(Problem)}
        for status, text in _PROBLEMS.items()
        if status != 409
    }
    return {
        "post": {
            "summary": "Predict",
            "description": "Classify images or texts with a client's network, within a policy, a budget or a deadline.",
            "operationId": "predict",
            "requestBody": {"required": True, "content": _json(PredictRequest)},
            "responses": {"200": {"description": "Successful Response", "content": _json(PredictResponse)}, **refusals},
        }
    }


def _json(model: type) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}}


def predict_schemas(inputs: Inputs) -> dict[str, Any]:
    """Give the OpenAPI components of requests to a bundle, and of answers."""
    _, described = models_json_schema(
        [(PredictRequest, "validation"), (PredictResponse, "serialization"), (Problem, "serialization")],
        ref_template="#/components/schemas/{model}",
    )
    components: dict[str, Any] = described["$defs"]
    components[PredictRequest.__name__]["properties"]["inputs"]["items"] = input_schema(inputs)
    return components


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
    pixels: dict[str, Any] = {"type": "number"}
    if inputs.bounded:
        pixels |= {"minimum": 0, "maximum": inputs.scale}
    for size in reversed(inputs.shape):
        pixels = {"type": "array", "items": pixels, "minItems": size, "maxItems": size}
    shape = " × ".join(map(str, inputs.shape))
    if not inputs.bounded:
        return pixels | {"description": f"numbers {shape} (channels first)"}
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
