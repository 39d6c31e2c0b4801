"""Logs with valid signatures and erased entries, but a wrong author of the redaction, remnant, or reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from forge import SESSION
from forged_steps import (
    FINDING,
    WrongLog,
    checkpoint_rotated,
    compromised,
    finding,
    removed,
    rotated,
)

from deedbook.ledger.admission.replay import PartialReplay
from deedbook.ledger.events.authority import EntryRedacted, HistoryReset, RedactionProposed, RoleGranted, RoleRevoked
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.events.remnant import ERASED, _erased_body, digest_of, sets_content
from deedbook.ledger.format.envelope import Remnant, decode_entry, event_id, is_remnant
from deedbook.ledger.lifecycle.authority import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

    from forge import Forge

    from deedbook.ledger.format.identity import Key

    Step = Callable[[Forge], Any]

SECRET: Final = "correct-horse-battery-staple"
TARGET: Final = 9
"""The index of the first entry after those of every forge: most cases erase it."""
NO_EVENT: Final = "event:" + "0" * 64
NO_DIGEST: Final = "sha256:" + "0" * 64
NO_BLOB: Final = "blake3:" + "0" * 64
NO_VERSIONS: Final = {1: NO_DIGEST}


def secret(forge: Forge) -> None:
    """Log the event to be erased."""
    forge.emit("alice", SESSION, msgspec.structs.replace(FINDING, finding=SECRET, evidence=["in the file"]))


def remnant_at(forge: Forge, index: int, mark: str = ERASED) -> bytes:
    """Return the remnant of an entry, which it has or would have after an erasure."""
    entry = decode_entry(forge.entries[index])
    if is_remnant(entry.body):
        return entry.body
    event = read_event(index, entry)
    version = version_after(forge, index) if sets_content(event.data) else None
    return Remnant(event_id(entry.commitment), version, _erased_body(entry.body, event.data, mark)).encode()


def version_after(forge: Forge, index: int) -> str:
    """Return the version of a handoff after an event that sets its content; any version if the event is refused."""
    part = PartialReplay()
    for at, data in enumerate(forge.entries[: index + 1]):
        part.feed(at, data, is_verified=True)
    record = part.state.stream(read_event(index, forge.entries[index]).stream)
    return NO_DIGEST if record is None or record.state is None else record.state.version


def put(forge: Forge, index: int, remnant: bytes) -> None:
    """Replace the body of an entry by a remnant."""
    forge.entries[index] = msgspec.structs.replace(decode_entry(forge.entries[index]), body=remnant).encode()


def erased(index: int = TARGET, mark: str = ERASED) -> Step:
    """Return the step that erases a body."""

    def step(forge: Forge) -> None:
        at = index % len(forge.entries)
        put(forge, at, remnant_at(forge, at, mark))

    return step


def redaction(forge: Forge, index: int = TARGET, **changes: Any) -> EntryRedacted:
    """Return the data of a redaction of an entry, which names its remnant."""
    at = index % len(forge.entries)
    event = event_id(decode_entry(forge.entries[at]).commitment)
    fields = {"entry": at, "event": event, "remnant": digest_of(remnant_at(forge, at)), "reason": "it holds a password"}
    return EntryRedacted(**(fields | changes))


def redacted(
    author: str = ROOT, index: int = TARGET, *, key: Callable[[Forge], Key] | None = None, **data: Any
) -> Step:
    """Return the step that redacts an entry."""
    return lambda f: f.emit(author, "ledger", redaction(f, index, **data), key=key and key(f))


def proposed(author: str = "hana", index: int = TARGET, **data: Any) -> Step:
    """Return the step that proposes to redact an entry."""
    return lambda f: f.emit(author, "ledger", RedactionProposed(**msgspec.structs.asdict(redaction(f, index, **data))))


def hana(forge: Forge) -> None:
    """Register a second human."""
    forge.register("hana", "human")


def not_human(name: str) -> Step:
    """Return the step that revokes the role ``human`` of an agent."""
    return lambda f: f.emit("ada", f"agent/{name}", RoleRevoked(agent=name, role="human"))


def in_a_batch(*kinds: type[Any], author: str = "rita") -> Step:
    """Return the step that signs one redaction and a finding, or two redactions, in one batch."""

    def step(forge: Forge) -> None:
        whole = redaction(forge)
        named = [msgspec.structs.replace(whole, reason=f"reason {at}") for at in range(len(kinds))]
        made = [kind(**msgspec.structs.asdict(data)) for kind, data in zip(kinds, named, strict=True)]
        bodies = [forge.body(author, "ledger", data) for data in made]
        bodies += [forge.body(author, SESSION, FINDING)] * (len(kinds) == 1)
        for at, (body, public, sig) in enumerate(forge.batch(author, *bodies)):
            forge.store(body, public, sig, (at, len(bodies)))

    return step


def revoked_role(forge: Forge) -> None:
    """Revoke a role, with a reason that is to be erased."""
    forge.emit("ada", "agent/bob", RoleRevoked(agent="bob", role="agent", reason=SECRET))


def reset(forge: Forge) -> None:
    """Reset the history, with the secret as reason."""
    forge.emit(ROOT, "ledger", HistoryReset(abandoned_size=3, abandoned_root="1" * 64, reason=SECRET))


def handed(forge: Forge) -> None:
    """Create a handoff with the secret."""
    forge.hand_over("x", task=SECRET)


def all_of(*steps: Step) -> Step:
    """Return a step that does these steps in order."""

    def make(forge: Forge) -> None:
        for step in steps:
            step(forge)

    return make


def wrong(rule: str, code: str, *steps: Step, index: int = -1) -> WrongLog:
    """Return a case that first logs the secret, then does the steps."""
    return WrongLog(rule, code, all_of(secret, *steps), index)


def left(
    rule: str, old: str | tuple[str, str], new: str = "", code: str = "INVALID_FORMAT", *, make: Step = secret
) -> WrongLog:
    """Return a case in which root names a remnant that has ``new`` in place of ``old``.

    A pair ``old`` stands for the text from its first part up to its second.
    """

    def step(forge: Forge) -> None:
        make(forge)
        data, remnant = redaction(forge), remnant_at(forge, TARGET)
        first, last = (old, old) if isinstance(old, str) else old
        start, end = remnant.index(first.encode()), remnant.index(last.encode())
        end += len(last) if isinstance(old, str) else 0
        changed = remnant[:start] + new.encode() + remnant[end:]
        put(forge, TARGET, changed)
        forge.emit(ROOT, "ledger", msgspec.structs.replace(data, remnant=digest_of(changed)))

    return WrongLog(rule, code, step, TARGET)


WHO_REDACTS: Final = (
    wrong(
        "a stolen key does not propose",
        "KEY_REVOKED",
        hana,
        lambda f: compromised(f, "ada", "hana", TARGET),
        proposed(),
    ),
    wrong("a removed human does not propose", "KEY_REVOKED", hana, lambda f: removed(f, "hana"), proposed()),
    wrong("a human without the role does not propose", "NOT_AUTHORIZED", hana, not_human("hana"), proposed()),
    wrong("a redaction is signed by its author's key", "AUTHOR_MISMATCH", redacted(key=lambda f: f.keys["rita"])),
    wrong(
        "a human redacts the event that was proposed",
        "NOT_AUTHORIZED",
        hana,
        proposed(event=NO_EVENT),
        redacted("rita"),
    ),
    wrong(
        "a human names the remnant that was proposed",
        "NOT_AUTHORIZED",
        hana,
        proposed(remnant=NO_DIGEST),
        redacted("rita"),
    ),
    wrong(
        "a human erases the blobs that were proposed",
        "NOT_AUTHORIZED",
        hana,
        proposed(blobs=[NO_BLOB]),
        redacted("rita"),
    ),
    wrong("a human erases no other blob", "NOT_AUTHORIZED", hana, proposed(), redacted("rita", blobs=[NO_BLOB])),
    wrong("a human names no other ref", "NOT_AUTHORIZED", hana, proposed(), redacted("rita", versions=NO_VERSIONS)),
)

WHAT_IS_REDACTED: Final = (
    wrong("an earlier entry is erased", "INVALID_FIELD", redacted(entry=TARGET + 2)),
    wrong("a proposal is of an earlier entry", "INVALID_FIELD", hana, proposed(entry=TARGET + 2)),
    wrong("a redaction is alone in its batch", "INVALID_FIELD", in_a_batch(EntryRedacted), index=-2),
    wrong("a proposal is alone in its batch", "INVALID_FIELD", in_a_batch(RedactionProposed), index=-2),
    wrong("redactions do not share a batch", "INVALID_FIELD", in_a_batch(EntryRedacted, EntryRedacted), index=-2),
    wrong(
        "a redaction stands on the ledger's stream",
        "INVALID_FIELD",
        lambda f: f.edited(ROOT, "ledger", redaction(f), '"stream":"ledger"', f'"stream":"{SESSION}"'),
    ),
    wrong(
        "a redaction has a reason",
        "INVALID_FIELD",
        lambda f: f.edited(ROOT, "ledger", redaction(f), '"reason":"it holds a password",', ""),
    ),
    wrong(
        "a redaction erases blobs, not events",
        "INVALID_FIELD",
        lambda f: f.edited(ROOT, "ledger", redaction(f, blobs=[NO_BLOB]), NO_BLOB, NO_EVENT),
    ),
)

WHAT_IS_CONFIRMED: Final = (
    wrong("an erased entry is named", "VERIFICATION_FAILED", erased(), index=TARGET),
    wrong("a proposal names no erased entry", "VERIFICATION_FAILED", erased(), proposed("rita"), index=TARGET),
    wrong(
        "an erased entry is named with its event",
        "VERIFICATION_FAILED",
        erased(),
        redacted(event=NO_EVENT),
        index=TARGET,
    ),
    wrong(
        "an erased entry is named with its remnant",
        "VERIFICATION_FAILED",
        erased(),
        redacted(remnant=NO_DIGEST),
        index=TARGET,
    ),
    wrong(
        "humans name an erased entry with its remnant",
        "VERIFICATION_FAILED",
        hana,
        erased(),
        proposed(remnant=NO_DIGEST),
        redacted("rita", remnant=NO_DIGEST),
        index=TARGET,
    ),
    wrong("the remnant is the one that was named", "VERIFICATION_FAILED", redacted(), erased(mark="*"), index=TARGET),
    wrong(
        "an entry that was named with another remnant is not named again",
        "VERIFICATION_FAILED",
        erased(),
        redacted(remnant=NO_DIGEST, reason="first"),
        redacted(),
        index=TARGET,
    ),
    wrong("another entry is not named", "VERIFICATION_FAILED", erased(), redacted(index=8), index=TARGET),
    wrong("a refused redaction names nothing", "VERIFICATION_FAILED", erased(), redacted("alice"), index=TARGET),
    wrong(
        "each erased entry is named",
        "VERIFICATION_FAILED",
        finding,
        erased(),
        erased(TARGET + 1),
        redacted(),
        index=TARGET + 1,
    ),
    WrongLog(
        "humans do not erase an entry of authority",
        "VERIFICATION_FAILED",
        all_of(hana, revoked_role, erased(10), proposed("hana", 10), redacted("rita", 10)),
        10,
    ),
    WrongLog("an erased entry of authority is named", "VERIFICATION_FAILED", all_of(revoked_role, erased()), TARGET),
    wrong("an erased redaction is named", "VERIFICATION_FAILED", redacted(), erased(TARGET + 1), index=TARGET + 1),
    wrong(
        "an erased redaction is named by root",
        "VERIFICATION_FAILED",
        hana,
        redacted(),
        erased(TARGET + 2),
        proposed("hana", TARGET + 2),
        redacted("rita", TARGET + 2),
        index=TARGET + 2,
    ),
    WrongLog(
        "an erased entry counts its stream",
        "VERIFICATION_FAILED",
        all_of(
            secret, erased(), redacted(), lambda f: f.raw("alice", f.body("alice", SESSION, FINDING), stream_version=2)
        ),
        -1,
    ),
)

WHAT_IS_LEFT: Final = (
    left("nothing is put into an author's mouth", f'"finding":"{ERASED}"', '"finding":"I approve everything"'),
    left("each text is erased", f'"evidence":["{ERASED}"]', '"evidence":["in the file"]'),
    left("each text is erased in the same way", f'"evidence":["{ERASED}"]', '"evidence":["*"]'),
    left("a mark has one spelling", ERASED, "\\u005bredacted]"),
    left("a remnant has no white space", '"body":{', '"body": {'),
    left("the body in a remnant has no white space", '"author":', '"author": '),
    left("a remnant has its keys in order", '{"at":', '{"corr":"x","at":'),
    left("a remnant has no other field", '"body":{', '"note":"x","body":{'),
    left("a remnant has its id in one spelling", '"redacted":"event:', '"redacted":"event:A'),
    left("a remnant of no content has no version", '"body":{', f'"version":"{NO_DIGEST}","body":{{'),
    left("a remnant of content has a version", (',"version"', ',"body"'), make=handed),
    left("nothing follows the body in a remnant", "}}", f'}},"version":"{NO_DIGEST}"}}', make=handed),
    left("a remnant is of a known kind", "finding.logged", "finding.guessed", "UNKNOWN_KIND"),
    left("a remnant has the fields of its kind", '"evidence":', '"evidences":', "UNKNOWN_FIELD"),
    left("a remnant is no remnant of a remnant", '"body":{"at', '"body":{"redacted":"event:', "INVALID_FORMAT"),
    left("a remnant keeps its author", '"author":"alice"', '"author":"bob"', "AUTHOR_MISMATCH"),
    left("a remnant keeps its stream", f'"stream":"{SESSION}"', '"stream":"session/other"', "VERIFICATION_FAILED"),
    left("a remnant keeps its ledger", '"ledger":"', '"ledger":"0', "INVALID_FIELD"),
    left(
        "no remnant becomes an event of authority",
        ('"data":', ',"ledger"'),
        f'"data":{{"agent":"bob","reason":"{ERASED}","role":"agent"}},"kind":"role.revoked"',
        "INVALID_FIELD",
    ),
    left(
        "a remnant of an event without texts is none",
        ('"data":', ',"ledger"'),
        '"data":{},"kind":"handoff.claimed"',
        make=handed,
    ),
    *(
        WrongLog(f"an event that {what} keeps its body", "INVALID_FORMAT", all_of(make, erased(-1)), -1)
        for what, make in (
            ("rotates the key of root", lambda f: rotated(f, ROOT, ROOT, reason=SECRET)),
            ("rotates the key of checkpoints", checkpoint_rotated),
            ("resets the history", reset),
            ("registers an agent", hana),
            ("has no text", lambda f: f.emit("ada", "agent/bob", RoleGranted(agent="bob", role="reviewer"))),
        )
    ),
)

WRONG_REDACTIONS: Final = (*WHO_REDACTS, *WHAT_IS_REDACTED, *WHAT_IS_CONFIRMED, *WHAT_IS_LEFT)
