"""The check of one receipt: a C2SP tlog-proof with its entry and with those that lead to the checkpoint's key."""

from __future__ import annotations

from typing import Any

from blake3 import blake3

from deedbook.ledger.bundle.standalone.form import read_entry, read_json
from deedbook.ledger.bundle.standalone.page import cut, details, when
from deedbook.ledger.bundle.standalone.proofs import (
    JOINING,
    hashes_in,
    is_signed,
    need,
    pae,
    parse_checkpoint,
    path_root,
    read_base64,
    read_checkpoint,
    split_proof,
    tree_root,
)

RECEIPT_MAX = 512 * 1024
KEY_KINDS = ("ledger.created", "agent.invited", "agent.registered", "key.rotated", "checkpoint_key.rotated")
ERASED = "an event whose body was erased: a receipt does not prove its remnant, such as its kind and author"
EVIDENCE = {"deedbook_receipt": int, "entry": str, "batch": str, "chain": list}


class KeyChain:
    """The entries of a receipt that name keys of the log, in order. Only signatures by root or a node's token count."""

    def __init__(self, content: dict[int, bytes], size: int) -> None:
        """Read the entries, and follow them from entry 0 to the keys that may sign the checkpoint of this size."""
        need(all(0 <= index < size for index in content), "the receipt has a key's entry that is not in the checkpoint")
        need(0 in content, "the receipt lacks entry 0")
        self.entries = {index: read_entry(content[index]) for index in sorted(content)}
        first = self.read(0)
        root, created = self.entries[0].key, first["data"]
        is_first = first["kind"] == "ledger.created" and created["root"] == root.hex()
        need(is_first and self.is_signed(0), "entry 0 is not signed by the root key that it names")
        self.fingerprint = blake3(root).hexdigest()
        self.ledger, self.origin = self.fingerprint[:32], created["origin"]
        self.keys = {"node": created["checkpoint_key"]}
        self.tokens: dict[str, str] = {}
        for index in list(self.entries)[1:]:
            if self.is_signed(index):
                self.check_body(index)
                root = self.follow(self.read(index), self.entries[index].key, root)

    def read(self, index: int) -> dict[str, Any]:
        """Return the body of an entry."""
        body: dict[str, Any] = read_json(self.entries[index].body)
        return body

    def check_body(self, index: int) -> None:
        """Check that an entry that names a key of the log has its body, which nobody erases."""
        body = self.read(index)
        names_key = body["kind"] in KEY_KINDS and body["data"].get("agent", "root") == "root"
        is_here = not (names_key and self.entries[index].is_erased)
        need(is_here, f"entry {index} names a key of the log, and its body is missing")

    def is_signed(self, index: int) -> bool:
        """Return whether the signature of an entry, or of its batch, is valid. The whole batch must be here."""
        entry = self.entries[index]
        start = index - entry.position
        batch = [self.entries.get(at) for at in range(start, start + entry.batch_size)]
        leaves = [member.commitment for member in batch if member is not None]
        need(len(leaves) == entry.batch_size, f"the receipt lacks entries of the batch of entry {index}")
        return entry.is_signed_over(tree_root(leaves))

    def follow(self, body: dict[str, Any], signer: bytes, root: bytes) -> bytes:
        """Apply an event to the keys; return the root key after it."""
        kind, data = body["kind"], body["data"]
        is_by_root = signer == root
        if kind == "key.rotated" and is_by_root and data["agent"] == "root":
            return bytes.fromhex(data["key"])
        if kind == "checkpoint_key.rotated" and is_by_root:
            self.keys["node"] = data["key"]
        if kind == "agent.invited" and is_by_root and data["roles"] == ["node"]:
            self.tokens[data["name"]] = data["token_key"]
        if kind == "agent.registered" and data.get("checkpoint_key") and (is_by_root or self.is_invited(data, signer)):
            self.keys[data["name"]] = data["checkpoint_key"]
        if kind == "agent.removed":
            self.keys.pop(data["agent"], None)
        return root

    def is_invited(self, data: dict[str, Any], signer: bytes) -> bool:
        """Return whether the token of an invitation by root signed the key of a node that registers itself."""
        token, proof = self.tokens.get(data["name"]), data.get("token_proof") or ""
        text = pae(JOINING, f"{self.ledger}\n{data['name']}\n{data['key']}".encode())
        is_own = token is not None and signer.hex() == data["key"]
        return is_own and is_signed(bytes.fromhex(token or ""), text, bytes.fromhex(proof))


def check_receipt(text: str, fingerprint: str | None) -> list[str]:
    """Return lines about the event that a receipt proves; the last is the verdict. Raises WrongError and others."""
    index, path, extra, note = split_proof(text)
    evidence = read_json(extra or b"{}")
    is_ours = {name: type(value) for name, value in evidence.items()} == EVIDENCE and evidence["deedbook_receipt"] == 1
    is_ours = is_ours and all(type(index) is int for index, _ in evidence["chain"])
    need(is_ours, "it has no entry, or an unknown field: `deed receipt` makes receipts that have one")
    origin, size, _ = parse_checkpoint(note)
    chain = KeyChain({at: read_base64(entry) for at, entry in evidence["chain"]}, size)
    if fingerprint is not None:
        is_named = len(fingerprint) >= 32 and chain.fingerprint.startswith(fingerprint.lower())
        need(is_named, f"the root key has the fingerprint {chain.fingerprint}, not {fingerprint}")
    need(origin == chain.origin, "the checkpoint is from another log")
    _, root = read_checkpoint(note, chain.origin, [bytes.fromhex(key) for key in chain.keys.values()])
    content = read_base64(evidence["entry"])
    entry, batch_path = read_entry(content), hashes_in(read_base64(evidence["batch"]) if evidence["batch"] else b"")
    need(path_root(entry.leaf, index, size, path) == root, "its path does not lead to the checkpoint's root")
    need(entry.is_signed_in_batch(batch_path), "the author's signature is not valid", "SIGNATURE_INVALID")
    body = read_json(entry.body)
    need(body["ledger"] == chain.ledger, "the entry is of another ledger", "WRONG_LEDGER")
    by_itself = f"self-asserted: compare the root key's fingerprint {chain.fingerprint}"
    word = "VALID_WITH_ERASURES" if entry.is_erased else "VALID"
    trust = by_itself if fingerprint is None else "root key matches --root"
    # Show no fields of a remnant: only a redaction in the log confirms it, so this may be the remnant of another event.
    event = ERASED if entry.is_erased else f"{body['kind']} by {body['author']} on {body['stream']}"
    fields = "" if entry.is_erased else details({"title": None, **body["data"]})
    return [
        f"{event}, accepted {when(entry.accepted_ms)}",
        *([cut(fields)] if fields else []),
        f"signed with the key {entry.key.hex()}; the log's rules, which say whose key that is, are not in a receipt",
        f"{word}: entry {index} of {size} in the log {origin} ({trust})",
    ]
