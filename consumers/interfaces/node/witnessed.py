"""The cosignatures of a ledger's witnesses, and the table ``[witness]`` of its folder."""

from __future__ import annotations

import time
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from deedbook.consumers.sdk.loopback import is_loopback
from deedbook.ledger.client.client import Client
from deedbook.ledger.client.remote_history import active_verifiers
from deedbook.ledger.errors import Corrupted, Refused
from deedbook.ledger.format.codec import converted
from deedbook.ledger.home import trust
from deedbook.ledger.home.config import Settings
from deedbook.ledger.proof.checkpoint import parse_checkpoint, verify_checkpoint
from deedbook.ledger.proof.policy import Policy, WitnessResult
from deedbook.ledger.trust.history import ConsistencyProof, TrustedHead, head_text, is_continued


def witnessed_of(client: Client, settings: Settings, size: int, root: str) -> WitnessResult | None:
    """Return the result of this user's trusted witnesses for the log with this head; None if there are none.

    Raises Corrupted: ``HISTORY_CHANGED``: their checkpoint and this head belong to two histories; as ``Policy.judge``.
    """
    try:
        configured = configured_witnesses(trust.actions_of(settings, client).witness)
        if configured is None:
            return None
        try:
            note = client.prove(0).checkpoint_text
        except Corrupted as error:
            if error.code != "NOT_WITNESSED":
                raise
            note = client.checkpoint()
    except Refused:
        return None  # the user does not trust this folder's witnesses, or its checkpoint key belongs to somebody else
    if known := client.trust_store.checkpoint_keys:  # the keys of a node on the bus
        verify_checkpoint(note, *active_verifiers(known))
    cosigned = parse_checkpoint(note)
    (old, old_root), (new, new_root) = sorted([(size, root), (cosigned.size, cosigned.root.hex())])
    if not is_continued(TrustedHead(old, old_root), ConsistencyProof(new, new_root, client.consistency(old, new).path)):
        message = f"the witnesses cosigned a different history than {head_text(size, root)}: see `deed verify --policy`"
        raise Corrupted("HISTORY_CHANGED", message, size=size, tree_head=root)
    return configured[0].judge(note, time.time())


class WitnessSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table ``[witness]``; both settings are required."""

    fail: Literal["open", "closed"]
    policy: str


def configured_witnesses(table: dict[str, str]) -> tuple[Policy, bool] | None:
    """Return the policy of ``[witness]`` and whether it fails closed; None without such a table.

    Raises Refused: ``INVALID_FIELD``, ``UNKNOWN_FIELD``, or the policy's.
    """
    if not table:
        return None
    settings = converted(table, WitnessSettings, "$.witness")
    policy = Policy.parse(settings.policy.encode())
    for name, witness in policy.witnesses.items():
        url = urlsplit(witness.url)
        # Without TLS an attacker on the network could withhold cosignatures, but never forge one.
        is_safe = url.scheme == "https" or (url.scheme == "http" and is_loopback(url.hostname or ""))
        if not is_safe or not url.hostname or url.username is not None:
            message = f"the witness {name} needs the URL it answers at: https://…, or http://… on this machine"
            raise Refused("INVALID_FIELD", message, path="$.witness.policy", witness=name)
    return policy, settings.fail == "closed"
