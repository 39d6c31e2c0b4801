"""The rules of handoffs, decisions, questions, reviews, sessions, reasonings, snapshots, subjects and records.

The rules are tables (``schemas.json``, "rules"), which the published page ``proto/rules/README.md`` explains. This part
has the order of the checks, what a stream remembers, and one method for each condition that the tables name.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Any

from deedbook.ledger.bundle.standalone.authority import AUTHORITY, WORKERS, Authority
from deedbook.ledger.bundle.standalone.declared import OWN
from deedbook.ledger.bundle.standalone.form import Event, Kinds
from deedbook.ledger.bundle.standalone.proofs import need

DEPENDENCIES_MAX = 100_000
QUESTIONS_MAX = 1_000
QUESTIONS_OF_AUTHOR_MAX = 100
REVIEWERS = {"reviewer", "human"}
EMPTY: list[Any] = [None, "", []]
CONTENT = "HandoffContent"
AUTHORITY_FAMILIES = {"agent", "kind", "ledger"}  # their rules are in the part before this one


@dataclass(frozen=True)
class State:
    """The state of a stream, and what it remembers. Only a handoff has more than an owner, a receiver and steps.

    ``lease`` is the start and end (Unix ms) of a claim. ``approval`` is (index, key) of the event that approved it;
    ``verification``, the ``waivers`` of the criteria and the ``handovers`` of the review have the same form.
    ``completion`` is (event id, index, key). ``asked`` is (author, agent asked) for each of the ``questions``.
    """

    name: str = "none"
    owner: str = ""
    steps: frozenset[int] = frozenset()
    sender: str = ""
    importer: str = ""
    receiver: str = ""
    reviewer: str = ""
    version: str = ""
    depends_on: tuple[str, ...] = ()
    unlock_at: str = ""
    tasks: tuple[str, ...] = ()
    criteria: tuple[str, ...] = ()
    claimed_status: str = ""
    lease: tuple[int, int] | None = None
    approval: tuple[int, str] | None = None
    completion: tuple[str, int, str] | None = None
    verification: tuple[int, str] | None = None
    waivers: tuple[tuple[int, str] | None, ...] = ()
    handovers: tuple[tuple[int, str], ...] = ()
    questions: tuple[str, ...] = ()
    asked: tuple[tuple[str, str], ...] = ()
    is_announced: bool = False

    def at(self, now_ms: int) -> State:
        """Return the state at a time: work whose lease does not hold is lapsed."""
        has_lapsed = self.lease is not None and not self.lease[0] <= now_ms < self.lease[1]
        return replace(self, name="lapsed") if self.name == "in_progress" and has_lapsed else self

    def moved(self, name: str) -> State:
        """Return the state under another name. A change of state removes the lease and the announcement."""
        return self if name == self.name else replace(self, name=name, lease=None, is_announced=False)


class Rules:
    """The states of all streams, and the tables that decide about their next events.

    ``reads`` are the streams that a rule has read, with the index of the first event whose rule did.
    """

    def __init__(self, kinds: Kinds, authority: Authority) -> None:
        """Begin without any event."""
        self.kinds, self.authority = kinds, authority
        self.states: dict[str, State] = {}
        self.ids: dict[str, str] = {}
        self.reads: dict[str, int] = {}

    def row_of(self, event: Event) -> dict[str, Any] | None:
        """Return the row that decides about an event: the first of its kind whose ``when`` matches."""
        if event.kind.startswith(OWN) or self.kinds.is_of_package(event.kind, event.stream):
            return None
        table = self.kinds.rules.get(event.stream.partition("/")[0], {"rows": []})
        fields = self.kinds.types[self.kinds.kinds[event.kind][1]]["properties"]
        for row in table["rows"]:
            if row["kind"] == event.kind and matches(row.get("when", {}), event.data, fields):
                return dict(row)
        return None

    def is_replayed(self, stream: str) -> bool:
        """Return whether the rules of a stream's family are replayed: not those of families that packages bring."""
        family = stream.partition("/")[0]
        return family in AUTHORITY_FAMILIES or family.startswith(OWN) or family in self.kinds.rules

    def read(self, stream: str, index: int) -> State:
        """Return the state of another stream, which the event at ``index`` depends on."""
        self.reads.setdefault(stream, index)
        return self.states.get(stream, State())

    def apply(self, event: Event, row: dict[str, Any] | None) -> None:
        """Check an event by the row that decides about it, then change the state of its stream."""
        is_upload = event.kind == "blob.stored"
        need(not is_upload, "blob.stored is stored with its blob and never in a log", "TRANSITION_NOT_ALLOWED")
        if event.kind in AUTHORITY:
            self.authority.apply(event)
        elif event.kind.startswith(OWN):
            self.authority.check_published(event, self.kinds)
        elif not self.is_replayed(event.stream):
            check_roles(self.authority, event, WORKERS)
        else:
            need(row is not None, f"no rule allows {event.kind} on {event.stream}", "UNKNOWN_KIND")
            self.states[event.stream] = Decision(self, event, row or {}).decide()

    def has_event(self, event: Event) -> bool:
        """Return whether the log has this event already."""
        return event.id in self.ids

    def remember(self, event: Event) -> None:
        """Remember that an event is in the log, whether its rule allowed it or not."""
        self.ids[event.id] = event.stream


def matches(when: dict[str, Any], data: dict[str, Any], fields: dict[str, Any]) -> bool:
    """Return whether an event's data has the values of ``when``; null is a field that is absent, null or empty."""
    values = {name: data.get(name, fields[name].get("default")) for name in when}
    return all(values[name] in EMPTY if value is None else values[name] == value for name, value in when.items())


def check_roles(authority: Authority, event: Event, roles: set[str]) -> None:
    """Check that the author has one of these roles."""
    has_role = authority.roles_of(event.author) & roles
    message = f"{event.author} signed {event.kind} and has none of the roles {sorted(roles)}"
    need(has_role, message, "NOT_AUTHORIZED")


class Decision:
    """The decision about one event: its row, its data, its author, and the state of its stream before it."""

    def __init__(self, rules: Rules, event: Event, row: dict[str, Any]) -> None:
        """Collect what the row's checks read. The data of an imported record is in ``mapped``."""
        self.rules, self.event, self.row = rules, event, row
        self.author, self.authority = event.author, rules.authority
        self.table = rules.kinds.rules[event.stream.partition("/")[0]]
        self.state = rules.states.get(event.stream, State()).at(event.entry.accepted_ms)
        schema, self.data, self.claims = rules.kinds.kinds[event.kind][1], event.data, dict[str, Any]()
        mapped_kind = event.data.get("mapped_kind")
        if event.kind == "record.imported" and mapped_kind is not None:
            schema, claims = rules.kinds.mapped[mapped_kind]
            self.data = event.data.get("mapped", {})
            self.claims = rules.kinds.fill(event.data.get("claims", {}), {"$ref": claims})
        self.data = rules.kinds.fill(self.data, {"$ref": schema})

    def decide(self) -> State:
        """Check the event in the order of the published page; return the state of its stream after it."""
        kind, name, row = self.event.kind, self.state.name, self.row
        is_there = name != "none" or "none" in row["from"]
        need(is_there, f"there is no {self.event.stream} for {kind}", "NOT_FOUND")
        self.check_parties()
        message = f"{self.event.stream} is {name}, and {kind} is not possible"
        need(name in row["from"], message, row.get("refused_as", {}).get(name, "TRANSITION_NOT_ALLOWED"))
        check_roles(self.authority, self.event, set(row.get("roles", self.table["roles"])))
        if "mark" in row:
            self.check_mark(row["mark"])
        for condition in row.get("needs", []):
            holds = getattr(self, condition)()
            need(holds, f"{kind} on {self.event.stream}: not {condition}", self.table["conditions"][condition])
        return self.after()

    def check_parties(self) -> None:
        """Check the author against the parties in ``by`` and ``not_by``."""
        row, message = self.row, f"{self.author} may not sign {self.event.kind} of {self.event.stream}"
        is_excluded = any(self.author in self.names_of(party) for party in row.get("not_by", []))
        if "by" not in row:
            need(not is_excluded, message, "SELF_APPROVAL")
            return
        is_named = any(self.author in self.names_of(party) for party in row["by"])
        need(is_named, message, "SELF_APPROVAL" if is_excluded else "NOT_AUTHORIZED")

    def names_of(self, party: str) -> set[str]:
        """Return the names of a party. An empty name is no party, and a receiver is never the reviewer."""
        state = self.state
        if party == "admin":
            return {self.author} if "admin" in self.authority.roles_of(self.author) else set()
        names = {
            "owner": {state.owner},
            "sender": {state.sender, state.importer},
            "receiver": {state.receiver},
            "reviewer": {self.reviewer_of(state)} - {state.receiver},
        }
        return names[party] - {""}

    def check_mark(self, mark: dict[str, Any]) -> None:
        """Check that the item at the event's position has a mark that the row may change."""
        items, position = getattr(self.state, mark["list"]), self.data["position"]
        need(position < len(items), f"{self.event.stream} has no item {position} of {mark['list']}", "INVALID_FIELD")
        item = items[position]
        message = f"item {position} of {mark['list']} is {item}"
        need(item in mark["from"], message, mark.get("refused_as", {}).get(item, "NOTHING_CHANGED"))

    def reviewer_of(self, state: State) -> str:
        """Return the reviewer: the author of the first hand-over that does not count, if there is one."""
        void = self.void_handover(state)
        return state.reviewer if void is None else self.authority.keys[void[1]].owner

    def void_handover(self, state: State) -> tuple[int, str] | None:
        """Return the first hand-over of the review that does not count."""
        return next((made for made in state.handovers if not self.authority.decision_counts(*made, REVIEWERS)), None)

    # The state after the event.

    def after(self) -> State:
        """Return the state of the stream after the event."""
        state, row = self.state, self.row
        if state.name == "none":
            state = replace(state, owner=self.author)
        if state.name == "lapsed":
            state = state.moved("approved")
        state = state.moved(row.get("to", state.name))
        if "mark" in row:
            mark, position = row["mark"], self.data["position"]
            items = getattr(state, mark["list"])
            changed: dict[str, Any] = {mark["list"]: (*items[:position], mark["to"], *items[position + 1 :])}
            state = replace(state, **changed)
        for record in row.get("records", []):
            state = getattr(self, f"with_{record}")(state)
        return state

    def with_content(self, state: State) -> State:
        """Return the state with the new content, and without any progress."""
        sender, importer, reviewer = state.sender, state.importer, self.data["reviewer"] or self.author
        if self.event.kind == "handoff.created":
            sender = self.author
        elif self.event.kind == "record.imported":
            sender, importer = self.event.data.get("claimed_author") or "", self.author
            reviewer = self.data["reviewer"] or sender
        return replace(
            state,
            sender=sender,
            importer=importer,
            receiver=self.data["to"] or "",
            reviewer=reviewer,
            version=self.event.entry.version or self.version_of(self.data, sender),
            depends_on=tuple(self.data["depends_on"]),
            unlock_at=self.data["unlock_at"],
            tasks=("open",) * len(self.data["tasks"]),
            criteria=("open",) * len(self.data["criteria"]),
            claimed_status="",
            lease=None,
            approval=None,
            completion=None,
            verification=None,
            waivers=(None,) * len(self.data["criteria"]),
            handovers=self.handovers_to(reviewer),
            is_announced=False,
        )

    def handovers_to(self, reviewer: str) -> tuple[tuple[int, str], ...]:
        """Return the hand-overs that lead to a reviewer.

        If the reviewer had the review before, their own hand-over and all later ones are dropped.
        """
        handovers = self.state.handovers
        if not self.data.get("hands_over"):
            return handovers if reviewer == self.state.reviewer else ()
        for name, added in ((self.author, (self.decision(),)), (reviewer, ())):
            owners = [self.authority.keys[key].owner for _, key in handovers]
            handovers = (*handovers[: owners.index(name) if name in owners else None], *added)
        return handovers

    def with_claims(self, state: State) -> State:
        """Return the state with what an imported file claims to be done."""
        tasks = ["done" if at in self.claims["tasks"] else mark for at, mark in enumerate(state.tasks)]
        criteria = ["claimed" if at in self.claims["criteria"] else mark for at, mark in enumerate(state.criteria)]
        status = self.claims["status"] or ""
        state = replace(state, tasks=tuple(tasks), criteria=tuple(criteria), claimed_status=status)
        return self.with_completion(state)

    def with_approval(self, state: State) -> State:
        """Return the state with this event as its approval."""
        return replace(state, approval=self.decision(), completion=None)

    def with_verification(self, state: State) -> State:
        """Return the state with this event as its verification."""
        return replace(state, verification=self.decision())

    def with_waiver(self, state: State) -> State:
        """Return the state with this event as the waiver of its criterion."""
        at = self.data["position"]
        return replace(state, waivers=(*state.waivers[:at], self.decision(), *state.waivers[at + 1 :]))

    def decision(self) -> tuple[int, str]:
        """Return the index of this event, and its key."""
        return self.event.index, self.event.entry.key.hex()

    def with_lease(self, state: State) -> State:
        """Return the state with the lease of a claim, if it has one."""
        seconds, now_ms = self.data["lease_seconds"], self.event.entry.accepted_ms
        return state if seconds is None else replace(state, lease=(now_ms, now_ms + 1000 * seconds))

    def with_completion(self, state: State) -> State:
        """Return the state with this event as its completion."""
        return replace(state, completion=(self.event.id, *self.decision()))

    def with_reopening(self, state: State) -> State:
        """Return the state with all checked criteria open again, because changes were requested."""
        return replace(state, criteria=tuple("reopened" if mark == "checked" else mark for mark in state.criteria))

    def with_question(self, state: State) -> State:
        """Return the state with one more open question."""
        asked = (*state.asked, (self.author, self.data["to"]))
        return replace(state, questions=(*state.questions, "open"), asked=asked)

    def with_addressee(self, state: State) -> State:
        """Return the state with the agent that is asked."""
        return replace(state, receiver=self.data["to"])

    def with_announcement(self, state: State) -> State:
        """Return the state as announced."""
        return replace(state, is_announced=True)

    def with_steps(self, state: State) -> State:
        """Return the state with the new steps of a reasoning."""
        return replace(state, steps=state.steps | set(self.new_steps()))

    def with_retraction(self, state: State) -> State:
        """Return the state without the retracted step."""
        return replace(state, steps=state.steps - {self.data["step"]})

    def version_of(self, content: dict[str, Any], sender: str) -> str:
        """Return the version of a handoff's content: a hash of its sender and of all fields that are not defaults."""
        fields = self.rules.kinds.types[CONTENT]["properties"]
        kept = {name: content[name] for name, field in fields.items() if content[name] != field.get("default")}
        kept["notes"] = {name: lines for name, lines in content["notes"].items() if lines}
        if not kept["notes"]:
            del kept["notes"]
        text = json.dumps(kept | {"from": sender}, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()

    # The conditions. Each is named as in the tables, and is true if it holds.

    def author_is_human(self) -> bool:
        """The author has the role `human`."""
        return "human" in self.authority.roles_of(self.author)

    def reviewer_is_independent(self) -> bool:
        """The reviewer is not the receiver, and the content does not name the author as reviewer."""
        named, receiver = self.data["reviewer"], self.data["to"]
        return bool((named or self.author) != receiver and named != self.author)

    def reviewer_is_another(self) -> bool:
        """The content names a reviewer, who is no sender, not the receiver and not the reviewer so far."""
        present = self.state
        others = {"", present.sender, present.importer, present.receiver, present.reviewer}
        return (self.data["reviewer"] or "") not in others

    def only_reviewer_changes(self) -> bool:
        """Only the reviewer differs: with the present reviewer, the content would have the present version.

        The content may also have added ``created``. The content of an erased event cannot be compared.
        """
        if self.event.entry.is_erased:
            return True
        same = {**self.data, "reviewer": self.state.reviewer}
        versions = [self.version_of(content, self.state.sender) for content in (same, {**same, "created": None})]
        return self.state.version in versions

    def receiver_is_registered(self) -> bool:
        """The receiver in the content is registered."""
        return self.authority.is_registered(self.data["to"])

    def reviewer_is_registered(self) -> bool:
        """The reviewer in the content is registered."""
        return self.authority.is_registered(self.data["reviewer"])

    def reviewer_may_review(self) -> bool:
        """The reviewer in the content has the role `reviewer` or `human`."""
        return bool(self.authority.roles_of(self.data["reviewer"]) & REVIEWERS)

    def reviewer_is_kept(self) -> bool:
        """The present reviewer stays, or is a sender or the author, or no longer has a role that may review."""
        present, named = self.reviewer_of(self.state), self.data["reviewer"]
        is_free = present in (self.state.sender, self.state.importer, named, self.author)
        return is_free or not self.authority.roles_of(present) & REVIEWERS

    def dependencies_form_no_cycle(self) -> bool:
        """No path of ``depends_on`` leads back to the handoff."""
        return self.event.stream.partition("/")[2] not in self.reached()

    def dependencies_are_bounded(self) -> bool:
        """The paths of ``depends_on`` reach no more handoffs than the limit."""
        return len(self.reached()) <= DEPENDENCIES_MAX

    def reached(self) -> set[str]:
        """Return the handoffs that paths of ``depends_on`` reach, up to the handoff itself, or to the limit."""
        own = self.event.stream.partition("/")[2]
        walked = list(dict.fromkeys(self.data["depends_on"]))
        reached = set(walked)
        for name in walked:  # the list grows meanwhile
            if own in reached or len(reached) > DEPENDENCIES_MAX:
                break
            depends_on = self.rules.read(f"handoff/{name}", self.event.index).depends_on
            walked += [other for other in dict.fromkeys(depends_on) if other not in reached]
            reached |= set(depends_on)
        return reached

    def import_is_own(self) -> bool:
        """There is no state yet, or the author imported the stream."""
        owner = self.state.importer if self.event.stream.startswith("handoff/") else self.state.owner
        return self.state.name == "none" or self.author == owner

    def import_changes_something(self) -> bool:
        """There is no state yet, or the import changes more than the completion."""
        return self.state.name == "none" or replace(self.after(), completion=self.state.completion) != self.state

    def claims_name_items(self) -> bool:
        """Every claimed position is that of an item of the content."""
        return all(at < len(self.data[items]) for items in ("tasks", "criteria") for at in self.claims[items])

    def version_is_current(self) -> bool:
        """The event names the present version."""
        return bool(self.data["version"] == self.state.version)

    def result_is_current(self) -> bool:
        """The event names the digest of the present version and completion."""
        if self.state.completion is None:
            return False
        text = f'{{"completion":"{self.state.completion[0]}","version":"{self.state.version}"}}'
        return bool(self.data["result"] == "sha256:" + hashlib.sha256(text.encode()).hexdigest())

    def approval_is_missing(self) -> bool:
        """The handoff has no approval that counts."""
        return self.state.name in ("pending", "imported") or not self.approval_counts()

    def approval_counts(self) -> bool:
        """No report so far says that the key of the approval was compromised when it signed."""
        return self.decision_counts(self.state, self.state.approval)

    def decision_counts(self, state: State, decision: tuple[int, str] | None) -> bool:
        """No report so far says that an approval, verification or waiver rests on a compromised key.

        A sender approves as a human. Every other decision is one of the reviewer, who is a reviewer or human.
        """
        if decision is None:
            return True
        author = self.authority.keys[decision[1]].owner
        if decision == state.approval and author in (state.sender, state.importer):
            return self.authority.decision_counts(*decision, {"human"})
        void = self.void_handover(state)
        is_reviewer = void is None or author == self.authority.keys[void[1]].owner
        return is_reviewer and self.authority.decision_counts(*decision, REVIEWERS)

    def verification_is_missing(self) -> bool:
        """The handoff has no verification that counts."""
        return self.state.name != "verified" or not self.decision_counts(self.state, self.state.verification)

    def waiver_is_missing(self) -> bool:
        """The criterion has no waiver that counts."""
        return self.state.criteria[self.data["position"]] != "waived" or not self.waiver_counts(
            self.state, self.data["position"]
        )

    def waivers_count(self) -> bool:
        """Every waiver of a waived criterion counts."""
        return self.are_waivers_counted(self.state)

    def waiver_counts(self, state: State, position: int) -> bool:
        """The waiver of a criterion counts."""
        return self.decision_counts(state, state.waivers[position])

    def are_waivers_counted(self, state: State) -> bool:
        """Return whether every waiver of a waived criterion counts."""
        return all(mark != "waived" or self.waiver_counts(state, at) for at, mark in enumerate(state.criteria))

    def confirms_no_own_import(self) -> bool:
        """The handoff was not imported, or the author is no sender, or is a human."""
        is_sender = self.author in (self.state.sender, self.state.importer)
        return not self.state.importer or not is_sender or self.author_is_human()

    def dependencies_exist(self) -> bool:
        """Every handoff in ``depends_on`` exists."""
        return all(state.name != "none" for state in self.dependencies())

    def dependencies_are_done(self) -> bool:
        """Every handoff in ``depends_on`` is verified, or in the state that ``unlock_at`` names."""
        names = [self.counted_name(state) for state in self.dependencies()]
        return all(name in ("verified", self.state.unlock_at) for name in names)

    def counted_name(self, state: State) -> str:
        """Return the state of a dependency, without progress that rests on a compromised key."""
        name = state.name
        if name == "verified" and not self.decision_counts(state, state.verification):
            name = "pending" if state.approval is None else "completed"
        is_counted = self.decision_counts(state, state.approval) and self.completion_counts(state)
        is_counted = is_counted and self.are_waivers_counted(state)
        return "in_progress" if name == "completed" and not is_counted else name

    def completion_counts(self, state: State) -> bool:
        """Return whether the completion of a handoff rests on no compromised key."""
        roles = set(self.rules.kinds.rules["handoff"]["roles"])
        return state.completion is None or self.authority.decision_counts(*state.completion[1:], roles)

    def dependencies(self) -> list[State]:
        """Return the states of the handoffs that this one depends on."""
        return [self.rules.read(f"handoff/{name}", self.event.index) for name in self.state.depends_on]

    def criteria_are_met(self) -> bool:
        """Every criterion is checked or waived."""
        return all(mark in ("checked", "waived") for mark in self.state.criteria)

    def questions_are_settled(self) -> bool:
        """Every question to the receiver is settled."""
        pairs = zip(self.state.questions, self.state.asked, strict=True)
        return all(mark == "settled" or to != self.state.receiver for mark, (_, to) in pairs)

    def questions_are_bounded(self) -> bool:
        """The handoff has fewer questions than the limit, and fewer unsettled ones of the author than their limit."""
        pairs = zip(self.state.questions, self.state.asked, strict=True)
        own = sum(mark != "settled" and asked[0] == self.author for mark, asked in pairs)
        return len(self.state.questions) < QUESTIONS_MAX and own < QUESTIONS_OF_AUTHOR_MAX

    def asks_another(self) -> bool:
        """The author does not ask themselves."""
        return bool(self.data["to"] != self.author)

    def question_is_to_author(self) -> bool:
        """The question is to the author."""
        return bool(self.state.asked[self.data["position"]][1] == self.author)

    def question_is_of_author(self) -> bool:
        """The author asked the question, or is the reviewer."""
        return self.author in {self.state.asked[self.data["position"]][0], *self.names_of("reviewer")}

    def replacement_is_another(self) -> bool:
        """The stream that replaces this one is another."""
        return bool(self.replacement() != self.event.stream)

    def replacement_exists(self) -> bool:
        """The stream that replaces this one exists."""
        return self.rules.read(self.replacement(), self.event.index).name != "none"

    def replacement(self) -> str:
        """Return the stream of the same family that replaces this one."""
        return f"{self.event.stream.partition('/')[0]}/{self.data['by']}"

    def author_is_owner_or_reviewer(self) -> bool:
        """The author is the owner, or is a reviewer or human."""
        return self.author == self.state.owner or bool(self.authority.roles_of(self.author) & REVIEWERS)

    def author_is_root_or_human(self) -> bool:
        """The author is root, or has the role of a human."""
        return self.author == "root" or "human" in self.authority.roles_of(self.author)

    def is_not_announced(self) -> bool:
        """The handoff is not announced."""
        return not self.state.is_announced

    def receiver_is_named(self) -> bool:
        """The event names the receiver."""
        return bool(self.data["to"] == self.state.receiver)

    def target_exists(self) -> bool:
        """The event names an earlier entry of the same stream, allowed or not."""
        return self.rules.ids.get(self.data["target"]) == self.event.stream

    def has_steps(self) -> bool:
        """The reasoning has at least one step."""
        return bool(self.state.steps)

    def new_steps(self) -> list[int]:
        """Return the numbers of the steps that an extension adds."""
        return [step["step_number"] for step in self.data["steps"]]

    def extension_is_not_empty(self) -> bool:
        """The extension has a step."""
        return bool(self.data["steps"])

    def steps_are_new(self) -> bool:
        """No step of the extension has the number of another step."""
        numbers = self.new_steps()
        return len(set(numbers)) == len(numbers) and not self.state.steps & set(numbers)

    def step_exists(self) -> bool:
        """The event names a step of the reasoning."""
        return self.data["step"] in self.state.steps

    def dependencies_are_of_new_steps(self) -> bool:
        """Only new steps get dependencies, and each dependency is an old or new step."""
        numbers, wanted = set(self.new_steps()), self.data["dependencies"]
        are_new = {int(number) for number in wanted} <= numbers
        return are_new and all(set(others) <= self.state.steps | numbers for others in wanted.values())

    def steps_form_no_cycle(self) -> bool:
        """The new steps do not depend on each other in a cycle."""
        waiting = {int(number): set(others) for number, others in self.data["dependencies"].items()}
        while ready := {number for number, others in waiting.items() if waiting.keys().isdisjoint(others)}:
            waiting = {number: others for number, others in waiting.items() if number not in ready}
        return not waiting

    def fields_agree(self) -> bool:
        """The fields of a snapshot, and its briefs, do not contradict each other."""
        data, briefs = self.data, self.data["briefs"]
        levels = [brief["level"] for brief in briefs]
        has_graph = data["reasoning_ref"] is not None
        return (
            (data["context_source"] == "none") == (data["context_summary"] == "")
            and all((data[name] is not None) == has_graph for name in ("level", "reasoning_fidelity", "reasoning_size"))
            and len(set(levels)) == len(levels)
            and (not briefs or data["level"] in levels)
            and all(brief["reasoning_ref"] == data["reasoning_ref"] for brief in briefs)
            and all(brief["conclusion"] == data["conclusion"] for brief in briefs)
            and all(repeats(data, brief) for brief in briefs if brief["level"] == data["level"])
        )


def repeats(data: dict[str, Any], brief: dict[str, Any]) -> bool:
    """Return whether the brief of a snapshot's own level repeats the snapshot's fields."""
    names = ("reasoning_brief", "top_assumptions", "top_evidence_refs")
    return (
        all(brief[name] == data[name] for name in names)
        and brief["fidelity"]["value"] == data["reasoning_fidelity"]
        and brief["sizes"] == data["reasoning_size"]
        and [tag["tag"] for tag in brief["tags"]] == data["reasoning_tags"]
    )
