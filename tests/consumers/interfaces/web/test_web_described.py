"""The published description against the application: it allows every answer, and forbids every refused request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import jsonschema
import pytest
import schemathesis
from faults import times
from hypothesis import HealthCheck, assume, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.config import SchemathesisConfig
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    allow_header_conformance,
    content_type_conformance,
    negative_data_rejection,
    positive_data_acceptance,
    response_schema_conformance,
    status_code_conformance,
)

from deedbook.ledger.events import KINDS

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
    positive_data_acceptance,
    negative_data_rejection,
)
# An address that is too long is also a refusal (414), which schemathesis does not expect.
CONFIG: Final = {
    "checks": {"negative_data_rejection": {"expected-statuses": ["400", "401", "403", "404", "405", "406", "414"]}},
    "generation": {"with-security-parameters": False},
}
OPEN: Final = ("/v1", "/v1/openapi.json", "/healthz")


def test_every_path_says_its_errors_and_whether_it_takes_a_token() -> None:
    assert DESCRIPTION["openapi"] == "3.1.0"
    for path, get in READS.items():
        assert get["summary"], path
        assert {"200", "304", "405", "413", "414", "500", "503"} <= get["responses"].keys(), path
        assert ("security" in get) == (path in OPEN)
        assert ("401" in get["responses"]) == ("403" in get["responses"]) == (path not in OPEN)
        if path != "/v1/openapi.json" and path.startswith("/v1/") and "blobs" not in path:
            assert set(get["responses"]["200"]["content"]["application/json"]["schema"]["required"]) >= {"kind", "data"}
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
    assert reading.client.get(path.replace("{id}", "0")).status_code == (200 if is_open else 401)


@pytest.fixture(scope="module")
def schema(reading: Reading) -> Any:
    """The description as the application gives it, to be called without a socket."""
    config = SchemathesisConfig.from_dict(CONFIG)
    return schemathesis.openapi.from_asgi("/v1/openapi.json", reading.client.app, config=config)


@pytest.mark.parametrize("path", sorted(READS))
@pytest.mark.parametrize("mode", GenerationMode)
def test_the_description_is_as_wide_as_what_is_accepted(
    reading: Reading, schema: Any, path: str, mode: GenerationMode
) -> None:
    in_query = [one for one in READS[path]["parameters"] if one.get("in", "query") == "query"]
    if mode is GenerationMode.NEGATIVE and not in_query:
        return  # any text is allowed in a path
    follows = {"accept": "application/json, application/octet-stream;q=0.5, text/plain;q=0.4"}
    headers = {"authorization": f"Bearer {reading.token}"} | follows
    operation = schema[path]["GET"]
    lists = [one["name"] for one in in_query if one.get("schema", {}).get("type") == "array"]

    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: schemathesis.Case) -> None:
        # Schemathesis takes letters and digits beyond Latin for special characters, and would expect a refusal.
        assume(mode is GenerationMode.POSITIVE or not _has_foreign_word(case.query.get("text")))
        # In an address, a single text in place of a list counts as a list of one.
        assume(mode is GenerationMode.POSITIVE or not any(isinstance(case.query.get(name), str) for name in lists))
        if {"since", "until"} <= case.query.keys():  # no schema can say that a period ends after it begins
            del case.query["until"]
        case.headers = {name: value for name, value in (case.headers or {}).items() if name.lower() != "accept"}
        case.call_and_validate(headers=headers, checks=CHECKS)

    ask()


def test_events_with_marks_have_the_types_that_are_published(reading: Reading) -> None:
    pages = [reading.get("/v1/events?limit=100").json()["data"]]
    while pages[-1]["next"] is not None:
        pages.append(reading.get(f"/v1/events?limit=100&after={pages[-1]['next']}").json()["data"])
    marked = [event for page in pages for event in page["items"] if {"compromised", "redacted"} & event.keys()]
    assert {"compromised", "redacted"} <= {name for event in marked for name in event}
    for event in marked:
        name = f"{KINDS[event['kind']].data.__name__}Event"
        checked = jsonschema.Draft202012Validator(
            {"$ref": f"#/components/schemas/{name}", "components": DESCRIPTION["components"]}
        )
        checked.validate(event)
        checked.validate(reading.get(f"/v1/events/{event['index']}").json()["data"])


def _has_foreign_word(text: object) -> bool:
    return isinstance(text, str) and any(one.isalnum() and not one.isascii() for one in text)
