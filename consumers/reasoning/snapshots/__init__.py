"""Snapshots at work: an agent takes one, the next receives it and is told how far it may act on it (seed 001).

    from consumers.reasoning.snapshots import act_on, take_snapshot

    snapshot = take_snapshot(author, reader.answer, session="s1", reasoning="audit")
    decision = act_on(reader.answer, snapshot, author=receiver, task="Rotate the JWT secret")
    print(decision.action, decision.rule, decision.prompt.prompt)

The words used here: to *take* is to sign a snapshot of a session and a reasoning; to *receive* is to read one at a
level; a *decision* is the action that the seed's runtime flow comes to: ``act`` on the prompt, ``act_on_full`` on the
fetched graph, or ``human_review_required``. Names are loaded when first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.front_door import front_door

if TYPE_CHECKING:
    from consumers.reasoning.snapshots.act import Decision, act_on
    from consumers.reasoning.snapshots.receive import receive_snapshot
    from consumers.reasoning.snapshots.take import assemble, take_snapshot

__all__ = ["Decision", "act_on", "assemble", "receive_snapshot", "take_snapshot"]

__getattr__ = front_door(
    __name__,
    {
        "act": ("Decision", "act_on"),
        "receive": ("receive_snapshot",),
        "take": ("assemble", "take_snapshot"),
    },
)
