"""The decisions that a person may make now about one thing, and the page content that a click is bound to. Pure.

There is no second table of states. A form offers an operation if the table of operations gives it to a reviewer (or to
another role that this person has) and the gate's state machine admits it in the handoff's state. The gate checks
conditions on other streams when the decision arrives, as for everybody.

A reviewer may request changes only after the work is completed. Before that, only the sender changes a handoff. So the
form of a pending handoff offers a question to the sender: the question comes first in the sender's queue, and the
handoff stays pending.

A form carries the content that the page displayed, and each button has a token over all of it. So a decision applies to
exactly the version and the result that the person read. Most events sign them; any other event is accepted only while
the stream has no new entries. A button pressed twice makes one event: its token makes the idempotency key.
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
from deedbook.ledger.lifecycle.handoff import MACHINE, HandoffState
from deedbook.ledger.limits import decision_form_max_s

# The label and style of each button; the first button of a form is its main purpose. A label has a place for the number
# of a version or criterion, or for the name of the agent who is asked. Every other operation of a reviewer has its name
# as the label, except an amendment, which has more fields than a button can fill.
_BUTTONS: Final[dict[Verb, tuple[str, str]]] = {
    "approve": ("Approve v{}", "yes"),
    "verify": ("Verify v{}", "yes"),
    "unblock": ("Unblock", "yes"),
    "waive": ("Waive criterion {}", "yes"),
    "request_changes": ("Request changes", ""),
    "ask": ("Ask {} for changes", ""),
    "reject": ("Reject", "no"),
    "log": ("Add to its log", ""),
    "cancel": ("Cancel it", "no"),
}
BUTTONS: Final = _BUTTONS | {
    verb: (verb.replace("_", " ").capitalize(), "")
    for verb, operation in OPERATIONS.items()
    if "reviewer" in operation.by and verb != "amend" and verb not in _BUTTONS
}
_REFUSED: Final = "refuse"
_OF_QUESTIONS: Final = ("answer", "settle")  # for these, the number in ``word`` is that of the question
_DECISION: Final = re.compile(r"(([a-z_]+)(?:\.[1-9][0-9]{0,5})?):([0-9a-f]{64})", re.ASCII)
_COUNT: Final = re.compile(r"[0-9]{1,15}", re.ASCII)


class Choice(NamedTuple):
    """A button: the operation (``word``, with its criterion), its label and style, and whether it needs a note."""

    word: str
    label: str
    style: str
    needs_note: bool = False


# The answers to a review; its request never changes.
ANSWERS: Final = (Choice("approve", "Yes, go ahead", "yes"), Choice("reject", "No, do not", "no"))


class DisplayedContent(NamedTuple):
    """The content that a page showed of a stream.

    ``version`` (empty for a review), ``result``, the number of ``entries``, and the size of the log.
    """

    stream: str
    version: str
    result: str
    entries: int
    size: int
    shown_ms: int

    def token_parts(self, word: str) -> tuple[str, ...]:
        """Return the strings that the token of a button covers."""
        return ("decide", word, *map(str, self))


class Decision(NamedTuple):
    """A pressed button: the operation with its criterion, its token, the note, and the content that was displayed."""

    word: str
    token: str
    note: str
    displayed: DisplayedContent

    @property
    def verb(self) -> Verb:
        """The operation, as the table of operations names it."""
        verb = self.word.partition(".")[0]
        return "waive" if verb == _REFUSED else cast("Verb", verb)

    @property
    def idem(self) -> str:
        """The idempotency key: the same form sent again gets the first answer. The token itself stays secret."""
        return f"dashboard:{sha256(self.token.encode()).hexdigest()[:32]}"

    @property
    def expect(self) -> int | None:
        """The version that the stream must still have, so that the decision applies to what the page showed.

        It is None for ``log``, and if the event itself names the version or result that it judges. A review has no
        version of its own, so the version of its stream is always expected.
        """
        names_it = self.verb in OF_WHAT_WAS_READ or self.verb == "log"
        return None if names_it and self.displayed.version else self.displayed.entries


def decision_in(form: Mapping[str, str], stream: str) -> Decision:
    """Return the decision in a form. Raises Refused: ``INVALID_FORMAT`` for a form that no page of ours sends."""
    match = _DECISION.fullmatch(form.get("decision", ""))
    version, result = (form.get(name, "") for name in ("version", "result"))
    counts = [form.get(name, "") for name in ("entries", "size", "shown_ms")]
    are_refs = all(not ref or re.match(REF_PATTERN, ref) for ref in (version, result))
    if (
        match is None
        or match[2] not in (*BUTTONS, _REFUSED, *_OF_QUESTIONS)
        or not are_refs
        or not all(map(_COUNT.fullmatch, counts))
    ):
        raise Refused("INVALID_FORMAT", "this form contains no decision: reload the page and press one of its buttons")
    entries, size, shown_ms = map(int, counts)
    # A browser sends each line end as two characters; sign the text as it was typed.
    note = form.get("note", "").replace("\r\n", "\n").strip()
    return Decision(match[1], match[3], note, DisplayedContent(stream, version, result, entries, size, shown_ms))


def arguments_of(decision: Decision, now_ms: int) -> dict[str, Any]:
    """Return the arguments of the decided operation, as the other interfaces pass them.

    Raises Refused: ``USAGE`` if it needs a note and there is none; ``VERSION_MISMATCH`` if the page was loaded more
    than ``decision_form_max_s`` ago.
    """
    if not 0 <= now_ms - decision.displayed.shown_ms <= decision_form_max_s * 1000:
        raise Refused("VERSION_MISMATCH", "this page was loaded too long ago: reload it, read it again, then decide")
    verb, _, number = decision.word.partition(".")
    read = OF_WHAT_WAS_READ.get(decision.verb)
    args: dict[str, Any] = {} if read is None else {read: getattr(decision.displayed, read)}
    if number:
        args |= {"question_numbers": [int(number)]} if verb in _OF_QUESTIONS else {"criterion_numbers": int(number)}
    args |= {"refuse": True} if verb == _REFUSED else {}
    name, is_needed = _note_of(decision.verb)
    if is_needed and not decision.note and (decision.displayed.version or verb == "answer"):
        raise Refused("USAGE", f"{verb.replace('_', ' ')} needs a note: write one", field="note")
    return args | ({name: decision.note} if decision.note else {})


def choices_of(state: HandoffState, row: Mapping[str, Any], number: int, human: str, now_ms: int) -> Iterator[Choice]:
    """Yield the buttons of a handoff's form: ``row`` is the answer of ``handoffs.show`` for its ``state``."""
    is_approved = row["status"] != "pending" and all(
        reason["code"] != "NOT_APPROVED" for reason in row["why"]["reasons"]
    )
    waiver_positions = [criterion["position"] for criterion in row["criteria"] if criterion["mark"] == "asked"]
    event = Event(
        index=0,
        id="",
        accepted_ms=now_ms,
        key="",
        ledger="",
        kind="",
        stream=f"handoff/{row['id']}",
        author=human,
        at="",
        causes=[],
        data=None,
    )
    for verb, (label, style) in BUTTONS.items():
        if verb == "approve" and is_approved:  # only an approval that does not count may be repeated
            continue
        if verb == "verify" and row["status"] == "verified" and not row["why"]["waits"]:  # it counts
            continue
        # Anybody may ask, but only a person who can approve needs this button.
        if verb == "ask" and (is_approved or not _is_admitted(state, "approve", None, event)):
            continue
        needs_note = _note_of(verb)[1]
        for position in waiver_positions if verb == "waive" else [None]:
            if not _is_admitted(state, verb, position, event):
                continue
            if position is None:
                yield Choice(verb, label.format(amender_of(row) if verb == "ask" else number), style, needs_note)
                continue
            yield Choice(f"waive.{position + 1}", label.format(position + 1), style, needs_note)
            yield Choice(f"{_REFUSED}.{position + 1}", f"Do not waive {position + 1}", "", needs_note)


def amender_of(handoff: Mapping[str, Any]) -> str:
    """Return the agent that can change a handoff: its importer acts for its sender."""
    return str(handoff["importer"] or handoff["from"])


def _note_of(verb: Verb) -> tuple[str, bool]:
    """Return the name of the argument that carries the note, and whether the operation needs one."""
    names = ("comment", "reason", "text")
    return next(
        (argument.name, argument.is_needed) for argument in OPERATIONS[verb].arguments if argument.name in names
    )


def _is_admitted(state: HandoffState, verb: Verb, position: int | None, event: Event) -> bool:
    """Tell whether the state machine admits this operation by the event's author now, with any text."""
    (form,) = OPERATIONS[verb].signs
    fields = {"version": state.version, "result": state.result, "position": position, "reasons": ["?"]}
    fields |= {"reason": "?", "text": "?", "question": "?", "to": state.importer or state.sender}
    data = form(**{field: fields[field] for field in form.__struct_fields__ if field in fields})
    try:
        MACHINE.decide(state, replace(event, kind=KIND_OF[form], data=data))
    except Refused:
        return False
    return True
