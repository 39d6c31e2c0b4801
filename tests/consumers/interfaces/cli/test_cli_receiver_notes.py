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
NO_SESSION = ("--session", "none")


def created(deed: Deed, name: str, *options: str) -> str:
    deed("handoff", "create", name, *PARTIES, *options)
    return name


def test_what_was_kept_is_shown_with_the_command_that_fetches_it(deed: Deed, fresh: Fresh, tmp_path: Path) -> None:
    (tmp_path / "probe.py").write_text("print(1)")
    ref = deed.data("blob", "put", tmp_path / "probe.py", "--as", "a")["ref"]
    absent = f"probe.py kept: blake3:{'0f' * 32}"
    deed.refuses("NOT_FOUND", "handoff", "create", fresh("absent"), *PARTIES, "--tested-by", absent)
    spoken = "x kept: y; rm -rf ~"
    name = created(deed, fresh("kept"), "--tested-by", f"probe.py kept: {ref}", "--tested-by", spoken, *NO_SESSION)
    shown = deed("handoff", "show", name)
    assert f"\n  kept: probe.py: `deed blob get {ref}`\n" in shown
    assert f"\n  tested by: {spoken}\n" in shown, "what a sender wrote is no command of ours"


def claimed(deed: Deed, name: str, *options: str) -> str:
    created(deed, name, "--criterion", "it works", *NO_SESSION, *options)
    deed("handoff", "approve", name, *deed.as_read(name), "--as", "rita")
    deed("handoff", "claim", name, "--as", "b")
    return name


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


def test_create_says_which_records_of_the_session_are_signed_with_it(alone: Deed) -> None:
    for name in ("kuro", "ben"):
        alone("agent", "add", name)
    alone("session", "start", "s1", "--as", "kuro", "--task", "Find the leak")
    alone("session", "dead-end", "Clear it on a timer", "--why", "it fills again", "--as", "kuro")
    alone("agent", "add", "rita", "--role", "reviewer", "--unprotected")
    words = ("--as", "kuro", "--to", "ben", "--reviewer", "rita", "--title", "T", "--criterion", "c")
    said = alone("handoff", "create", "h1", *words)
    assert "signed with it, from your session (leave it out with --session none):" in said
    assert "  tried: Clear it on a timer: it fills again" in said
    assert "from your session" not in alone("handoff", "create", "h2", *words, "--session", "none")
    assert alone.data("handoff", "create", "h3", *words)["of_session"] == {
        "tried": ["Clear it on a timer: it fills again"]
    }


FILE = """# Handoff: Piped

## Meta
- To: B

## Task
Do it.

## Acceptance Criteria
- [ ] it works

## Receiver Notes
- Trap: two configs

## Deployment
Carefully.
"""


def test_handoff_is_created_from_a_file_whose_every_line_is_part_of_its_version(
    deed: Deed, fresh: Fresh, tmp_path: Path
) -> None:
    name, file = fresh("piped"), tmp_path / "h.md"
    file.write_text(FILE)
    words = ("handoff", "create", name, "--file", file, "--as", "a", *NO_SESSION)
    plan = deed.data(*words, "--reviewer", "rita", "--dry-run")
    assert "- Trap: two configs" in plan["file"]
    deed.refuses("NOT_FOUND", "handoff", "show", name)
    deed(*words, "--reviewer", "rita", "--title", "Other")
    shown = deed.data("handoff", "show", name)
    assert (shown["title"], shown["to"], shown["task"]) == ("Other", "b", "Do it.")
    assert shown["notes"]["traps"] == ["two configs"]
    assert "Carefully." in shown["only_in_file"]


@pytest.mark.parametrize(
    ("old", "new", "code", "said"),
    [
        ("[ ]", "[x]", "USAGE", "what was done or decided already"),
        ("- To: B", "- To: B\n- Status: approved", "USAGE", "what was done or decided already"),
        ("- To: B", "- To: B\n- From: rita", "USAGE", "the file is from rita: sign it with --as rita"),
        ("- To: B", "- From: a", "USAGE", "a handoff needs --to"),
        ("- To: B", "- To: nobody-here", "INVALID_FIELD", "line 4"),
    ],
)
def test_file_that_is_no_new_handoff_of_its_author_is_refused(
    deed: Deed, fresh: Fresh, tmp_path: Path, old: str, new: str, code: str, said: str
) -> None:
    file = tmp_path / "h.md"
    file.write_text(FILE.replace(old, new))
    name = fresh("refused")
    error = deed.refuses(code, "handoff", "create", name, "--file", file, "--as", "a", "--reviewer", "rita")
    assert said in error["message"]
    deed.refuses("NOT_FOUND", "handoff", "show", name)
