"""`deed handoff`: the whole life of a handoff by verbs, why it is not ready, and what is refused with which code."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from deedbook.consumers.handoffs.content import split_ids
from deedbook.consumers.sdk.text import default_id
from deedbook.ledger.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from calling import Deed

    Fresh = Callable[[str], str]


def create(deed: Deed, name: str, *more: object) -> str:
    """Create a handoff from a to b that rita reviews, and return its id."""
    parties = ["--as", "a", "--to", "b", "--reviewer", "rita"]
    deed("handoff", "create", "--id", name, "--title", f"Do {name}", *parties, *more)
    return name


def claimed(deed: Deed, name: str, *more: object) -> str:
    """Create, approve and claim a handoff, and return its id."""
    create(deed, name, *more)
    deed("handoff", "approve", name, "--as", "rita", *deed.as_read(name))
    deed("handoff", "claim", name, "--as", "b")
    return name


def status(deed: Deed, name: str) -> str:
    """Return where a handoff stands."""
    found: str = deed.data("handoff", "show", name)["status"]
    return found


def why(deed: Deed, name: str) -> str:
    """Return the sentence that says why a handoff is not ready."""
    data: dict[str, Any] = deed.data("handoff", "why", name)
    sentence: str = data["sentence"]
    shown, *commands = deed("handoff", "why", name).splitlines()
    assert (shown, commands) == (sentence, [f"next: {command}" for command in data["next"]])
    return sentence


@pytest.mark.served
def test_handoff_lives_from_creation_to_verification(deed: Deed, fresh: Fresh) -> None:
    name = create(deed, fresh("life"), "--task", "one", "--task", "two", "--criterion", "it works", "--body", "做")
    assert status(deed, name) == "pending"
    said = deed.data("handoff", "approve", name, "--as", "rita", *deed.as_read(name), "--comment", "go on")
    assert (said["id"], said["status"]) == (name, "approved")
    logged = [one["kind"] for one in deed.data("log", "--reverse", "--stream", f"handoff/{name}")["events"]]
    # Where the ledger is served, its router may have told already that it is ready.
    assert [kind for kind in logged if kind != "handoff.ready"] == ["handoff.created", "handoff.approved"]
    assert deed("handoff", "claim", name, "--as", "b").startswith(f"{name} is in_progress (entry ")
    deed("handoff", "check", name, "--task", 1, "--task", 2, "--as", "b")
    error = deed.refuses("CRITERIA_OPEN", "handoff", "complete", name, "--as", "b")
    assert "has open acceptance criteria (1): check them or have them waived first" in error["message"]
    deed("handoff", "check", name, "--criterion", 1, "--as", "b")
    deed("handoff", "log", name, "nearly there", "--as", "b")
    deed("handoff", "complete", name, "--as", "b", "--summary", "done", "--artifact", "src/a.py")
    assert status(deed, name) == "completed"
    deed("handoff", "verify", name, "--as", "rita", *deed.as_read(name))
    shown = deed.data("handoff", "show", name)
    assert (shown["status"], shown["task"]) == ("verified", "做")
    assert [one["done"] for one in shown["tasks"]] == [True, True]
    assert [one["mark"] for one in shown["criteria"]] == ["checked"]
    assert any("nearly there" in one["line"] for one in shown["log"])


def test_shown_handoff_reads_like_its_file(deed: Deed, fresh: Fresh) -> None:
    name = claimed(deed, fresh("file"), "--task", "one", "--criterion", "it works", "--context", "see the notes")
    deed("handoff", "check", name, "--task", 1, "--as", "b")
    deed("handoff", "waive", name, "--criterion", 1, "--reason", "nobody asks", "--as", "rita")
    text = deed("handoff", "show", name)
    for wanted in (
        f"Do {name}",
        "in_progress → b",
        "from a to b, reviewed by rita",
        "see the notes",
        "1. [x] one",
        "1. [ ] it works  (waived: nobody asks)",
        "[b] claimed",
    ):
        assert wanted in text
    assert text.index("Tasks\n") < text.index("Acceptance criteria\n") < text.index("Context") < text.index("Log\n")


def test_version_that_show_prints_is_the_one_to_approve(deed: Deed, fresh: Fresh) -> None:
    name = create(deed, fresh("version"))
    (printed,) = (line for line in deed("handoff", "show", name).splitlines() if line.startswith("version "))
    version = printed.removeprefix("version ")
    deed.refuses("USAGE", "handoff", "approve", name, "--version", version[:20], "--as", "rita")
    deed("handoff", "amend", name, "--title", "Do more", "--as", "a")
    deed.refuses("VERSION_MISMATCH", "handoff", "approve", name, "--version", version, "--as", "rita")
    (printed,) = (line for line in deed("handoff", "show", name).splitlines() if line.startswith("version "))
    deed("handoff", "approve", name, "--version", printed.removeprefix("version "), "--as", "rita")
    assert deed.data("handoff", "show", name)["status"] == "approved"


def test_ids_are_taken_with_and_without_md(deed: Deed, fresh: Fresh) -> None:
    first = create(deed, fresh("md"))
    second = create(deed, fresh("md"), "--depends-on", f"{first}.md, (none)")
    assert deed.data("handoff", "show", f"{second}.md")["depends_on"][0]["id"] == first
    deed("handoff", "approve", f"{first}.md", "--as", "rita", *deed.as_read(f"{first}.md"))
    assert status(deed, first) == "approved"
    third = fresh("md")
    create(deed, f"{third}.md", "--answers", f"{first}.md")
    assert deed.data("handoff", "show", third)["id"] == third
    assert [one["id"] for one in deed.data("handoff", "show", first)["answered_by"]] == [third]
    deed("handoff", "amend", third, "--answers", f"{second}.md", "--as", "a")
    assert deed.data("handoff", "show", third)["answers"] == second


def test_block_release_and_request_changes_go_back_and_forth(deed: Deed, fresh: Fresh) -> None:
    name = claimed(deed, fresh("back"))
    deed("handoff", "block", name, "--reason", "the disk is full", "--as", "b")
    assert status(deed, name) == "blocked"
    assert "the disk is full" in why(deed, name)
    deed("handoff", "unblock", name, "--comment", "a new disk", "--as", "rita")
    deed("handoff", "release", name, "--reason", "no time", "--as", "b")
    assert status(deed, name) == "approved"
    deed("handoff", "claim", name, "--lease-minutes", 30, "--as", "b")
    deed("handoff", "complete", name, "--as", "b")
    deed("handoff", "request-changes", name, "--reason", "too slow", "--reason", "too big", "--as", "rita")
    assert status(deed, name) == "in_progress"
    assert "too slow; too big" in deed("handoff", "list", "--limit", 1)
    deed("handoff", "complete", name, "--as", "b")
    assert "too slow" not in deed("handoff", "list", "--limit", 1)  # it was asked for, and done


def test_rejected_and_cancelled_handoffs_are_over(deed: Deed, fresh: Fresh) -> None:
    rejected = create(deed, fresh("over"))
    deed("handoff", "reject", rejected, "--reason", "not now", "--as", "rita")
    assert why(deed, rejected).startswith(f"{rejected} is rejected: rita rejected it at ")
    assert " UTC (not now); nothing comes next: create another." in why(deed, rejected)
    cancelled = create(deed, fresh("over"))
    deed("handoff", "cancel", cancelled, "--reason", "no need", "--as", "a")
    assert why(deed, cancelled).startswith(f"{cancelled} is cancelled: a cancelled it at ")
    assert " UTC (no need); nothing is left to do." in why(deed, cancelled)
    deed.refuses("TRANSITION_NOT_ALLOWED", "handoff", "approve", cancelled, "--as", "rita", *deed.as_read(cancelled))


def test_completed_work_names_who_verifies_it_and_verified_work_that_nothing_is_left(deed: Deed, fresh: Fresh) -> None:
    name = claimed(deed, fresh("done"))
    deed("handoff", "complete", name, "--as", "b")
    assert why(deed, name).startswith(f"{name} is completed: b completed it at ")
    assert why(deed, name).endswith(" UTC; rita verifies it or requests changes.")
    assert deed.data("handoff", "why", name)["next"]
    deed("handoff", "verify", name, "--as", "rita", *deed.as_read(name))
    assert why(deed, name).startswith(f"{name} is verified: rita verified it at ")
    assert why(deed, name).endswith(" UTC; nothing is left to do.")


def test_ticks_are_set_together_and_taken_back(deed: Deed, fresh: Fresh) -> None:
    name = claimed(deed, fresh("ticks"), "--task", "one", "--task", "two", "--criterion", "it works")
    deed.refuses("USAGE", "handoff", "check", name, "--as", "b")
    assert len(deed.data("handoff", "check", name, "--all", "--as", "b")["accepted"]) == 3
    again = deed.data("handoff", "check", name, "--task", "1,2", "--criterion", 1, "--as", "b")
    assert (again["accepted"], again["left"]) == ([], {"tasks": [], "criteria": []})
    assert "(nothing signed: already so)" in deed("handoff", "check", name, "--all", "--as", "b")
    deed("handoff", "check", name, "--task", 2, "--undo", "--as", "b")
    deed.refuses("USAGE", "handoff", "check", name, "--task", "1,x", "--as", "b")
    shown = deed.data("handoff", "show", name)
    assert [one["done"] for one in shown["tasks"]] == [True, False]
    deed("handoff", "check", name, "--all", "--undo", "--as", "b")
    assert deed.data("handoff", "show", name)["criteria"][0]["mark"] == "open"
    error = deed.refuses("INVALID_FIELD", "handoff", "check", name, "--task", 3, "--as", "b")
    assert error["message"] == "there is no task 3 (of 2)"
    waived = deed.refuses("INVALID_FIELD", "handoff", "waive", name, "--criterion", 2, "--reason", "x", "--as", "rita")
    assert waived["message"] == "there is no criterion 2 (of 1)"


def test_several_are_ticked_in_one_call_with_what_shows_it(deed: Deed, fresh: Fresh) -> None:
    parts = [word for text in ("a", "b", "c") for word in ("--task", text)]
    name = claimed(deed, fresh("several"), *parts, "--criterion", "tests pass", "--criterion", "it is fast")
    told = deed("handoff", "check", name, "--task", "1,3", "--criterion", 1, "--evidence", "make test: 9", "--as", "b")
    assert "; task 2 and criterion 2 are open." in told
    shown = deed.data("handoff", "show", name)
    assert [line["text"] for line in shown["log"][-3:]] == [
        "task done: a (make test: 9)",
        "task done: c (make test: 9)",
        "criterion met: tests pass (make test: 9)",
    ]
    assert len({deed.data("show", line["event_index"])["at"] for line in shown["log"][-3:]}) == 1  # one batch


def test_evidence_given_once_shows_all_and_given_for_each_goes_by_their_order(deed: Deed, fresh: Fresh) -> None:
    name = claimed(deed, fresh("pairs"), *(word for text in "abcd" for word in ("--criterion", text)))
    check = ("handoff", "check", name, "--as", "b")
    deed(*check, "--criterion", 2, "--evidence", "second", "--criterion", 1, "--evidence", "first")
    for wrong in (("--criterion", "3"), ("--all",), ("--criterion", "3", "--task", 1)):
        error = deed.refuses("USAGE", *check, *wrong, "--evidence", "x", "--evidence", "y")
        assert "give it once for all, or once for each" in error["message"]
    deed(*check, "--criterion", "3,4", "--evidence", "both")
    criteria = deed.data("handoff", "show", name)["criteria"]
    assert [one["evidence"] for one in criteria] == ["first", "second", "both", "both"]


@pytest.mark.served
def test_a_waiver_is_asked_of_the_reviewer_who_grants_or_refuses_it(deed: Deed, fresh: Fresh) -> None:
    name = claimed(deed, fresh("waiver"), "--criterion", "runs on macOS")
    ask = ("handoff", "ask-waiver", name, "--criterion", 1, "--reason", "no Mac here", "--as", "b")
    assert "criterion 1 is open" in deed(*ask)
    assert "its reviewer is asked to waive it: no Mac here" in deed("handoff", "show", name)
    assert "- [ ] runs on macOS\n" in deed("handoff", "render", name), "a file shows it as open as it is"
    (item,) = [one for one in deed.data("next", "--as", "rita")["items"] if one["id"] == name]
    assert item["command"] == f"deed handoff waive --criterion 1 --reason WHY --as rita {name}"
    deed.refuses("CRITERIA_OPEN", "handoff", "complete", name, "--as", "b")
    waive = ("handoff", "waive", name, "--criterion", 1, "--reason", "borrow one")
    deed.refuses("SELF_APPROVAL", *waive, "--as", "b")
    deed(*waive, "--refuse", "--as", "rita")
    deed.refuses("CRITERIA_OPEN", "handoff", "complete", name, "--as", "b")
    deed(*ask)
    deed(*waive, "--as", "rita")
    assert "- [x] runs on macOS\n" in deed("handoff", "render", name)
    deed("handoff", "complete", name, "--as", "b")


@pytest.mark.served
def test_why_names_what_is_waited_for(deed: Deed, fresh: Fresh) -> None:
    first = create(deed, fresh("why"))
    second = create(deed, fresh("why"), "--depends-on", first)
    missing = create(deed, fresh("why"), "--depends-on", "nobody-made-this")
    assert why(deed, first) == f"{first} is not ready: it waits for the approval of rita."
    for name in (first, second, missing):
        deed("handoff", "approve", name, "--as", "rita", *deed.as_read(name))
    assert why(deed, first) == f"{first} is ready: b can claim it."
    assert why(deed, second) == (
        f"{second} is not ready: it waits for {first}, which is approved and not yet claimed by b."
    )
    error = deed.refuses("DEPENDENCY_PENDING", "handoff", "claim", second, "--as", "b")
    assert first in error["message"]
    assert "nobody-made-this, which does not exist" in why(deed, missing)
    deed.refuses("DEPENDENCY_MISSING", "handoff", "claim", missing, "--as", "b")
    deed("handoff", "claim", first, "--as", "b")
    assert why(deed, first).startswith(f"{first} is in progress: b works on it since ")
    deed("handoff", "complete", first, "--as", "b")
    assert why(deed, second) == f"{second} is ready: b can claim it."


def test_dependency_may_have_to_be_verified(deed: Deed, fresh: Fresh) -> None:
    first = claimed(deed, fresh("unlock"))
    second = create(deed, fresh("unlock"), "--depends-on", first, "--unlock-at", "verified")
    deed("handoff", "approve", second, "--as", "rita", *deed.as_read(second))
    deed("handoff", "complete", first, "--as", "b")
    assert "completed but not yet verified by rita" in why(deed, second)
    deed.refuses("DEPENDENCY_PENDING", "handoff", "claim", second, "--as", "b")
    deed("handoff", "verify", first, "--as", "rita", *deed.as_read(first))
    deed("handoff", "claim", second, "--as", "b")


@pytest.mark.served
def test_only_the_reviewer_approves_and_only_the_receiver_claims(deed: Deed, fresh: Fresh) -> None:
    name = create(deed, fresh("gate"))
    before = deed.written()
    for party in ("a", "b"):
        deed.refuses("SELF_APPROVAL", "handoff", "approve", name, "--as", party, *deed.as_read(name))
    deed.refuses("NOT_AUTHORIZED", "handoff", "approve", name, "--as", "ada", *deed.as_read(name))
    deed.refuses("NOT_APPROVED", "handoff", "claim", name, "--as", "b")
    deed.refuses("VERSION_MISMATCH", "handoff", "approve", name, "--version", "sha256:" + "0" * 64, "--as", "rita")
    assert deed.written() == before
    deed("handoff", "approve", name, "--as", "rita", *deed.as_read(name))
    deed.refuses("NOT_AUTHORIZED", "handoff", "claim", name, "--as", "ada")
    deed("handoff", "claim", name, "--as", "b")
    deed.refuses("ALREADY_CLAIMED", "handoff", "claim", name, "--as", "b")
    deed.refuses("NOT_AUTHORIZED", "handoff", "complete", name, "--as", "a")


def test_handoff_that_cannot_be_is_not_created(deed: Deed, fresh: Fresh) -> None:
    name = create(deed, fresh("bad"))
    parties = ["--title", "t", "--as", "a", "--to", "b"]
    deed.refuses("TRANSITION_NOT_ALLOWED", "handoff", "create", "--id", name, *parties, "--reviewer", "rita")
    deed.refuses("REVIEWER_REQUIRED", "handoff", "create", *parties)
    deed.refuses("SELF_APPROVAL", "handoff", "create", *parties, "--reviewer", "a")
    deed.refuses("AGENT_UNKNOWN", "handoff", "create", "--title", "t", "--as", "a", "--to", "z", "--reviewer", "rita")
    deed.refuses("INVALID_FIELD", "handoff", "create", "--id", "../x", *parties, "--reviewer", "rita")
    first, second = fresh("cycle"), fresh("cycle")
    create(deed, first, "--depends-on", second)
    closing = ["--id", second, *parties, "--reviewer", "rita", "--depends-on", first]
    error = deed.refuses("DEPENDENCY_CYCLE", "handoff", "create", *closing)
    assert first in error["message"]
    deed.refuses("NOT_FOUND", "handoff", "create", *parties, "--reviewer", "rita", "--body", "@/no/such/file")


def test_unknown_handoff_is_not_found_by_any_verb(deed: Deed) -> None:
    read = ["--version", "sha256:" + "0" * 64]
    for verb in (["show"], ["why"], ["approve", *read], ["claim"], ["complete"], ["verify", *read], ["check", "--all"]):
        error = deed.refuses("NOT_FOUND", "handoff", verb[0], "no-such-handoff", *verb[1:], "--as", "b")
        assert "`deed handoff list`" in error["message"]


def test_list_filters_and_goes_on_with_the_command_it_prints(deed: Deed, fresh: Fresh) -> None:
    carl = fresh("carl")
    deed("agent", "add", carl, "--as", "ada")
    names = [fresh("list") for _ in range(5)]
    for name in names:
        deed("handoff", "create", "--id", name, "--title", "t", "--as", "a", "--to", carl, "--reviewer", "rita")
    deed("handoff", "approve", names[0], "--as", "rita", *deed.as_read(names[0]))
    assert [one["id"] for one in deed.data("handoff", "list", "--to", carl, "--ready")["handoffs"]] == [names[0]]
    seen: list[str] = []
    arguments = ["handoff", "list", "--to", carl, "--status", "pending", "--from", "a", "--limit", "3"]
    while arguments:
        document = deed.document(*arguments)
        assert document["data"]["total"] == 4
        seen += [one["id"] for one in document["data"]["handoffs"]]
        arguments = document.get("next", "").split()[1:]
    assert seen == names[:0:-1]
    table = deed("handoff", "list", "--to", carl, "--limit", 2)
    assert f"[pending → {carl}]" in table
    assert "5 in all; continue with: deed handoff list" in table
    assert "(none)" in deed("handoff", "list", "--to", carl, "--status", "verified")
    deed.refuses("USAGE", "handoff", "list", "--status", "finished")


def test_guessed_verbs_are_aliases(deed: Deed, fresh: Fresh) -> None:
    name = fresh("alias")
    parties = ["--as", "a", "--to", "b", "--reviewer", "rita"]
    deed("handoff", "new", "--id", name, "--title", "t", *parties)
    deed("handoff", "approve", name, "--as", "rita", *deed.as_read(name))
    deed("handoff", "claim", name, "--as", "b")
    deed("handoff", "close", name, "--as", "b")
    assert status(deed, name) == "completed"


def test_default_reviewer_is_written_in_unless_it_is_a_party(alone: Deed) -> None:
    for agent in ("a", "b"):
        alone("agent", "add", agent)
    alone("agent", "add", "rita", "--role", "human", "--role", "reviewer", "--unprotected")
    (alone.home / "config.toml").write_text('default_reviewer = "rita"\n')
    made = alone.data("handoff", "create", "--as", "a", "--to", "b", "--title", "Wähle 东西 aus!")
    assert alone.data("handoff", "show", made["id"])["reviewer"] == "rita"
    assert made["id"] == default_id("Wähle 东西 aus!")
    assert made["id"].endswith("-wähle-东西-aus")
    alone.refuses("REVIEWER_REQUIRED", "handoff", "create", "--as", "a", "--to", "rita", "--title", "t")


def test_text_of_a_handoff_is_read_from_files(alone: Deed, tmp_path: Path) -> None:
    test_default_reviewer_is_written_in_unless_it_is_a_party(alone)
    body = tmp_path / "body.md"
    body.write_text("第一行\nsecond line\n", "utf-8")
    created = ["handoff", "create", "--as", "a", "--to", "b", "--title", "t", "--id", "from-file"]
    alone(*created, "--body", f"@{body}")
    assert alone.data("handoff", "show", "from-file")["task"].startswith("第一行\nsecond")
    body.write_bytes(b"\xff\xfe")
    alone.refuses("INVALID_FORMAT", *created, "--body", f"@{body}")


def test_text_that_would_steer_a_terminal_is_shown_without_its_power(deed: Deed, fresh: Fresh) -> None:
    name = create(deed, fresh("escape"), "--body", "\x1b[2J\u202egnol")
    shown = deed("handoff", "show", name)
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert json.dumps(deed.data("handoff", "show", name)["task"]) == '"\\u001b[2J\\u202egnol"'


def test_id_of_a_title_needs_a_word() -> None:
    with pytest.raises(Refused) as refused:
        default_id("!?")
    assert refused.value.code == "USAGE"
    assert split_ids("a.md, b,(none),") == ["a", "b"]
