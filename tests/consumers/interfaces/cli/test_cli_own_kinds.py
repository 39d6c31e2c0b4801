"""`deed kind` and `deed emit` for declared kinds: who may sign, the fields shown, and the texts of refusals."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from calling import Deed

SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {
            "bees": {"type": "integer"},
            "queen": {
                "type": "object",
                "properties": {"name": {"type": "string", "maxLength": 20}},
                "required": ["name"],
                "additionalProperties": False,
            },
        },
        "required": ["bees"],
        "additionalProperties": False,
    }
)


def test_root_declares_without_as_and_refusals_name_the_field_and_the_stream(alone: Deed) -> None:
    alone("agent", "add", "kuro")
    name = "x.honey.harvested"
    alone("kind", "declare", name, "--schema", SCHEMA, "--stream", "x.hive/*", "--by", "agent")
    shown = alone("kind", "show", name)
    assert "declared by root" in shown
    assert "queen.name" in shown
    assert "x.hive/ID" in alone.refuses("USAGE", "emit", name, "--as", "kuro")["message"]
    refused = alone.refuses("INTEGER_OUT_OF_RANGE", "emit", name, "x.hive/7", f"bees={2**60}", "--as", "kuro")[
        "message"
    ]
    assert "bees" in refused
    assert "2^53" in refused
    assert "--schema @" in alone("kind", "declare", "--help")


def test_declaration_names_every_fault_and_every_missing_option_at_once(alone: Deed) -> None:
    missing = alone.refuses("USAGE", "kind", "declare", "x.honey.harvested")["message"]
    assert all(option in missing for option in ("--schema ", "--stream ", "--by "))
    schema = {"type": "object", "properties": {"hive": {"type": "string"}, "bees": {"type": "int"}}, "default": 1}
    call = ("--schema", json.dumps(schema), "--stream", "x.hive/*", "--by", "agent")
    assert "$.data.name" in alone.refuses("INVALID_FIELD", "kind", "declare", "honey", *call)["message"]
    error = alone.refuses("INVALID_FIELD", "kind", "declare", "x.honey.harvested", *call)
    paths = ("default", "additionalProperties", "properties.hive.maxLength", "properties.bees.type")
    assert all(f"at $.data.schema.{path}" in error["message"] for path in paths), error
    assert error["details"]["path"] == "$.data.schema.default"


def test_example_of_a_schema_in_the_help_is_accepted(alone: Deed) -> None:
    help_ = alone("kind", "declare", "--help")
    example = help_[help_.index("  {") : help_.index("}}}}") + 4]
    alone("kind", "declare", "x.honey.harvested", "--schema", example, "--stream", "x.hive/*", "--by", "agent")


def declare_harvested(deed: Deed) -> None:
    deed("agent", "add", "kuro")
    deed("kind", "declare", "x.honey.harvested", "--schema", SCHEMA, "--stream", "x.hive/*", "--by", "agent")


def test_kind_without_its_beginning_names_the_declared_one(alone: Deed) -> None:
    declare_harvested(alone)
    for call in (
        ("emit", "honey.harvested", "x.hive/1", "bees=1"),
        *(("log", "--kind", kind) for kind in ("honey.harvested", "x.honey", "x.honey.*", "honey.harveste")),
        ("search", "bees", "--kind", "honey.harvested"),
        ("watch", "--kind", "honey.harvested"),
    ):
        message = alone.refuses("UNKNOWN_KIND", *call, "--as", "kuro")["message"]
        assert message.endswith("did you mean x.honey.harvested?"), message


def test_the_same_event_again_is_signed_with_a_warning(alone: Deed) -> None:
    declare_harvested(alone)
    call = ("emit", "x.honey.harvested", "x.hive/1", "bees=1", "--as", "kuro")
    assert alone.run(*call).err == ""
    again = alone.run(*call).err
    assert again.startswith("warning: entry 3 says the same, and both stay: with --idem KEY,"), again
    assert alone.run(*call, "--idem", "once").err == ""
    assert alone.run(*call[:3], "bees=2", *call[4:]).err == ""


def test_events_of_a_declared_kind_are_found_by_the_words_of_the_kind(alone: Deed) -> None:
    declare_harvested(alone)
    alone("emit", "x.honey.harvested", "x.hive/1", "bees=1", "--as", "kuro")
    alone("emit", "x.honey.harvested", "x.hive/1", '{"bees": 2, "queen": {"name": "Bea"}}', "--as", "kuro")
    for text in ("harvested", "honey", "x.honey.harvested"):
        hits = alone.data("search", text, "--kind", "x.honey.harvested")["items"]
        assert {hit["event_index"] for hit in hits} == {3, 4}, text
    assert [hit["event_index"] for hit in alone.data("search", "honey Bea")["items"]] == [4]
    assert alone("search", "zzzqqq") == "Nothing holds all of that. Nothing is similar.\n"
    assert {hit["near"] for hit in alone.data("search", "zzzqqq")["items"]} == {"far"}


def test_words_of_other_tools_about_streams_and_fields_get_a_hint(alone: Deed) -> None:
    alone("agent", "add", "kuro")
    assert "a stream is TYPE/ID, such as x.deploy/ID" in alone.run("log", "--stream", "x.deploy").err
    alone("decide", "Use LMDB for the log", "--as", "kuro")
    assert "search has words and no fields: `deed search web`" in alone.run("search", "service=web").err
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "additionalProperties": False}
    call = ("--schema", json.dumps(schema), "--stream", "x.deploy/*", "--by", "agent")
    alone("kind", "declare", "x.deploy.finished", *call)
    message = alone.refuses("INVALID_FIELD", "emit", "x.deploy.finished", "x.deploy/1", "ok=yes", "--as", "kuro")[
        "message"
    ]
    assert message.endswith(": write true or false")
