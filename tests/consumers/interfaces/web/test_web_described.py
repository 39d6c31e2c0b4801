"""The published description against the application: whatever it lets be asked is answered as it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import schemathesis
from faults import times
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    allow_header_conformance,
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

if TYPE_CHECKING:
    from web_reading import Reading

SCHEMA: Final = Path(__file__).parents[4] / "proto" / "openapi.json"
DESCRIPTION: Final[dict[str, Any]] = json.loads(SCHEMA.read_text("utf-8"))
READS: Final = {path: item["get"] for path, item in DESCRIPTION["paths"].items() if "get" in item}
EXAMPLES: Final = times(2, 4)
CHECKS: Final = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    allow_header_conformance,
)


def test_every_path_says_its_errors_and_whether_it_takes_a_token() -> None:
    assert DESCRIPTION["openapi"] == "3.1.0"
    for path, get in READS.items():
        assert {"200", "400", "401", "403", "404", "405", "406", "413", "414", "503"} <= get["responses"].keys(), path
        assert ("security" in get) == (path in ("/v1", "/v1/openapi.json", "/healthz"))
        required = [one for one in get["parameters"] if one.get("required")]
        assert all("example" in one for one in required), path
    for path, item in DESCRIPTION["paths"].items():
        if (post := item.get("post")) is not None:
            errors = {"400", "401", "403", "405", "408", "409", "413", "415", "503"}
            assert errors <= post["responses"].keys(), path
            assert "security" not in post


@pytest.mark.parametrize("path", sorted(READS))
def test_whatever_takes_a_token_is_refused_without_one(reading: Reading, path: str) -> None:
    is_open = READS[path].get("security") == []
    assert reading.client.get(path.replace("{ref}", "0")).status_code == (200 if is_open else 401)


@pytest.fixture(scope="module")
def schema(reading: Reading) -> Any:
    """The description as the application gives it, to be called without a socket."""
    return schemathesis.openapi.from_asgi("/v1/openapi.json", reading.client.app)


@pytest.mark.parametrize("path", sorted(READS))
def test_what_the_description_allows_is_answered_as_it_says(reading: Reading, schema: Any, path: str) -> None:
    follows = {"accept": "application/json, application/octet-stream;q=0.5, text/plain;q=0.4"}
    headers = {"authorization": f"Bearer {reading.token}"} | follows
    operation = schema[path]["GET"]

    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy())
    def ask(case: schemathesis.Case) -> None:
        case.headers = {name: value for name, value in (case.headers or {}).items() if name.lower() != "accept"}
        case.call_and_validate(headers=headers, checks=CHECKS)

    ask()
