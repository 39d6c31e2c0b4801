"""W3C PROV: who did what when, and on what it rests, for the tools of that family (PROV-DM, PROV-JSON, PROV-N, 2013).

An event is two things there. The *activity* ``deedbook:entry/INDEX`` happened when the ledger accepted it, and was
associated with its author, an agent. The *entity* named by the event's id is what the activity generated; it was
derived from what the event rests on (``projections.catalog.fold``: ``deedbook:via`` says how): the entities of other
events, or what is named by a hash or a stream alone. Nothing here is signed: a receipt or a bundle proves the events.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from deedbook.ledger.errors import Unavailable
from deedbook.ledger.system.files import write_whole


def write_provenance(file: Path, events: Iterable[dict[str, Any]], *, ledger: str, humans: Collection[str]) -> int:
    """Write PROV-N to a file whose name ends in ``.provn``, else PROV-JSON; return how many events it tells of.

    ``events`` are rows of ``catalog.why``; whoever is not in ``humans`` is a program. Raises Unavailable:
    ``EXTRA_MISSING``; ``STORE_UNAVAILABLE`` when the file cannot be written.
    """
    try:
        from prov.model import PROV_TYPE, ProvDocument  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        message = "PROV needs the package prov: pip install 'deedbook[prov]'"
        raise Unavailable("EXTRA_MISSING", message, package=str(error.name), extra="prov") from error
    rows = {row["event_index"]: row for row in events}
    document = ProvDocument()
    deedbook = document.add_namespace("deedbook", f"urn:deedbook:{ledger}:")
    for algorithm in ("blake3", "sha256"):
        document.add_namespace(algorithm, f"urn:{algorithm}:")
    for author in sorted({row["author"] for row in rows.values()}):
        kind = document.valid_qualified_name("prov:Person" if author in humans else "prov:SoftwareAgent")
        document.agent(f"deedbook:agent/{author}", {PROV_TYPE: kind})
    for index, row in sorted(rows.items()):
        activity, author = f"deedbook:entry/{index}", f"deedbook:agent/{row['author']}"
        moment = datetime.fromtimestamp(row["accepted_ms"] / 1000, UTC)
        document.activity(activity, moment, moment, {"deedbook:claimed_time": row["at"], "deedbook:key": row["key"]})
        document.wasAssociatedWith(activity, author)
        what: dict[Any, Any] = {
            PROV_TYPE: deedbook[row["kind"]],
            "deedbook:stream": row["stream"],
            "deedbook:index": index,
        }
        document.entity(row["id"], what)
        document.wasGeneratedBy(row["id"], activity, moment)
        document.wasAttributedTo(row["id"], author)
        for ref in row["refs"]:
            # What no event here made is named by its hash as it stands, or by its stream without odd characters.
            other = ref["ref"] if "/" not in ref["ref"] else f"deedbook:stream/{quote(ref['ref'])}"
            source = rows[ref["event_index"]]["id"] if ref["event_index"] in rows else other
            document.used(activity, source, moment)
            how = {"deedbook:via": ref["via"], "deedbook:ref": ref["ref"]}
            document.wasDerivedFrom(row["id"], source, activity, other_attributes=how)
    text = document.serialize(format="provn" if file.suffix == ".provn" else "json")
    write_whole(file, f"{text}\n".encode(), mode=0o644)
    return len(rows)
