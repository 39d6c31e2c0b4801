"""`/proof/ID`: the path of hashes from one entry to the signed checkpoint; `/receipts/ID`: the proof as one file.

``static/proof.js`` computes the path again in the browser, from what the page shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from deedbook.consumers.interfaces.dashboard.page import Download, Page, PageContext
from deedbook.consumers.sdk import receipts
from deedbook.ledger.client.client import read_batch_path
from deedbook.ledger.errors import DeedbookError
from deedbook.ledger.events.remnant import read_stored
from deedbook.ledger.format.codec import check_strict, encode_base64
from deedbook.ledger.format.envelope import decode_entry
from deedbook.ledger.format.merkle import node_hash
from deedbook.ledger.home.trust import root_in
from deedbook.ledger.proof.checkpoint import CheckpointVerifier
from deedbook.ledger.proof.receipt import Receipt

SUFFIX: Final = ".tlog-proof"
written_max_bytes: Final = 20_000
"""If an entry is longer, the page contains its text only once, in the bytes: the script displays the text from them."""


def proof(context: PageContext) -> Page:
    """Return ``{"row", "entry", "body", "key", "path", "batch", "checkpoint", …}``: everything that a check needs.

    ``path`` and ``batch`` (None: the entry was submitted alone) are a leaf, the steps from it, and the root that
    they lead to. If the body was erased (``is_erased``), ``body`` is its remnant. ``is_written_here``: the page
    itself has the text of the entry.
    """
    index = _index(context)
    receipt, checked = _taken(context, index)
    content, size = context.client.entry(index), checked.checkpoint.size
    entry, batch = decode_entry(content), None
    stored = read_stored(entry.body)
    if entry.batch_size > 1:
        hashes = read_batch_path(context.client, index, entry)
        batch = ladder(entry.commitment, entry.batch_index, entry.batch_size, hashes)
    data = {
        "row": context.ask("catalog.show", id=str(index)),
        "entry": encode_base64(content),
        "bytes": len(content),
        "body": check_strict(stored.raw),
        "is_erased": stored.remnant is not None,
        "is_written_here": len(content) <= written_max_bytes,
        "key": entry.key.hex(),
        "path": ladder(entry.leaf(), index, size, receipt.path),
        "batch": batch,
        "checkpoint": {
            "origin": checked.checkpoint.origin,
            "size": size,
            "note": receipt.checkpoint_text,
            "vkey": checked.vkey,
            "key": CheckpointVerifier.from_vkey(checked.vkey).public_key.hex(),
        },
        "fingerprint": root_in(context.client.entry(0)),
        "file": f"{index}{SUFFIX}",
    }
    return Page("proof.html", f"Proof of #{index}", data)


def receipt(context: PageContext) -> Download:
    """Return the receipt of an entry: the text that `deed receipt` prints, and `GET /v1/receipts/ID` answers."""
    index = _index(context)
    return Download(f"{index}{SUFFIX}", _taken(context, index)[0].to_text())


def inclusion(context: PageContext, index: int) -> dict[str, Any]:
    """Return the verified inclusion of an entry: the checkpoint, its size and root, and the number of hashes."""
    try:
        receipt, checked = _taken(context, index)
    except DeedbookError as error:
        return {"is_proven": False, "problem": f"{error.code}: {error.message}"}
    point = checked.checkpoint
    return {
        "is_proven": True,
        "problem": None,
        "origin": point.origin,
        "size": point.size,
        "root": point.root.hex(),
        "hashes": len(receipt.path),
        "trust": checked.trust,
        "is_signed": checked.is_signed,
    }


def _index(context: PageContext) -> int:
    return int(context.ask("resolve", id=context.params["ref"].removesuffix(SUFFIX))["event_index"])


def _taken(context: PageContext, index: int) -> tuple[Receipt, receipts.Checked]:
    receipt = receipts.take(context.client, index, wait_max_s=0)
    return receipt, receipts.check(receipt, receipts.Anchors(), known=context.client.trust_store.checkpoint_keys)


def ladder(leaf: bytes, index: int, size: int, path: Sequence[bytes]) -> dict[str, Any]:
    """Return ``{"index", "size", "steps", "root"}`` of an inclusion path, with the hash of each step.

    A step has the ``node`` so far and its ``sibling``, each with the leaves below it, and says which of them is left.
    """
    node, start, end = leaf, index, index + 1
    steps = []
    for sibling, (first, last) in zip(path, reversed(list(_siblings(index, size))), strict=True):
        is_left = first < start
        sides = {"node": node.hex(), "sibling": sibling.hex(), "is_left": is_left}
        steps.append(sides | {"of_node": [start, end - 1], "of_sibling": [first, last - 1]})
        node = node_hash(sibling, node) if is_left else node_hash(node, sibling)
        start, end = min(start, first), max(end, last)
    return {"index": index, "size": size, "steps": steps, "root": node.hex()}


def _siblings(index: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of leaves beside the way from the root down to a leaf (RFC 6962 §2.1.1)."""
    start, end = 0, size
    while end - start > 1:
        middle = start + (1 << ((end - start - 1).bit_length() - 1))
        if index < middle:
            yield middle, end
            end = middle
        else:
            yield start, middle
            start = middle
