"""Bundles packed again with other blobs: no signature covers the manifest that lists blobs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from deedbook.ledger.bundle import Bundle
from deedbook.ledger.bundle.archive import ending, header, padding
from deedbook.ledger.bundle.layout import member_names
from deedbook.ledger.format.codec import encode_canonical

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Members = list[tuple[str, bytes]]


def members_of(path: Path) -> Members:
    """Return the members of a bundle, in order."""
    with Bundle(path) as bundle:
        return [(name, bundle.read(name)) for name in member_names(bundle.manifest)]


def packed(members: Members) -> bytes:
    """Return a bundle of these members, in the canonical form of a tar."""
    blocks = [part for name, data in members for part in (header(name, len(data)), data, padding(len(data)))]
    return b"".join(blocks) + ending(sum(map(len, blocks)))


def with_these_blobs(members: Members, blobs: Mapping[str, bytes]) -> Members:
    """Return the members with these blobs and no others, and a matching manifest."""
    refs = sorted(name.removeprefix("blobs/").replace("/", ":") for name in blobs)
    others = [(name, data) for name, data in members if not name.startswith("blobs/")]
    at = [name for name, _ in others].index("manifest.json")
    others[at] = ("manifest.json", encode_canonical(json.loads(others[at][1]) | {"blobs": refs}) + b"\n")
    return sorted(blobs.items()) + others


def repacked(path: Path, changes: Mapping[str, bytes | None]) -> None:
    """Pack a bundle again with blobs added or, with None, removed."""
    members = members_of(path)
    blobs = {name: data for name, data in members if name.startswith("blobs/")} | changes
    path.write_bytes(
        packed(with_these_blobs(members, {name: data for name, data in blobs.items() if data is not None}))
    )
