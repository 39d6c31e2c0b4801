"""Plans from edited files: given a handoff, an edit and its author, expect these events and these held edits."""

from __future__ import annotations

from typing import Final

import msgspec
import pytest
from syncing import NEW

from deedbook.consumers.handoffs.files.plan import EditedHandoff, Plan, plan_edits, reason_in
from deedbook.consumers.handoffs.files.syntax.parser import parse
from deedbook.ledger.events import KIND_OF

EDITED: Final = EditedHandoff("h", ("alice",), "bob", "rita", "pending")


def file(status: str) -> str:
    """Return the file of a handoff in a status."""
    return NEW.replace("pending", status)


def said(plan: Plan) -> list[str]:
    """Return the events of a plan, each with its text."""
    found = []
    for step in plan.steps:
        values = [value for value in msgspec.structs.astuple(step) if value not in (None, "", [], True)]
        found.append(" ".join([KIND_OF[type(step)].removeprefix("handoff."), *map(str, values)]))
    return [*found, *(["AMEND"] if plan.amends else [])]


def planned(status: str, edited: str, acting: str, **changes: object) -> Plan:
    """Return the plan for a file that was edited from the state of ledger and store."""
    base = parse(file(status).encode())
    standing = EDITED._replace(status=status, **changes)
    return plan_edits(standing, base=base, edited=parse(edited.encode()), ledger=base, acting=acting)


EDITS: Final = {
    "task": ("- [ ] look", "- [x] look"),
    "criterion": ("- [ ] it is warm", "- [x] it is warm"),
    "text": ("Make it warm.", "Make it hot."),
    "title": ("Fix the cache", "Fix <b>it</b>"),
    "sender": ("From: alice", "From: bob"),
    "odd": ("kept, *as*", "not kept *as*"),
    "log": ("[alice] created\n", "[alice] created\n- 2026-02-13 [{who}] went on\n"),
    "approve": ("Status: pending", "Status: approved"),
    "claim": ("Status: approved", "Status: in_progress"),
    "claim with words": ("Status: approved", "Status: in_progress (today)"),
    "claim and block": ("Status: approved", "Status: blocked — no key"),
    "claim and complete": ("Status: approved", "Status: completed, at last"),
    "release": ("Status: in_progress", "Status: approved"),
    "block": ("Status: in_progress", "Status: blocked (no key)"),
    "block without a reason": ("Status: in_progress", "Status: blocked"),
    "complete": ("Status: in_progress", "Status: completed"),
    "verify": ("Status: completed", "Status: verified"),
    "want more": ("Status: completed", "Status: in_progress"),
    "unblock": ("Status: blocked", "Status: in_progress（拿到了）"),
    "cancel": ("Status: pending", "Status: cancelled (nobody asks)"),
    "cancel without a reason": ("Status: pending", "Status: cancelled"),
    "supersede": ("Status: pending", "Status: superseded"),
    "reject": ("Status: pending", "Status: rejected"),
    "go back": ("Status: approved", "Status: pending"),
    "unknown": ("Status: pending", "Status: half-done"),
}
ADD_LOG: Final = ["logged went on"]
CASES: Final = [
    # (status, edits, who) -> events, held
    ("in_progress", ["task"], "bob", ["task_checked 0"], []),
    ("in_progress", ["task", "criterion"], "bob", ["task_checked 0", "criterion_checked 0"], []),
    ("in_progress", ["task"], "alice", [], ["bob: check --task 1"]),
    ("in_progress", ["criterion"], "rita", [], ["bob: check --criterion 1"]),
    ("approved", ["task"], "bob", [], ["bob: claim"]),
    ("pending", ["task"], "bob", [], ["rita: approve"]),
    ("blocked", ["task"], "bob", [], ["bob: unblock"]),
    ("completed", ["task"], "bob", [], ["rita: request-changes --reason …"]),
    ("completed", ["criterion"], "alice", [], ["rita: request-changes --reason …"]),
    ("verified", ["task"], "bob", [], ["rita: why"]),
    ("pending", ["text"], "alice", ["AMEND"], []),
    ("approved", ["title"], "alice", ["AMEND"], []),
    ("pending", ["odd"], "alice", ["AMEND"], []),
    ("in_progress", ["text"], "alice", [], ["bob: release"]),
    ("pending", ["text"], "bob", [], ["alice: amend …"]),
    ("pending", ["text"], "rita", [], ["alice: amend …"]),
    ("pending", ["sender"], "alice", [], ["alice: amend …"]),
    ("pending", ["sender"], "bob", [], ["alice: amend …"]),
    ("pending", ["log"], "alice", ADD_LOG, []),
    ("completed", ["log"], "rita", ADD_LOG, []),
    ("verified", ["log"], "bob", ADD_LOG, []),
    ("pending", ["log"], "mallory", [], ["mallory: log 'went on'"]),
    ("pending", ["approve"], "rita", [], ["rita: approve"]),
    ("pending", ["approve"], "alice", [], ["rita: approve"]),
    ("pending", ["reject"], "rita", [], ["rita: reject --reason …"]),
    ("completed", ["verify"], "rita", [], ["rita: verify"]),
    ("completed", ["want more"], "rita", [], ["rita: request-changes --reason …"]),
    ("approved", ["claim"], "bob", ["claimed"], []),
    ("approved", ["claim"], "alice", [], ["bob: claim"]),
    ("approved", ["claim with words"], "bob", ["claimed", "logged today"], []),
    ("approved", ["claim", "task"], "bob", ["claimed", "task_checked 0"], []),
    ("approved", ["claim and block"], "bob", ["claimed", "blocked no key"], []),
    (
        "approved",
        ["claim and complete", "criterion"],
        "bob",
        ["claimed", "criterion_checked 0", "completed at last"],
        [],
    ),
    ("in_progress", ["release"], "bob", ["released"], []),
    ("in_progress", ["release"], "rita", [], ["bob: release"]),
    ("in_progress", ["block"], "bob", ["blocked no key"], []),
    ("in_progress", ["block without a reason"], "bob", [], ["bob: block --reason …"]),
    ("in_progress", ["complete", "task"], "bob", ["task_checked 0", "completed"], []),
    ("in_progress", ["complete"], "alice", [], ["bob: complete"]),
    ("blocked", ["unblock"], "bob", ["unblocked 拿到了"], []),
    ("blocked", ["unblock", "task"], "bob", ["unblocked 拿到了", "task_checked 0"], []),
    ("pending", ["cancel"], "alice", ["cancelled nobody asks"], []),
    ("pending", ["cancel"], "bob", [], ["alice: cancel --reason …"]),
    ("pending", ["cancel without a reason"], "alice", [], ["alice: cancel --reason …"]),
    ("pending", ["supersede"], "alice", [], ["alice: supersede --by …"]),
    ("approved", ["go back"], "alice", [], ["rita: why"]),
    ("pending", ["unknown"], "alice", [], ["rita: why"]),
    ("pending", [], "alice", [], []),
]


@pytest.mark.parametrize(("status", "edits", "who", "events", "held"), CASES)
def test_given_status_edit_and_agent_then_events_and_held(
    status: str, edits: list[str], who: str, events: list[str], held: list[str]
) -> None:
    text = file(status)
    for name in edits:
        old, new = EDITS[name]
        assert text.count(old) == 1
        text = text.replace(old, new.format(who=who))
    plan = planned(status, text, who)
    assert said(plan) == events
    commands = [one.removeprefix("deed handoff ").split(" --as ")[0] for one in (one.command for one in plan.held)]
    verbs = [f"{one.who}: {command.replace(' h', '', 1)}" for one, command in zip(plan.held, commands, strict=True)]
    assert verbs == held


@pytest.mark.parametrize("status", ["pending", "approved", "in_progress", "blocked", "completed", "verified"])
@pytest.mark.parametrize("word", ["approved", "rejected", "verified", "changes_requested"])
def test_no_status_in_a_file_ever_becomes_a_review(status: str, word: str) -> None:
    for who in ("alice", "bob", "rita"):
        kinds = {KIND_OF[type(step)] for step in planned(status, file(f"{word} (all fine)"), who).steps}
        assert kinds <= {"handoff.claimed", "handoff.released"}
        assert not kinds or who == "bob"


def test_ticks_are_not_asked_for_twice() -> None:
    base, edited = file("in_progress"), file("in_progress").replace("- [ ] look", "- [x] look")
    plan = plan_edits(
        EDITED._replace(status="in_progress"),
        base=parse(base.encode()),
        edited=parse(edited.encode()),
        ledger=parse(edited.encode()),
        acting="bob",
    )
    assert plan == Plan((), amends=False, held=())


def test_step_among_the_news_is_not_asked_for_again() -> None:
    text = file("completed")
    news = (("handoff.completed", "bob"), ("handoff.changes_requested", "rita"))
    assert said(planned("in_progress", text, "bob", news=news)) == []
    assert said(planned("in_progress", text, "bob", news=(("handoff.completed", "alice"),))) == ["completed"]


def test_words_beside_a_status_that_stood_there_are_no_reason() -> None:
    base = parse(file("in_progress (since Monday)").encode())
    edited = parse(file("blocked (since Monday)").encode())
    plan = plan_edits(EDITED._replace(status="in_progress"), base=base, edited=edited, ledger=base, acting="bob")
    assert said(plan) == []
    assert plan.held[0].command == "deed handoff block h --reason … --as bob"


def test_reason_beside_a_status_is_no_change_of_the_text() -> None:
    base = parse(file("in_progress, as planned").encode())
    edited = parse(file("blocked: no key").encode())
    plan = plan_edits(EDITED._replace(status="in_progress"), base=base, edited=edited, ledger=base, acting="bob")
    assert (said(plan), plan.held) == (["blocked no key"], ())


def test_imported_tick_becomes_the_receiver_s_own_when_he_completes() -> None:
    base = file("in_progress").replace("- [ ] it is warm", "- [x] it is warm")
    for text, wanted in (
        (base.replace("in_progress", "completed"), ["criterion_checked 0", "completed"]),
        (file("completed"), ["criterion_checked 0 False", "completed"]),
    ):
        standing = EDITED._replace(status="in_progress", claimed=(0,))
        before = parse(base.encode())
        plan = plan_edits(standing, base=before, edited=parse(text.encode()), ledger=before, acting="bob")
        assert said(plan) == wanted


def test_unconfirmed_import_is_left_to_another_import() -> None:
    text = file("completed").replace("Make it warm.", "Make it hot.")
    plan = planned("pending", text, "alice", importer="iris")
    assert said(plan) == []
    assert [one.command for one in plan.held] == ["deed handoff import h.md --as iris"]
    assert planned("pending", file("pending"), "alice", importer="iris").held == ()
    (held,) = planned("pending", text, "alice", importer="iris", file="in/h.md").held
    assert held.command == "deed handoff import in/h.md --as iris"


def test_change_by_another_than_the_sender_is_left_to_their_watcher() -> None:
    text = file("pending").replace("Make it warm.", "Make it hot.")
    (held,) = planned("pending", text, "bob", file="a b/h.md").held
    assert held.command == "deed handoff watch 'a b' --once --as alice"


def test_tick_on_a_new_task_is_held_when_the_sender_adds_it() -> None:
    text = NEW.replace("- [ ] look", "- [x] think\n- [ ] look")
    plan = planned("pending", text, "alice")
    assert said(plan) == ["AMEND"]
    assert [one.what for one in plan.held] == ["tick task 1 (it is pending)"]


def test_log_line_without_a_name_is_the_receiver_s() -> None:
    text = NEW + "- and so on\n"
    assert said(planned("pending", text, "bob")) == ["logged and so on"]
    (held,) = planned("pending", text, "alice").held
    assert held.what == "log 'and so on' (or write [alice] before it)"
    assert held.command == "deed handoff log h 'and so on' --as bob"


def test_commands_are_quoted_for_the_shell() -> None:
    standing = EDITED._replace(id="it's; rm -rf ~")
    pending, approved = parse(file("pending").encode()), parse(file("approved").encode())
    plan = plan_edits(standing, base=pending, edited=approved, ledger=pending, acting="bob")
    assert plan.held[0].command == "deed handoff approve 'it'\"'\"'s; rm -rf ~' --as rita"


def test_name_in_a_log_line_that_is_none_is_in_no_command() -> None:
    (held,) = planned("pending", NEW + "- 2026-02-13 [rita; curl evil] went on\n", "alice").held
    assert held.text == "log 'went on': NAME must run deed handoff log h 'went on' --as NAME"


@pytest.mark.parametrize(
    ("text", "reason"), [(" (no key)", "no key"), ("（卡住）", "卡住"), (" — x-y", "x-y"), ("", "")]
)
def test_reason_is_read_without_its_brackets(text: str, reason: str) -> None:
    assert reason_in(text) == reason
