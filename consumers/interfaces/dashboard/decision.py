"""What a person may decide now about one thing, and what exactly his click is bound to. Pure.

There is no second table of states. A form offers an operation when the table of operations gives it to a reviewer (or
to a part that they have as well) and the gate's own state machine admits it now. What the gate asks of other streams
it asks when the decision arrives, as of anybody's.

A form carries what the page displayed, and a token over all of it for each of its buttons. So a decision is of the very
version, and the very result, that was read: the event signs those, or, where it signs neither, is admitted only while
nothing was added to the stream since. Pressed twice it is one event, by an idempotency key made of its token.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, Final, NamedTuple, cast

from msgspec.structs import replace

from deedbook.consumers.handoffs.operations import OF_WHAT_WAS_READ, OPERATIONS, Verb
from deedbook.ledger.errors import Refused
from deedbook.ledger.events import KIND_OF
from deedbook.ledger.events.body import Event
from deedbook.ledger.format.forms import REF_PATTERN
from deedbook.ledger.lifecycle.handoff import HandoffState, transition
from deedbook.ledger.limits import decision_form_max_s

# How a button is called and looks; the first of those that stand in a form is what it is mostly there for.
BUTTONS: Final[dict[Verb, tuple[str, str]]] = {
    "approve": ("Approve v{}", "yes"),
    "verify": ("Verify v{}", "yes"),
    "unblock": ("Unblock", "yes"),
    "waive": ("Waive criterion {}", "yes"),
    "request_changes": ("Request changes", ""),
    "reject": ("Reject", "no"),
    "log": ("Add to its log", ""),
    "cancel": ("Cancel it", "no"),
}
_REFUSED: Final = "refuse"
_DECISION: Final = re.compile(r"(([a-z_]+)(?:\.[1-9][0-9]{0,5})?):([0-9a-f]{64})", re.ASCII)
_COUNT: Final = re.compile(r"[0-9]{1,15}", re.ASCII)


class Choice(NamedTuple):
    """A button: the operation (``word`` names its criterion, too), its label and look, and whether it needs a note."""

    word: str
    label: str
    style: str
    needs_note: bool = False


# What a person says to a review, whose request never changes.
ANSWERS: Final = (Choice("approve", "Let it act", "yes"), Choice("reject", "Do not let it act", "no"))


class Displayed(NamedTuple):
    """What a page showed of a stream: of which version (empty: a review), with how many entries, out of ``size``."""

    stream: str
    version: str
    completion: str
    entries: int
    size: int
    shown_ms: int

    def words(self, word: str) -> tuple[str, ...]:
        """Return what the token of an operation's button is made over."""
        return ("decide", word, *map(str, self))


class Decision(NamedTuple):
    """The pressed button: the operation and its criterion, its token, the note, and what was displayed."""

    word: str
    token: str
    note: str
    displayed: Displayed

    @property
    def verb(self) -> Verb:
        """The operation, as the table of operations names it."""
        verb = self.word.partition(".")[0]
        return "waive" if verb == _REFUSED else cast("Verb", verb)

    @property
    def idem(self) -> str:
        """The key under which the same press again returns the first answer; the token itself is published nowhere."""
        return f"dashboard:{sha256(self.token.encode()).hexdigest()[:32]}"

    @property
    def expect(self) -> int | None:
        """How many entries the stream must still have; None where what is signed names what it is a judgement of."""
        names_it = self.verb in OF_WHAT_WAS_READ or self.verb in ("request_changes", "log")
        return None if names_it and self.displayed.version else self.displayed.entries


def decision_in(form: Mapping[str, str], stream: str) -> Decision:
    """Return what was pressed in a form. Raises Refused: ``INVALID_FORMAT`` for what no page of ours sends."""
    match = _DECISION.fullmatch(form.get("decision", ""))
    version, completion = (form.get(name, "") for name in ("version", "completion"))
    counts = [form.get(name, "") for name in ("entries", "size", "shown_ms")]
    are_refs = all(not ref or re.match(REF_PATTERN, ref) for ref in (version, completion))
    if match is None or match[2] not in (*BUTTONS, _REFUSED) or not are_refs or not all(map(_COUNT.fullmatch, counts)):
        raise Refused("INVALID_FORMAT", "this form says no decision: load its page again, and press one of its buttons")
    entries, size, shown_ms = map(int, counts)
    # A browser sends each line end as two characters, and what was typed is signed as it was typed.
    note = form.get("note", "").replace("\r\n", "\n").strip()
    return Decision(match[1], match[3], note, Displayed(stream, version, completion, entries, size, shown_ms))


def arguments_of(decision: Decision, now_ms: int) -> dict[str, Any]:
    """Return the arguments of the operation that was decided, as every door gives them.

    Raises Refused: ``USAGE`` where it needs a note, and none was written; ``VERSION_MISMATCH`` when its page was shown
    so long ago that nobody has it in mind.
    """
    if not 0 <= now_ms - decision.displayed.shown_ms <= decision_form_max_s * 1000:
        raise Refused("VERSION_MISMATCH", "this page was loaded long ago: read it again, then decide")
    verb, _, criterion = decision.word.partition(".")
    given: dict[str, Any] = {"version": decision.displayed.version} if verb in OF_WHAT_WAS_READ else {}
    given |= {"criterion_numbers": int(criterion)} if criterion else {}
    given |= {"refuse": True} if verb == _REFUSED else {}
    name, is_needed = _note_of(decision.verb)
    if is_needed and not decision.note and decision.displayed.version:
        raise Refused("USAGE", f"say why: to {verb.replace('_', ' ')} needs a note", field="note")
    return given | ({name: decision.note} if decision.note else {})


def choices_of(state: HandoffState, shown: Mapping[str, Any], number: int, human: str, now_ms: int) -> Iterator[Choice]:
    """Yield what a human may decide now of a handoff: ``shown`` is the answer of ``handoffs.show`` on its ``state``."""
    is_approved = shown["status"] != "pending" and all(one["code"] != "NOT_APPROVED" for one in shown["why"]["reasons"])
    asked = [one["position"] for one in shown["criteria"] if one["mark"] == "asked"]
    event = Event(
        index=0,
        id="",
        accepted_ms=now_ms,
        key="",
        ledger="",
        kind="",
        stream=f"handoff/{shown['id']}",
        author=human,
        at="",
        causes=[],
        data=None,
    )
    for verb, (label, style) in BUTTONS.items():
        if verb == "approve" and is_approved:  # the machine lets one that does not count be given again
            continue
        needs_note = _note_of(verb)[1]
        for position in asked if verb == "waive" else [None]:
            if not _is_admitted(state, verb, position, event):
                continue
            if position is None:
                yield Choice(verb, label.format(number), style, needs_note)
                continue
            yield Choice(f"waive.{position + 1}", label.format(position + 1), style, needs_note)
            yield Choice(f"{_REFUSED}.{position + 1}", f"Do not waive {position + 1}", "", needs_note)


def _note_of(verb: Verb) -> tuple[str, bool]:
    """Return which argument of an operation is said in the note, and whether it needs one."""
    names = ("comment", "reason", "text")
    return next((one.name, one.is_needed) for one in OPERATIONS[verb].arguments if one.name in names)


def _is_admitted(state: HandoffState, verb: Verb, position: int | None, event: Event) -> bool:
    """Whether the machine lets the author of an event do this now, with whatever words."""
    (form,) = OPERATIONS[verb].signs
    fields = {"version": state.version, "completion": state.completion, "position": position, "reasons": ["?"]}
    fields |= {"reason": "?", "text": "?"}
    data = form(**{field: fields[field] for field in form.__struct_fields__ if field in fields})
    try:
        transition(state, replace(event, kind=KIND_OF[form], data=data))
    except Refused:
        return False
    return True
