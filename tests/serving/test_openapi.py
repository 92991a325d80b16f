"""What the endpoint says of itself holds: requests drawn from its OpenAPI document, sound ones and broken ones."""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import given
from schemathesis import Case, GenerationMode
from schemathesis.schemas import BaseSchema
from schemathesis.specs.openapi.checks import positive_data_acceptance

from tests.fuzz.mutations import FUZZ
from tests.serving.served import Caller

ALONE = ["GET /health", "GET /ready", "GET /metrics", "POST /admin/reload", "POST /admin/rollback"]
"""They take nothing, so that nothing they are given can be wrong."""
WITH_INPUT = ["POST /predict", "GET /bundle"]
SOUND, BROKEN = GenerationMode.POSITIVE, GenerationMode.NEGATIVE


@pytest.fixture(scope="module")
def described(caller: Caller) -> BaseSchema:
    return schemathesis.openapi.from_url(f"http://127.0.0.1:{caller.port}/openapi.json")


def test_every_operation_is_tried(described: BaseSchema) -> None:
    found = [result.ok() for result in described.get_all_operations()]
    assert sorted(f"{operation.method.upper()} {operation.path}" for operation in found) == sorted(
        [*ALONE, *WITH_INPUT]
    )


@pytest.mark.parametrize(
    ("operation", "mode"), [(each, SOUND) for each in [*ALONE, *WITH_INPUT]] + [(each, BROKEN) for each in WITH_INPUT]
)
def test_it_keeps_its_word(described: BaseSchema, operation: str, mode: GenerationMode) -> None:
    """No 5xx, no undocumented status, body or header; what is broken is refused.

    What is sound may be refused too, as documented: no schema says which clients a bundle has.
    """
    method, path = operation.split()

    @FUZZ
    @given(case=described[path][method].as_strategy(generation_mode=mode))
    def check(case: Case) -> None:
        case.call_and_validate(excluded_checks=[positive_data_acceptance])

    check()
