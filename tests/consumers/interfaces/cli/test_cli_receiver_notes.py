"""What only the sender knows: asked of him, taken along from his session, and shown to the receiver first."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from calling import Deed

    Fresh = Callable[[str], str]

PARTIES = ("--to", "b", "--reviewer", "rita", "--title", "Expire tokens", "--as", "a")
ME = ("--as", "a")
REASON = ("--reason", "r", "--as", "b")
NO_SESSION = ("--session", "none")
ALL = ("--tested-by", "make test", "--touches", "src/auth.py", "--trap", "two configs", "--tried", "a cache: no")


def created(deed: Deed, name: str, *options: str) -> str:
    deed("handoff", "create", "--id", name, *PARTIES, *options)
    return name


@pytest.mark.served
def test_what_the_sender_says_stands_first_for_the_receiver(deed: Deed, fresh: Fresh) -> None:
    name = created(deed, fresh("notes"), *ALL, "--body", "Do it.", "--criterion", "it works", "--session", "none")
    shown = deed("handoff", "show", name)
    assert (
        "\nWhat its sender knows\n  tested by: make test\n  touches: src/auth.py\n  trap: two configs\n"
        "  tried: a cache: no\n\nTask  Do it.\n" in shown
    )
    notes = deed.data("handoff", "show", name)["notes"]
    assert notes == {
        "tested_by": ["make test"],
        "touches": ["src/auth.py"],
        "traps": ["two configs"],
        "tried": ["a cache: no"],
    }
    assert "- Trap: two configs\n" in deed("handoff", "render", name)


def test_what_was_kept_is_shown_with_the_command_that_fetches_it(deed: Deed, fresh: Fresh) -> None:
    ref = "blake3:" + "0f" * 32
    spoken = "x kept: y; rm -rf ~"
    name = created(deed, fresh("kept"), "--tested-by", f"probe.py kept: {ref}", "--tested-by", spoken, *NO_SESSION)
    shown = deed("handoff", "show", name)
    assert f"\n  kept: probe.py: `deed blob get {ref}`\n" in shown
    assert f"\n  tested by: {spoken}\n" in shown, "what a sender wrote is no command of ours"


def test_an_id_that_a_shell_would_run_is_quoted_in_every_command(deed: Deed, fresh: Fresh) -> None:
    name = fresh("$(touch x)")
    (warning,) = deed.data("handoff", "create", "--id", name, *PARTIES, *NO_SESSION)["warnings"]
    assert f"`deed handoff amend '{name}' …`" in warning
    refusal = deed.refuses("TRANSITION_NOT_ALLOWED", "handoff", "block", name, *REASON)
    assert f"`deed handoff why '{name}'`" in refusal["message"]


def test_a_sender_who_says_nothing_is_warned_of_what_is_missing_and_not_refused(deed: Deed, fresh: Fresh) -> None:
    options = ("--id", name := fresh("unsaid"), *PARTIES, "--trap", "two configs", "--session", "none")
    (warning,) = deed.data("handoff", "create", *options)["warnings"]
    assert "--tested-by CMD" in warning
    assert "--trap" not in warning
    assert f"`deed handoff amend {name} …`" in warning
    said = deed.run("handoff", "create", "--id", fresh("all"), *PARTIES, *ALL)
    assert (said.code, said.err) == (0, "")


def test_what_the_session_recorded_goes_along(deed: Deed, fresh: Fresh) -> None:
    deed("session", "start", session := fresh("s"), "--task", "tokens", "--as", "a")
    deed("session", "finding", session, "No age", "--evidence", "src/auth.py:4-9", "--evidence", "a page", "--as", "a")
    deed("session", "dead-end", session, "A cache", "--why", "it\nhides", "--as", "a")
    deed("session", "tool", session, "pytest -q tests/auth", "--as", "a")
    deed("session", "tool", session, "grep", "--purpose", "callers", "--as", "a")
    deed("session", "unknown", session, "Who sets TTL?", "--as", "a")
    name = created(deed, fresh("along"), "--session", session, "--tried", "sleeping: slow")
    assert deed.data("handoff", "show", name)["notes"] == {
        "tested_by": ["pytest -q tests/auth"],
        "touches": ["src/auth.py"],
        "traps": ["not known: Who sets TTL?"],
        "tried": ["sleeping: slow", "A cache: it hides"],
    }
    deed.refuses("NOT_FOUND", "handoff", "create", "--id", fresh("h"), *PARTIES, "--session", "no-such-session")
    deed("session", "end", session, "--as", "a")


def test_an_amendment_adds_to_them_and_prints_what_changed(deed: Deed, fresh: Fresh) -> None:
    name = created(deed, fresh("more"), *ALL, "--session", "none")
    told = deed("handoff", "amend", name, "--title", "Expire all", "--trap", "no clock", "--tried", "none", *ME)
    assert "\n  title was 'Expire tokens' and is 'Expire all'\n" in told
    notes = deed.data("handoff", "show", name)["notes"]
    assert (notes["traps"], notes["tried"], notes["touches"]) == (["two configs", "no clock"], [], ["src/auth.py"])
    changed = deed.data("handoff", "amend", name, "--tested-by", "make check", "--as", "a")["changes"]
    assert [(one["field"], [(line["mark"], line["text"]) for line in one["lines"]]) for one in changed] == [
        ("tested_by", [("kept", "make test"), ("added", "make check")])
    ]


def claimed(deed: Deed, name: str, *options: str) -> str:
    created(deed, name, "--criterion", "it works", *NO_SESSION, *options)
    deed("handoff", "approve", name, *deed.as_read(name), "--as", "rita")
    deed("handoff", "claim", name, "--as", "b")
    return name


def test_what_the_sender_adds_later_stands_beside_what_he_knew(deed: Deed, fresh: Fresh) -> None:
    name = created(deed, fresh("later"), "--trap", "two configs", *NO_SESSION)
    deed("handoff", "log", name, "before the amendment", *ME)
    deed("handoff", "amend", name, "--tried", "sleeping", *ME)
    deed("handoff", "approve", name, *deed.as_read(name), "--as", "rita")
    deed("handoff", "claim", name, "--as", "b")
    deed("handoff", "log", name, "the second config is dead", *ME)
    deed("handoff", "log", name, "I see", "--as", "b")
    shown = deed("handoff", "show", name)
    head, _, _ = shown.partition("\nLog")
    assert "\n  trap: two configs\n  tried: sleeping\n  later: the second config is dead\n" in head
    assert "I see" not in head
    assert "before the amendment" not in head


def test_who_is_asked_to_waive_is_said(deed: Deed, fresh: Fresh) -> None:
    name = claimed(deed, fresh("asked"))
    assert "is asked" not in deed("handoff", "why", name)
    deed("handoff", "ask-waiver", name, "--criterion", 1, *REASON)
    assert "criterion 1 is open; rita is asked to waive a criterion." in deed("handoff", "why", name)


def test_a_ticked_criterion_takes_later_evidence_once(deed: Deed, fresh: Fresh) -> None:
    check = ("handoff", "check", name := claimed(deed, fresh("shown")), "--criterion", 1, "--as", "b")
    deed(*check)
    for evidence in ("9 passed", "10 passed"):
        assert "(entry " in deed(*check, "--evidence", evidence)
        assert deed.data("handoff", "show", name)["criteria"][0]["evidence"] == evidence
        assert "(nothing signed: already so)" in deed(*check, "--evidence", evidence)
    assert "(nothing signed: already so)" in deed(*check)
    assert "(nothing signed: already so)" in deed("handoff", "check", name, "--all", "--evidence", "z", "--as", "b")


def test_what_is_in_no_commit_is_named_when_the_work_is_completed(
    deed: Deed, fresh: Fresh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *arguments], cwd=tmp_path, check=True)

    monkeypatch.chdir(tmp_path)
    files = [tmp_path / name for name in ("kept.py", "a b.py", "new.py")]
    git("init", "-q")
    for file in files[:2]:
        file.write_text("1\n")
    git("add", ".")
    git("commit", "-qm", "one")
    touches = [word for text in ("kept.py:3", "a b.py", "new.py", "gone.py", "x" * 300) for word in ("--touches", text)]
    name = claimed(deed, fresh("commit"), *touches)
    deed("handoff", "check", name, "--all", "--as", "b")
    for file in files[1:]:
        file.write_text("2\n")
    done = deed.data("handoff", "complete", name, "--as", "b")
    assert done["warnings"] == ["not committed here: a b.py, new.py: commit it, or the reviewer verifies other content"]
