"""The agent in TypeScript decides the cases of ``proto/cases`` by the tables of ``proto/rules``, as expected."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from building import GIVEN_MS, Actors, key_named
from bundles import unpacked
from forge_runner import ForgeRunner
from rule_cases import PROTO, REDACTION, SESSION, Case, Outcome, Written, all_cases, cases_of, cast, id_of, play
from wrong_redactions import put, remnant_at

from deedbook.ledger.lifecycle.authority import NODE, ROOT
from deedbook.ledger.lifecycle.rules import FAMILIES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Recorder:
    """Records the events of a case; an agent in another language decides them later."""

    def __init__(self) -> None:
        self.actors = Actors(agents=cast()["agents"])
        self.now_ms = GIVEN_MS
        roles = {**cast()["agents"], ROOT: ["admin"], NODE: []}
        self.events: list[dict[str, Any]] = []
        self.keys: dict[str, dict[str, Any]] = {}
        for name in roles:
            key = self.actors.keys[name].public.hex()
            session = key_named(SESSION + name).public.hex()
            self.keys |= {key: {"agent": name, "since": 0}}
            self.keys |= {session: {"agent": name, "since": 0, "delegatedBy": key}}
        self.cast = {"roles": roles, "keys": self.keys}

    def emit(self, written: Written) -> str:
        """Record an event."""
        key = key_named(SESSION + written.author) if written.is_by_session else self.actors.keys[written.author]
        event = {name: getattr(written, name) for name in ("author", "kind", "stream", "data")}
        number = len(self.events) + 1
        event |= {"index": number, "accepted_ms": self.now_ms, "id": f"event:{number:064x}", "key": key.public.hex()}
        self.events.append(event)
        self.now_ms += 1
        return str(event["id"])

    def advance(self, seconds: float) -> None:
        """Advance the clock."""
        self.now_ms += int(seconds * 1000)

    def size(self) -> int:
        """Return the index of the next event."""
        return len(self.events) + 1

    def state(self, stream: str) -> None:
        """Return None: nothing has been decided yet."""

    def remnant(self, index: int) -> str:
        """Raise an error: a recorded event has no body, so it has no remnant."""
        raise NotImplementedError(index)


def test_an_agent_in_another_language_reaches_the_outcome_of_every_case(ask: Callable[..., Any]) -> None:
    recorded = []
    for case in all_cases():
        recorder = Recorder()
        play(case, recorder)
        recorded.append({"cast": recorder.cast, "events": recorder.events})
    tables = {family: json.loads((PROTO / "rules" / f"{family}.json").read_bytes()) for family in FAMILIES}
    answers = ask("decide", tables=tables, cases=recorded)["outcomes"]
    wrong = {
        id_of(case): (case.then, answer)
        for case, answer in zip(all_cases(), answers, strict=True)
        if any(answer["codes"]) or not case.is_met_by(Outcome(answer["code"], answer["before"], answer["after"]))
    }
    assert wrong == {}


def rests_on_no_role_or_key(case: Case) -> bool:
    """Return whether a case needs no changes of roles or keys, which the agent in TypeScript does not replay."""
    lines = (*case.given, case.when)
    authors = {line.partition(" ")[0] for line in lines if " entry." in line}
    return authors <= {"root", "hugo", "hana"} and not any(" role." in line or " key." in line for line in lines)


def test_an_agent_in_another_language_takes_an_erased_entry_only_if_the_rules_accept_its_redaction(
    ask: Callable[..., Any], tmp_path: Path
) -> None:
    cases = [
        case
        for case in filter(rests_on_no_role_or_key, cases_of(REDACTION))
        if " entry.redacted " in case.when and case.then in {"ok", "NOT_AUTHORIZED"}
    ]
    folders: list[str] = []
    for at, case in enumerate(cases):
        runner = ForgeRunner()
        index = runner.size() + int(case.when.partition("entry=")[2].split()[0]) - 1
        runner.tell(case)
        put(runner.forge, index, remnant_at(runner.forge, index))
        folders.append(str(unpacked(runner.forge.export(tmp_path / f"{at}.tar"), tmp_path / str(at))))
    answers = ask("bundles", folders=folders)["bundles"]
    outcomes = {id_of(case): "refused" not in answer for case, answer in zip(cases, answers, strict=True)}
    assert outcomes == {id_of(case): case.then == "ok" for case in cases}
    assert {*outcomes.values()} == {True, False}
