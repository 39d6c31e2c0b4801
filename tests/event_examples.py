"""One good example of the data of every kind: that of ``proto/examples``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import msgspec

from deedbook.ledger.events import KINDS

PROTO: Final = Path(__file__).parents[1] / "proto"
REF: Final = "blake3:" + "1" * 64
KEY: Final = "ab" * 32
PROOF: Final = "cd" * 64


def published(kind: str) -> dict[str, Any]:
    """Return the data of the example that is published."""
    data: dict[str, Any] = json.loads((PROTO / "examples" / f"{kind}.json").read_bytes())["data"]
    return data


def smallest(kind: str) -> dict[str, Any]:
    """Return the data of the example without the fields that have a default."""
    needed = {field.encode_name for field in msgspec.structs.fields(KINDS[kind].data) if field.required}
    return {name: value for name, value in published(kind).items() if name in needed}


EXAMPLES: Final = {kind: published(kind) for kind in KINDS}
