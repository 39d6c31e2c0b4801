"""The notes of a handoff for its receiver: written by the sender, or taken from the sender's session.

The session adds its findings, dead ends, open unknowns and stored artifacts, and tools with "test" or "check" in their
name as tests. Retracted entries are left out. The session is the named one, the one in ``DEEDBOOK_SESSION``, or the
sender's only open session; ``none`` adds nothing. A cited file need not change, so no finding adds ``touches``.

A session may have records of several topics. Then only those of the handoff's topics are added: the topics that the
sender names, else those with the id of the handoff or of a reasoning that it cites.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from shlex import quote
from typing import Any, Final, NamedTuple

from deedbook.consumers.sdk.text import replace_line_breaks, shorten
from deedbook.ledger.client.client import Ask
from deedbook.ledger.errors import Refused, did_you_mean, near
from deedbook.ledger.events.handoff import HandoffContent, ReceiverNotes
from deedbook.ledger.home.environment import present_session

derived_max: Final = 12
later_max: Final = 5
note_max_chars: Final = 400
waiting_read_max: Final = 5
sessions_named_max: Final = 5
reasonings_read_max: Final = 50
EVERY_TOPIC: Final = "all"
_WANTED: Final = {
    "reproduce": "reproduce",
    "baseline": "baseline",
    "tested_by": "tested-by",
    "traps": "trap",
    "tried": "tried",
}
"""The option of each note that a receiver will ask for."""
_STORED: Final = "kept: "
_TEST: Final = re.compile("test|check", re.IGNORECASE)


class SessionNotes(NamedTuple):
    """The notes from a session, by kind, and the number of records of each topic that were left out.

    ``warning`` is not empty if the sender has several open sessions and names none.
    """

    notes: Mapping[str, list[str]] = {}
    left_out: Mapping[str, int] = {}
    warning: str = ""


def session_notes(
    view: Ask, sender: str, session: str | None, topics: Sequence[str] = (), names: Sequence[str] = ()
) -> SessionNotes:
    """Return the notes that a session adds to a handoff; ``names`` are the ids of the handoff and of its reasonings.

    >>> answer = {"total": 2, "items": [{"id": "s2"}, {"id": "s1"}]}
    >>> session_notes(lambda query, args: answer, "kuro", None).warning.partition(";")[0]
    'no session is attached: kuro has 2 open ones (s2, s1)'

    Raises Refused: as ``sessions.show``; ``NOT_FOUND`` for a topic that the session lacks. ``USAGE`` if it has several
    topics and none is chosen, or if it has no topics and the handoff cites only some of its reasonings.
    """
    named = session or present_session()
    names_open, total = ([], 0) if named else _open_sessions(view, sender)
    name = named or (names_open[0] if total == 1 else "none")
    if name == "none":
        if topics:
            raise Refused("USAGE", "a topic needs a session that has it: name it with --session ID", field="topics")
        listed = f"{', '.join(names_open)}{', …' if total > len(names_open) else ''}"
        choice = "--session ID or DEEDBOOK_SESSION chooses one, --session none says that none is meant"
        several = f"no session is attached: {sender} has {total} open ones ({listed}); {choice}"
        return SessionNotes(warning=several if total else "")
    shown = view("sessions.show", {"id": name.removeprefix("session/")})
    records = list(_records(shown))
    counts = Counter(record.topic for record in records)
    chosen = _chosen(counts, list(dict.fromkeys(topics)), names, records)
    if records and not topics and not any(counts):
        _check_one_matter(view, shown["id"], names, records)
    notes: dict[str, dict[str, None]] = {}
    for record in records:
        for kind, text in record.notes if record.topic in chosen else ():
            notes.setdefault(kind, {})[_note(text)] = None
    kinds = ReceiverNotes.__struct_fields__
    derived = {kind: list(notes[kind])[-derived_max:] for kind in kinds if kind in notes}
    return SessionNotes(derived, {topic: counts[topic] for topic in sorted(counts.keys() - chosen)})


def _chosen(
    counts: Mapping[str, int], topics: Sequence[str], names: Sequence[str], records: Sequence[_Record]
) -> set[str]:
    there_are = {topic for topic in counts if topic}
    if topics == [EVERY_TOPIC]:
        return set(counts)
    if unknown := [topic for topic in topics if topic not in there_are]:
        rest = did_you_mean(near(unknown[0], there_are)) or f": it has {', '.join(sorted(there_are)) or 'none'}"
        raise Refused("NOT_FOUND", f"the session has no topic {unknown[0]}{rest}", field="topics")
    if topics or len(there_are) <= 1:
        return set(topics) or set(counts)
    if meant := there_are.intersection(names):
        return meant
    by_topic = "; ".join(f"{topic or 'no topic'}: {_kinds_of(topic, records)}" for topic in sorted(counts))
    advice = f"--topic NAME says what belongs to this handoff (`{EVERY_TOPIC}`: everything; --session none: nothing)"
    message = f"your session has records of several topics ({by_topic}): {advice}"
    raise Refused("USAGE", message, field="topics", topics=dict(counts))


def _check_one_matter(view: Ask, session: str, names: Sequence[str], records: Sequence[_Record]) -> None:
    """Refuse records without topics if the handoff cites some of the session's reasonings, but not all."""
    rows = view("reasoning.list", {"session": session, "limit": reasonings_read_max})["items"]
    cited = [row for row in rows if {row["id"], row["ref"]}.intersection(names)]
    if cited and len(cited) < len(rows):
        advice = "--topic all takes all of them along, --session none takes none (lines `topic: NAME` tell them apart)"
        message = f"your session has {len(rows)} reasonings, but no topics ({_kinds_of('', records)}): {advice}"
        raise Refused("USAGE", message, field="topics")


def _kinds_of(topic: str, records: Sequence[_Record]) -> str:
    """Return how many records of a topic there are, by the kind of note that each becomes."""
    counts = Counter(record.notes[0][0] for record in records if record.topic == topic)
    return ", ".join(f"{number} {kind.replace('_', ' ')}" for kind, number in counts.items())


def with_session(notes: Mapping[str, Sequence[str]], added: SessionNotes) -> ReceiverNotes:
    """Return the sender's notes, followed by those from the session."""
    kinds = ReceiverNotes.__struct_fields__
    return ReceiverNotes(
        **{kind: list(dict.fromkeys([*notes.get(kind, ()), *added.notes.get(kind, ())])) for kind in kinds}
    )


def left_out_text(left_out: Mapping[str, int]) -> str:
    """Return in words how many records of other topics were left out; empty if there were none.

    >>> left_out_text({"": 1, "sql": 3})
    'left out, of other topics (--topic NAME adds them): no topic (1), sql (3)'
    """
    counts = ", ".join(f"{topic or 'no topic'} ({number})" for topic, number in left_out.items())
    return f"left out, of other topics (--topic NAME adds them): {counts}" if counts else ""


def later(handoff: Mapping[str, Any]) -> list[str]:
    """Return the lines that the sender logged since the last change of the content.

    Once work is in progress, the sender can only log: the content cannot change any more.
    """
    senders = (handoff["from"], handoff["importer"])
    lines = (line for line in handoff["log"] if line["kind"] == "handoff.logged" and line["author"] in senders)
    return [line["text"] for line in lines if line["event_index"] > handoff["template_index"]][-later_max:]


def notices(content: HandoffContent, name: str, sender: str) -> list[str]:
    """Return the notices about a new handoff: it is to its own sender, or lacks notes that a receiver will ask for.

    >>> said = {"reproduce": ["x"], "baseline": ["none"], "tested_by": ["make test"], "traps": ["two configs"]}
    >>> content = HandoffContent(title="t", to="a", criteria=["it works"], notes=ReceiverNotes(**said))
    >>> own, unsaid = notices(content, "h", "a")
    >>> own
    'a hands it to themselves: somebody else still reviews it'
    >>> unsaid
    'a receiver also needs: tried (see `deed handoff create --help`); add with `deed handoff amend h --tried TEXT …`'
    """
    own = [f"{sender} hands it to themselves: somebody else still reviews it"] if content.to == sender else []
    if not content.criteria:
        add = f"`deed handoff amend {quote(name)} --add-criterion TEXT`"
        own.append(f"it has no acceptance criterion, so nothing must be shown before it is completed; add with {add}")
    return [*own, *_lacking(content, name)]


def notices_of_amendment(content: HandoffContent, name: str, changed: Collection[str]) -> list[str]:
    """Return the notice about notes that an amended handoff still lacks, if the amendment ``changed`` a note.

    >>> content = HandoffContent(title="t", to="a", notes=ReceiverNotes(reproduce=["x"], tried=["y"], traps=["z"]))
    >>> notices_of_amendment(content, "h", ["title"])
    []
    >>> (unsaid,) = notices_of_amendment(content, "h", ["reproduce"])
    >>> unsaid.partition(" (")[0]
    'a receiver also needs: baseline, tested-by'
    """
    return _lacking(content, name) if not set(ReceiverNotes.__struct_fields__).isdisjoint(changed) else []


def _lacking(content: HandoffContent, name: str) -> list[str]:
    """Return the notice about the notes that a handoff lacks."""
    lacking = [option for kind, option in _WANTED.items() if not getattr(content.notes, kind)]
    if not lacking:
        return []
    add = f"`deed handoff amend {quote(name)} --{lacking[0]} TEXT …`"
    return [f"a receiver also needs: {', '.join(lacking)} (see `deed handoff create --help`); add with {add}"]


def unsaid_at_completion(handoff: Mapping[str, Any], summary: str | None) -> list[str]:
    """Return warnings about a completion that only its reviewer can undo; ``handoff`` is of ``handoffs.show``.

    >>> asked = {"position": 0, "by": "kuro", "to": "alex", "mark": "open"}
    >>> lists = {"tasks": [{"done": False}], "criteria": [{"mark": "checked", "evidence": ""}], "questions": [asked]}
    >>> for warning in unsaid_at_completion({"status": "in_progress", "to": "kuro", **lists}, None):
    ...     print(warning)
    it has no --summary for its reviewer, who would have to request changes for one
    kuro asked, and it is open: question 1
    it is open: task 1
    it was ticked without evidence: criterion 1
    """
    to_receiver = [row for row in handoff["questions"] if row["to"] == handoff["to"]]
    holding = {row["mark"] for row in (*handoff["criteria"], *to_receiver)} & {"open", "asked", "answered"}
    if handoff["status"] != "in_progress" or holding:
        return []  # it will be refused
    asked = [row for row in handoff["questions"] if row["by"] == handoff["to"] and row["mark"] != "settled"]
    numbers = ", ".join(str(row["position"] + 1) for row in asked)
    tasks = open_tasks(handoff)
    bare = _numbers(handoff["criteria"], lambda row: row["mark"] == "checked" and not row["evidence"])
    return [
        *([] if summary else ["it has no --summary for its reviewer, who would have to request changes for one"]),
        *([f"{handoff['to']} asked, and it is open: question {numbers}"] if asked else []),
        *([f"it is open: task {tasks}"] if tasks else []),
        *([f"it was ticked without evidence: criterion {bare}"] if bare else []),
    ]


def open_tasks(handoff: Mapping[str, Any]) -> str:
    """Return the numbers of the tasks that are not done, as ``--task`` takes them."""
    return _numbers(handoff["tasks"], lambda row: not row["done"])


def _numbers(rows: Sequence[Mapping[str, Any]], is_meant: Callable[[Mapping[str, Any]], bool]) -> str:
    return ", ".join(str(number) for number, row in enumerate(rows, 1) if is_meant(row))


def _open_sessions(view: Ask, sender: str) -> tuple[list[str], int]:
    page = view("sessions.list", {"author": sender, "status": "open", "limit": sessions_named_max})
    return [row["id"] for row in page["items"]], page["total"]


class _Record(NamedTuple):
    """A record of a session: its topic, and the notes that it becomes, each with its kind."""

    topic: str
    notes: list[tuple[str, str]]


def _records(session: Mapping[str, Any]) -> Iterator[_Record]:
    """Yield the records of a session that become notes; withdrawn records do not."""
    for finding in _standing(session["findings"]):
        where = f" ({', '.join(finding['evidence'])})" if finding["evidence"] else ""
        yield _Record(finding["topic"], [("found", f"{finding['finding']}{where}")])
    for unknown in _standing(session["unknowns"]):
        yield _Record(unknown["topic"], [("not_known", unknown["unknown"])])
    for failed in _standing(session["dead_ends"]):
        kind = "argued" if failed["basis"] == "argued" else "tried"
        yield _Record(failed["topic"], [(kind, _attempt(failed))])
    for tool in session["tools"]:
        text = f"{tool['tool']} {tool['purpose']}".strip()
        if _STORED in text:
            yield _Record(tool["topic"], [("artifacts", text)])
        elif _TEST.search(text):
            yield _Record(tool["topic"], [("tested_by", tool["tool"])])


def _attempt(dead_end: Mapping[str, Any]) -> str:
    return f"{dead_end['approach']}: {dead_end['why_failed']}"


def _note(text: str) -> str:
    return shorten(" ".join(replace_line_breaks(text).split()), note_max_chars)


def without_noted(
    view: Ask, items: Sequence[Mapping[str, Any]], dead_ends: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Return dead ends, except those in a waiting handoff, whose receiver reads them there.

    ``items`` are those of ``handoffs.next``; the first ``waiting_read_max`` are read.
    """
    if not dead_ends:
        return []
    names = [item["id"] for item in items if item["kind"] == "handoff" and item["action"] in {"claim", "continue"}]
    notes = [view("handoffs.show", {"id": name})["notes"] for name in names[:waiting_read_max]]
    noted = {text for note in notes for kind in ("tried", "argued") for text in note[kind]}
    return [dead_end for dead_end in dead_ends if _note(_attempt(dead_end)) not in noted]


def _standing(rows: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    return (row for row in rows if row["correction"] is None)
