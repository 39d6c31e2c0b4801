"""Exports events as W3C PROV, for the tools that read it (PROV-DM, PROV-JSON, PROV-N, 2013).

PROV describes an event by two things. The *activity* ``deedbook:entry/INDEX`` happened when the ledger accepted the
event, and is associated with the author, an agent. The activity generated the *entity* that has the event's id. That
entity was derived from what the event references (``projections.catalog.fold``; ``deedbook:via`` says how): entities
of other events, or things that only a hash or a stream names. A receipt or bundle proves the events; nothing here is
signed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from deedbook.ledger.errors import Refused, Unavailable
from deedbook.ledger.packages import install_command
from deedbook.ledger.system.files import read_regular, write_whole

_file_size_max_bytes: Final = 256 * 1024**2


def write_provenance(file: Path, events: Iterable[dict[str, Any]], *, ledger: str, humans: Collection[str]) -> int:
    """Write PROV-N if the file's name ends in ``.provn``, else PROV-JSON; return the number of events.

    ``events`` are rows of ``catalog.why``; authors that are not in ``humans`` are programs. Raises Unavailable:
    ``EXTRA_MISSING``; ``STORE_UNAVAILABLE`` when the file cannot be written. Refused: ``FILE_EXISTS`` when ``file``
    exists and is no PROV of this ledger.
    """
    try:
        from prov.model import PROV_TYPE, ProvDocument  # noqa: PLC0415 - extra `prov`
    except ModuleNotFoundError as error:
        message = f"PROV needs the package prov. Install it: {install_command('prov')}"
        raise Unavailable("EXTRA_MISSING", message, package=str(error.name), extra="prov") from error
    namespace = f"urn:deedbook:{ledger}:"
    present = read_regular(file, size_max_bytes=_file_size_max_bytes, follow=True)
    if present is not None and namespace.encode() not in present:
        raise Refused("FILE_EXISTS", f"{file} exists and is no PROV of this ledger: name another file", path=str(file))
    rows = {row["event_index"]: row for row in events}
    document = ProvDocument()
    deedbook = document.add_namespace("deedbook", namespace)
    for scheme in ("event", "blake3", "sha256"):
        document.add_namespace(scheme, f"urn:{scheme}:")
    for author in sorted({row["author"] for row in rows.values()}):
        kind = document.valid_qualified_name("prov:Person" if author in humans else "prov:SoftwareAgent")
        document.agent(f"deedbook:agent/{author}", {PROV_TYPE: kind})
    for index, row in sorted(rows.items()):
        activity, author = f"deedbook:entry/{index}", f"deedbook:agent/{row['author']}"
        at = datetime.fromtimestamp(row["accepted_ms"] / 1000, UTC)
        document.activity(activity, at, at, {"deedbook:claimed_time": row["at"], "deedbook:key": row["key"]})
        document.wasAssociatedWith(activity, author)
        attributes: dict[Any, Any] = {
            PROV_TYPE: deedbook[row["kind"]],
            "deedbook:stream": row["stream"],
            "deedbook:index": index,
        }
        document.entity(row["id"], attributes)
        document.wasGeneratedBy(row["id"], activity, at)
        document.wasAttributedTo(row["id"], author)
        for ref in row["refs"]:
            # A source that no event here created is named by its hash, or by its stream with special characters quoted.
            other = ref["ref"] if "/" not in ref["ref"] else f"deedbook:stream/{quote(ref['ref'])}"
            source = rows[ref["event_index"]]["id"] if ref["event_index"] in rows else other
            document.used(activity, source, at)
            attributes = {"deedbook:via": ref["via"], "deedbook:ref": ref["ref"]}
            document.wasDerivedFrom(row["id"], source, activity, other_attributes=attributes)
    text = document.serialize(format="provn" if file.suffix == ".provn" else "json")
    write_whole(file, f"{text}\n".encode(), mode=0o644)
    return len(rows)
