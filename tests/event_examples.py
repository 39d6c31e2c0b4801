"""A valid example of the data of every kind, from ``proto/examples``."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from deedbook.ledger.events import KINDS

PROTO: Final = Path(__file__).parents[1] / "proto"
REF: Final = "blake3:" + "1" * 64
KEY: Final = "ab" * 32
PROOF: Final = "cd" * 64


@cache
def _text(kind: str) -> bytes:
    return (PROTO / "examples" / f"{kind}.json").read_bytes()


@cache
def _needed(kind: str) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(KINDS[kind].data) if field.required}


def published(kind: str) -> dict[str, Any]:
    """Return the data of the published example of a kind."""
    data: dict[str, Any] = json.loads(_text(kind))["data"]
    return data


def smallest(kind: str) -> dict[str, Any]:
    """Return the data of the example without the fields that have a default."""
    return {name: value for name, value in published(kind).items() if name in _needed(kind)}


EXAMPLES: Final = {kind: published(kind) for kind in KINDS}
