"""W3C PROV: who did what when, and on what it rests, for the tools of that family (PROV-DM, PROV-JSON, PROV-N, 2013).

An event is two things there. The *activity* ``baton:entry/INDEX`` happened when the ledger accepted it, and was
associated with its author, an agent. The *entity* named by the event's id is what the activity generated; it was
derived from what the event rests on (``projections.catalog.fold``: ``baton:via`` says how): the entities of other
events, or what is named by a hash or a stream alone. Nothing here is signed: a receipt or a bundle proves the events.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ledger.errors import Unavailable
from ledger.files import replacing

if TYPE_CHECKING:
    from prov.model import ProvDocument

Row = dict[str, Any]


def write_provenance(file: Path, events: Iterable[Row], *, ledger: str, humans: Collection[str]) -> int:
    """Write PROV-N to a file whose name ends in ``.provn``, else PROV-JSON; return how many events it tells of.

    ``events`` are rows of ``catalog.why``; whoever is not in ``humans`` is a program.

    Raises:
        Unavailable: ``EXTRA_MISSING``; ``STORE_UNAVAILABLE`` when the file cannot be written.
    """
    rows = {row["event_index"]: row for row in events}
    document = _document(rows, ledger, humans)
    text = document.serialize(format="provn" if file.suffix == ".provn" else "json")
    try:
        with replacing(file, mode=0o644) as out:
            out.write(f"{text}\n".encode())
    except OSError as error:
        raise Unavailable("STORE_UNAVAILABLE", f"{file} cannot be written: {error.strerror}", path=str(file)) from error
    return len(rows)


def _document(rows: dict[int, Row], ledger: str, humans: Collection[str]) -> ProvDocument:
    try:
        from prov.model import PROV_TYPE, ProvDocument  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        message = "PROV needs the package prov: pip install 'baton-ledger[prov]'"
        raise Unavailable("EXTRA_MISSING", message, package=str(error.name), extra="prov") from error
    document = ProvDocument()
    baton = document.add_namespace("baton", f"urn:baton:{ledger}:")
    for algorithm in ("blake3", "sha256"):
        document.add_namespace(algorithm, f"urn:{algorithm}:")
    for author in sorted({row["author"] for row in rows.values()}):
        kind = "prov:Person" if author in humans else "prov:SoftwareAgent"
        document.agent(f"baton:agent/{author}", {PROV_TYPE: document.valid_qualified_name(kind)})
    named: set[str] = set()
    for index, row in sorted(rows.items()):
        activity, author, moment = f"baton:entry/{index}", f"baton:agent/{row['author']}", _moment(row["accepted_ms"])
        document.activity(activity, moment, moment, {"baton:claimed_time": row["at"], "baton:key": row["key"]})
        document.wasAssociatedWith(activity, author)
        place: dict[Any, Any] = {
            "baton:index": index,
            "baton:stream": row["stream"],
            "baton:stream_version": row["stream_version"],
        }
        document.entity(row["id"], place | {PROV_TYPE: baton[row["kind"]]})
        document.wasGeneratedBy(row["id"], activity, moment)
        document.wasAttributedTo(row["id"], author)
        for ref in row["refs"]:
            cause = rows.get(ref["event_index"])
            source = _name(ref["ref"]) if cause is None else cause["id"]
            if cause is None and source not in named:
                named.add(source)
                document.entity(source)
            how = {"baton:via": ref["via"]} | ({} if source == ref["ref"] else {"baton:ref": ref["ref"]})
            document.used(activity, source, moment)
            document.wasDerivedFrom(row["id"], source, activity, other_attributes=how)
    return document


def _name(ref: str) -> str:
    """Return the name of what no event of the document made: a hash as it stands, a stream without odd characters."""
    return ref if ref.startswith(("blake3:", "sha256:")) else f"baton:stream/{quote(ref)}"


def _moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
