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
