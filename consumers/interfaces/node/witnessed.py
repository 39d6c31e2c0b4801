"""What the witnesses of a ledger cosigned, as its folder has it."""

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
    """Return what the witnesses that this user trusts say of the log whose head is shown; None: there are none.

    Raises Corrupted: ``HISTORY_CHANGED``: what they cosigned and this head are of two histories; as ``Policy.judge``.
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
        return None  # the folder is not trusted with any, or its checkpoint key is somebody else's
    if known := client.trust_store.checkpoint_keys:  # of a node that is asked over the bus
        verify_checkpoint(note, *active_verifiers(known))
    cosigned = parse_checkpoint(note)
    (old, old_root), (new, new_root) = sorted([(size, root), (cosigned.size, cosigned.root.hex())])
    if not is_continued(TrustedHead(old, old_root), ConsistencyProof(new, new_root, client.consistency(old, new).path)):
        message = f"the witnesses cosigned another history than {head_text(size, root)}: see `deed verify --policy`"
        raise Corrupted("HISTORY_CHANGED", message, size=size, tree_head=root)
    return configured[0].judge(note, time.time())


class WitnessSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table ``[witness]``; both must be said."""

    fail: Literal["open", "closed"]
    policy: str


def configured_witnesses(table: dict[str, str]) -> tuple[Policy, bool] | None:
    """Return the policy of ``[witness]``, and whether it fails closed; None when there is no such table.

    Raises Refused: ``INVALID_FIELD``, ``UNKNOWN_FIELD``, or the policy's.
    """
    if not table:
        return None
    given = converted(table, WitnessSettings, "$.witness")
    policy = Policy.parse(given.policy.encode())
    for name, witness in policy.witnesses.items():
        url = urlsplit(witness.url)
        # In the clear somebody on the way could keep cosignatures from us, though never forge one.
        is_safe = url.scheme == "https" or (url.scheme == "http" and is_loopback(url.hostname or ""))
        if not is_safe or not url.hostname or url.username is not None:
            message = f"the witness {name} needs the URL it answers at: https://…, or http://… on this machine"
            raise Refused("INVALID_FIELD", message, path="$.witness.policy", witness=name)
    return policy, given.fail == "closed"
