"""What a person may decide now about one thing, and what exactly his click is bound to. Pure.

There is no second table of states: an act stands in a form when the table of acts gives it to a reviewer (or to a part
that he has as well) and the gate's own machine admits it where the handoff stands. What the gate asks of other streams
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

from consumers.handoffs.acts import ACTS, OF_WHAT_WAS_READ, Verb
from ledger.errors import Refused
from ledger.events import KIND_OF
from ledger.events.body import Event
from ledger.events.fields import EventData
from ledger.forms import REF_PATTERN
from ledger.lifecycle.handoff import HandoffState, transition
from ledger.limits import decision_form_max_s

# How a button is called and looks; the first of those that stand in a form is what it is mostly there for.
_BUTTONS: Final[dict[Verb, tuple[str, str]]] = {
    "approve": ("Approve v{number}", "yes"),
    "verify": ("Verify v{number}", "yes"),
    "unblock": ("Unblock", "yes"),
    "waive": ("Waive criterion {criterion}", "yes"),
    "request_changes": ("Request changes", ""),
    "reject": ("Reject", "no"),
    "log": ("Add to its log", ""),
    "cancel": ("Cancel it", "no"),
}
_REFUSED: Final = "refuse"
_NOTES: Final = ("comment", "reason", "text")
_ANY_WORDS: Final = "?"
_DECISION: Final = re.compile(r"([a-z_]+)(?:\.([1-9][0-9]{0,5}))?:([0-9a-f]{64})", re.ASCII)
_COUNT: Final = re.compile(r"[0-9]{1,15}", re.ASCII)


class Choice(NamedTuple):
    """A button: the act (``word`` names its criterion, too), its label and look, and whether it needs a note."""

    word: str
    label: str
    style: str
    needs_note: bool = False


# What a person says to a review, whose request never changes.
ANSWERS: Final = (Choice("approve", "Let it act", "yes"), Choice("reject", "Do not let it act", "no"))


class Displayed(NamedTuple):
    """What a page showed of a stream, and so what a decision made there is of.

    ``completion`` is the event that handed in the result, ``entries`` how many the stream had, ``size`` the log; both
    refs are empty for a review, whose request never changes.
    """

    stream: str
    version: str
    completion: str
    entries: int
    size: int
    shown_ms: int

    def fields(self) -> dict[str, str]:
        """Return the fields of a form that carry it."""
        return {name: str(value) for name, value in self._asdict().items() if name != "stream"}

    def words(self, word: str) -> tuple[str, ...]:
        """Return what the token of an act's button is made over."""
        return ("decide", word, self.stream, *self.fields().values())


class Decision(NamedTuple):
    """What was pressed: the act with its criterion (from 1), the token that came with it, and the note."""

    word: str
    token: str
    note: str

    @property
    def verb(self) -> Verb:
        """The act, as the table of acts names it."""
        verb = self.word.partition(".")[0]
        return "waive" if verb == _REFUSED else cast("Verb", verb)

    @property
    def idem(self) -> str:
        """The key under which the same press again returns the first answer; the token itself is published nowhere."""
        return f"dashboard:{sha256(self.token.encode()).hexdigest()[:32]}"


def displayed_in(form: Mapping[str, str], stream: str) -> Displayed:
    """Return what the page of a form showed. Raises Refused: ``INVALID_FORMAT`` for what no page of ours sends."""
    refs = [form.get(name, "") for name in ("version", "completion")]
    counts = [form.get(name, "") for name in ("entries", "size", "shown_ms")]
    if any(ref and not re.match(REF_PATTERN, ref) for ref in refs) or not all(map(_COUNT.fullmatch, counts)):
        raise Refused("INVALID_FORMAT", "this form lacks what its page displayed: load the page again")
    return Displayed(stream, refs[0], refs[1], int(counts[0]), int(counts[1]), int(counts[2]))


def check_age(displayed: Displayed, now_ms: int) -> None:
    """Refuse what was shown so long ago that nobody has it in mind. Raises Refused: ``VERSION_MISMATCH``."""
    if not 0 <= now_ms - displayed.shown_ms <= decision_form_max_s * 1000:
        raise Refused("VERSION_MISMATCH", "this page was loaded long ago: read it again, then decide")


def decision_in(form: Mapping[str, str]) -> Decision:
    """Return what was pressed. Raises Refused: ``INVALID_FORMAT`` where it was no button of ours."""
    match = _DECISION.fullmatch(form.get("decision", ""))
    if match is None or match[1] not in (*_BUTTONS, _REFUSED):
        raise Refused("INVALID_FORMAT", "this form says no decision: press one of its buttons")
    # A browser sends each line end as two characters, and what was typed is signed as it was typed.
    note = form.get("note", "").replace("\r\n", "\n").strip()
    return Decision(match[0].partition(":")[0], match[3], note)


def choices_of(state: HandoffState, shown: Mapping[str, Any], number: int, human: str, now_ms: int) -> Iterator[Choice]:
    """Yield what a human may decide now of a handoff: ``shown`` is the answer of ``handoffs.show`` on its ``state``."""
    has_approval = shown["status"] != "pending" and all(
        one["code"] != "NOT_APPROVED" for one in shown["why"]["reasons"]
    )
    asked = [one["position"] for one in shown["criteria"] if one["mark"] == "asked"]
    for verb, (label, style) in _BUTTONS.items():
        needs_note = _note_of(verb)[1]
        if verb == "approve" and has_approval:  # the machine lets one that does not count be given again
            continue
        for position in asked if verb == "waive" else [0]:
            if not _is_admitted(state, _sample(verb, state, position), shown["id"], human, now_ms):
                continue
            if verb != "waive":
                yield Choice(verb, label.format(number=number), style, needs_note)
                continue
            yield Choice(f"waive.{position + 1}", label.format(criterion=position + 1), style, needs_note)
            yield Choice(f"{_REFUSED}.{position + 1}", f"Do not waive {position + 1}", "", needs_note)


def arguments_of(decision: Decision, displayed: Displayed) -> dict[str, Any]:
    """Return the arguments of the act that was decided, as every door gives them.

    Raises Refused: ``USAGE`` where it needs a note, and none was written.

    >>> shown = Displayed("handoff/h", "sha256:ab", "", 2, 9, 0)
    >>> arguments_of(Decision("refuse.2", "", "It can be met."), shown)
    {'criterion_numbers': 2, 'refuse': True, 'reason': 'It can be met.'}
    """
    verb, _, criterion = decision.word.partition(".")
    given: dict[str, Any] = {"version": displayed.version} if verb in OF_WHAT_WAS_READ else {}
    given |= {"criterion_numbers": int(criterion)} if criterion else {}
    given |= {"refuse": True} if verb == _REFUSED else {}
    name, is_needed = _note_of(decision.verb)
    if is_needed and not decision.note:
        raise Refused("USAGE", f"say why: to {verb.replace('_', ' ')} needs a note", field="note")
    return given | ({name: decision.note} if decision.note else {})


def binds_itself(verb: Verb) -> bool:
    """Whether an act's event signs what it is a judgement of; any other is of a stream to which nothing was added."""
    return verb in OF_WHAT_WAS_READ or verb in ("request_changes", "log")


def _note_of(verb: Verb) -> tuple[str, bool]:
    """Return which argument of an act is said in the note, and whether it needs one."""
    return next((one.name, one.is_needed) for one in ACTS[verb].arguments if one.name in _NOTES)


def _sample(verb: Verb, state: HandoffState, position: int) -> EventData:
    """Return what an act would sign now, with whatever words."""
    (form,) = ACTS[verb].signs
    fields = {
        "version": state.version, "completion": state.completion, "position": position, "reasons": [_ANY_WORDS],
        **dict.fromkeys(("reason", "text"), _ANY_WORDS),
    }  # fmt: skip
    return form(**{field: fields[field] for field in form.__struct_fields__ if field in fields})


def _is_admitted(state: HandoffState, data: EventData, name: str, human: str, now_ms: int) -> bool:
    """Whether the machine lets a human do this now."""
    event = Event(
        index=0, id="", accepted_ms=now_ms, key="", ledger="", kind=KIND_OF[type(data)], stream=f"handoff/{name}",
        author=human, at="", causes=[], data=data,
    )  # fmt: skip
    try:
        transition(state, event)
    except Refused:
        return False
    return True
