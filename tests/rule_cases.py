"""Reads, expands and plays the cases of ``proto/cases``, in the notation of ``proto/cases/README.md``.

A ``Runner`` is one implementation of the rules. ``play`` plays a case on it and returns the outcome.
"""

from __future__ import annotations

import json
import re
import tomllib
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from building import GIVEN_MS, NO_EVENT, key_named
from event_examples import PROTO, published, smallest
from given import fact

from deedbook.ledger.admission.rules import MACHINES
from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Refused
from deedbook.ledger.events import KINDS
from deedbook.ledger.events.handoff import HandoffClaimed, HandoffContent
from deedbook.ledger.format.codec import converted
from deedbook.ledger.lifecycle.handoff import compute_result, compute_version

if TYPE_CHECKING:
    from collections.abc import Iterator

    from building import Actors

NO_VERSION: Final = "sha256:" + "0" * 64
SESSION: Final = "session of "
"""Before the name of an agent: its session key."""
session_max_s: Final = 10 * 365 * 86_400.0
REDACTION: Final = "redaction"
CONTENT_KINDS: Final = ("handoff.created", "handoff.amended")
# A value may have spaces inside quotes, brackets and braces.
_WORD: Final = re.compile(r"""(?:"(?:[^"\\]|\\.)*"|\{(?:[^{}]|\{[^{}]*\})*\}|\[[^\]]*\]|[^\s"\[{])+""")


class Case(NamedTuple):
    """A case: the lines that are accepted first, the line to decide, and the expected outcome."""

    family: str
    name: str
    given: tuple[str, ...]
    when: str
    then: str

    @property
    def changes_authority(self) -> bool:
        """Whether the case changes keys or roles, or erases an entry, so that it needs a separate ledger."""
        return any(re.search(r" (agent|role|key|entry)\.", line) for line in (*self.given, self.when))

    def is_met_by(self, outcome: Outcome) -> bool:
        """Return whether an outcome equals that of the case."""
        if outcome.code or not self.then.startswith("ok"):
            return self.then == outcome.code
        return outcome.after == (self.then.partition(": ")[2] or outcome.before)


class Outcome(NamedTuple):
    """The code of the refusal (empty if accepted), and the state of the stream before and after the event."""

    code: str
    before: str | None = None
    after: str | None = None


class Written(NamedTuple):
    """An event before it is signed."""

    author: str
    is_by_session: bool
    kind: str
    stream: str
    data: dict[str, Any]


class Runner(Protocol):
    """One implementation of the rules."""

    actors: Actors

    def emit(self, event: Written) -> str:
        """Append an event; return its id. Raises Refused."""

    def advance(self, seconds: float) -> None:
        """Advance the clock."""

    def size(self) -> int:
        """Return the number of entries."""

    def state(self, stream: str) -> str | None:
        """Return the state of a stream under the rules; None if the implementation does not report it."""

    def remnant(self, index: int) -> str:
        """Return the digest of the remnant of an entry when it is erased."""


class SignedRunner:
    """A runner that signs events with real keys: those of a ledger on disk, or of a forged log."""

    def __init__(self, actors: Actors) -> None:
        self.actors = actors
        for name in cast()["agents"]:
            actors.keys[SESSION + name] = actors.delegate(name, key_named(SESSION + name), seconds=session_max_s)

    def emit(self, written: Written) -> str:
        """Sign an event and submit it."""
        name = SESSION + written.author if written.is_by_session else written.author
        draft = Draft(stream=written.stream, data=written.data, kind=written.kind)
        return self.actors.submit(self.actors.sign(written.author, draft, key=self.actors.keys[name]))[0].id

    def advance(self, seconds: float) -> None:
        """Advance the clock."""
        self.actors.clock.advance(seconds)

    def state_of(self, stream: str, state: Any) -> str:
        """Return the state of a stream under the rules, from its stored state."""
        return state_at(stream.partition("/")[0], state, self.actors.clock.now_ms)


def state_at(family: str, state: Any, now_ms: int) -> str:
    """Return the name of a stream's state, as the rules see it at a time."""
    if state is None or family not in MACHINES:
        return "none"
    return MACHINES[family].state_name(state, fact("nobody", HandoffClaimed(), at_s=(now_ms - GIVEN_MS) / 1000))


def families() -> list[str]:
    """Return the families that have cases."""
    return sorted(path.stem for path in (PROTO / "cases").glob("*.toml") if path.stem != "cast")


@cache
def cast() -> dict[str, Any]:
    """Return the agents of all cases, and the default data of events."""
    return tomllib.loads((PROTO / "cases" / "cast.toml").read_text("utf-8"))


@cache
def cases_of(family: str) -> tuple[Case, ...]:
    """Return the cases of a family."""
    return tuple(case for fields in _file(family)["case"] for case in _expanded(family, fields))


@cache
def _file(family: str) -> dict[str, Any]:
    return tomllib.loads((PROTO / "cases" / f"{family}.toml").read_text("utf-8"))


def lines_of(family: str, *lines: str) -> tuple[str, ...]:
    """Return these lines, with each name of a story replaced by the lines of the story."""
    stories: dict[str, list[str]] = {"none": [], **_file(family).get("story", {})}
    return tuple(part for line in lines for part in (lines_of(family, *stories[line]) if line in stories else (line,)))


def all_cases() -> list[Case]:
    """Return every case that state machines decide."""
    return [case for family in families() if family != REDACTION for case in cases_of(family)]


def log_cases() -> list[Case]:
    """Return every case, including redactions, for which an implementation needs the bodies of entries."""
    return [*all_cases(), *cases_of(REDACTION)]


def id_of(case: Case) -> str:
    """Return the name of a case, unique among all families."""
    return f"{case.family}: {case.name}"


def _expanded(family: str, fields: dict[str, Any]) -> Iterator[Case]:
    name, when, given = fields["name"], fields["when"], fields.get("given", [])
    if "then" in fields:
        yield Case(family, name, lines_of(family, *given), when, fields["then"])
    for outcome, words in fields.get("in", {}).items():
        for story in words.split():
            yield Case(family, f"{name} [{story}]", lines_of(family, story, *given), when, outcome)
    for outcome, words in fields.get("by", {}).items():
        for author in words.split():
            line = f"{author} {when.partition(' ')[2]}"
            yield Case(family, f"{name} [{author}]", lines_of(family, *given), line, outcome)


def play(case: Case, runner: Runner, prefix: str = "") -> Outcome:
    """Play a case on a runner, with a prefix before the names of its streams, and return the outcome."""
    story = Story(runner, prefix)
    for line in case.given:
        story.tell(line)
    stream = story.stream_of(case.when)
    before = runner.state(stream)
    try:
        story.tell(case.when)
    except Refused as refused:
        return Outcome(refused.code, before, before)
    return Outcome("", before, runner.state(stream))


class Story:
    """Plays the lines of a case, and remembers them to replace symbols in later lines by their values."""

    def __init__(self, runner: Runner, prefix: str) -> None:
        self._runner = runner
        self._prefix = prefix
        self._start = runner.size()
        self._ids: list[str] = []
        self._indexes: list[int] = []
        self._remnants: dict[int, str] = {}
        self._contents: dict[str, tuple[str, dict[str, Any]]] = {}
        self._versions: dict[str, list[str]] = {}
        self._results: dict[str, list[str]] = {}

    def tell(self, line: str) -> None:
        """Play one line. Raises Refused."""
        if line.startswith("+"):
            self._runner.advance(float(line.strip("+s")))
            return
        event, index = self.written(line), self._runner.size()
        self._ids.append(self._runner.emit(event))
        self._indexes.append(index)
        self._remember(event)

    def stream_of(self, line: str) -> str:
        """Return the stream of a line."""
        _, kind, name, *words = _WORD.findall(line)
        as_kind = next((word.removeprefix("as=") for word in words if word.startswith("as=")), "record")
        family = KINDS[as_kind if as_kind in KINDS else kind].stream
        if family == "ledger":
            return family
        return f"{family}/{name if family == 'agent' else self._prefix + name}"

    def written(self, line: str) -> Written:
        """Return the event of a line."""
        author, kind, name, *words = _WORD.findall(line)
        author, _, key = author.partition("/")
        stream = self.stream_of(line)
        fields = {field: _value(text) for field, _, text in (word.partition("=") for word in words)}
        if kind.startswith(("agent.", "role.", "key.")):
            data = self._authority(kind, name, fields)
        elif kind.startswith("entry."):
            data = _defaults(kind) | self._erased(int(fields.pop("entry"))) | fields
        elif kind == "record.imported":
            data = _defaults(kind) | {
                new: fields.pop(old)
                for old, new in (("as", "mapped_kind"), ("from", "claimed_author"), ("claims", "claims"))
                if old in fields
            }
            if "mapped_kind" in data:
                data["mapped"] = self._data(data["mapped_kind"], stream, fields)
        else:
            data = self._data(kind, stream, fields)
        return Written(author, key == "session", kind, stream, data)

    def _data(self, kind: str, stream: str, fields: dict[str, Any]) -> dict[str, Any]:
        data = _defaults(kind)
        if fields.pop("content", None) == "current":
            data |= self._contents[stream][1]
        for field, value in fields.items():
            is_twice = (field, value) == ("briefs", "twice")
            _set(data, field.split("."), data[field] * 2 if is_twice else self._resolved(stream, field, value))
        return data

    def _erased(self, line: int) -> dict[str, Any]:
        """Return the fields that name the entry of a line and its remnant; if there is no such line, the next entry."""
        if line > len(self._ids):
            return {"entry": self._runner.size(), "event": NO_EVENT, "remnant": NO_VERSION}
        index = self._indexes[line - 1]
        if index not in self._remnants:
            self._remnants[index] = self._runner.remnant(index)
        return {"entry": index, "event": self._ids[line - 1], "remnant": self._remnants[index]}

    def _resolved(self, stream: str, field: str, value: Any) -> Any:
        match field, value:
            case (("tasks" | "criteria"), int()):
                return [f"item {number}" for number in range(1, value + 1)]
            case "steps", [int(), *_]:
                return [{"step_number": number, "type": "observation", "content": "so it is"} for number in value]
            case "version", ("current" | "old" | "none"):
                return _pick(self._versions.get(stream, []), value, NO_VERSION)
            case "result", ("current" | "old" | "none"):
                return _pick(self._results.get(stream, []), value, NO_VERSION)
            case "target", int():
                return self._ids[value - 1] if value <= len(self._ids) else NO_EVENT
            case "target", "none":
                return NO_EVENT
            case "depends_on", list():
                return [self._prefix + name for name in value]
            case "by", str():
                return self._prefix + value
            case _:
                return value

    def _authority(self, kind: str, name: str, fields: dict[str, Any]) -> dict[str, Any]:
        actors = self._runner.actors
        if kind == "key.compromised":
            since = self._start if fields["since"] == "start" else self._runner.size()
            return _defaults(kind) | {"key": actors.keys[name].public.hex(), "since": since}
        if kind == "key.rotated":
            actors.keys[name] = key = key_after(actors, name)
            proof = key.prove_possession(actors.id, name)
            return _defaults(kind) | {"agent": name, "key": key.public.hex(), "proof": proof}
        return _defaults(kind) | {"agent": name} | fields

    def _remember(self, event: Written) -> None:
        sender, data = event.author, event.data
        if event.kind == "record.imported":
            sender, data = data.get("claimed_author", ""), data.get("mapped", {})
        elif event.kind in CONTENT_KINDS:
            sender = self._contents.get(event.stream, (sender,))[0]
        if event.stream.startswith("handoff/") and event.kind in (*CONTENT_KINDS, "record.imported"):
            content = {field: value for field, value in data.items() if field not in ("reason", "hands_over")}
            self._contents[event.stream] = sender, content
            version = compute_version(sender, converted(content, HandoffContent, "$"))
            self._versions.setdefault(event.stream, []).append(version)
        if event.kind in ("handoff.completed", "record.imported") and (versions := self._versions.get(event.stream)):
            self._results.setdefault(event.stream, []).append(compute_result(versions[-1], self._ids[-1]))


def key_after(actors: Actors, name: str) -> Any:
    """Return the next key of an agent."""
    return key_named(actors.keys[name].public.hex())


def _defaults(kind: str) -> dict[str, Any]:
    if kind in cast()["examples"]:
        return published(kind)
    return smallest(kind)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _pick(values: list[str], symbol: str, none: str) -> str:
    places = {"current": -1, "old": -2}
    if symbol == "none" or len(values) < -places[symbol]:
        return none
    return values[places[symbol]]


def _set(data: Any, path: list[str], value: Any) -> None:
    for part in path[:-1]:
        data = data[int(part)] if isinstance(data, list) else data.setdefault(part, {})
    data[int(path[-1]) if isinstance(data, list) else path[-1]] = value
