"""The reasoning behind a handoff: the sender names it, the receiver reads it, and every problem with it is reported."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from calling import Deed

    Fresh = Callable[[str], str]

PARTIES = ("--to", "b", "--reviewer", "rita", "--title", "Expire tokens", "--as", "a")
ELSEWHERE = "sha256:" + "0" * 64
CODE: Final = "def check(token):\n    entry = CACHE.get(token)\n    return entry\n\nTTL = 3600\n"
CHANGED: Final = CODE.replace("CACHE.get", "STORE.find").replace("return entry", "return fresh(entry)")
AGE: Final = r"(just now|\d+ min ago)"
FILE: Final = """\
# Handoff: Expire tokens

## Meta
- Status: approved
- From: kuro
- To: b
- Reviewer: {reviewer}
- Reasoning: {refs}

## Task
Do it.
"""


def reason(deed: Deed, name: str) -> str:
    """Let a record a reasoning with a conclusion, and return the conclusion's ref."""
    deed("reasoning", "start", name, "--task", f"Why do the tokens of {name} never expire?", "--as", "a")
    seen = [f"check() of {name} never reads their age", "--evidence", "src/auth.py:4"]
    deed("reasoning", "step", name, "--type", "observation", *seen, "--as", "a")
    deed("reasoning", "conclude", name, f"Compare the age in {name}", "--as", "a")
    return ref_of(deed, name)


def ref_of(deed: Deed, name: str) -> str:
    found: str = deed.data("reasoning", "show", name)["ref"]
    return found


def refs_of(deed: Deed, name: str, of: str = "reasoning_refs") -> list[str]:
    refs: list[str] = deed.data("handoff", "show", name)[of]
    return refs


def test_more_than_a_handoff_holds_is_refused(deed: Deed, fresh: Fresh) -> None:
    named = [word for number in range(9) for word in ("--reasoning", f"sha256:{number:064x}")]
    error = deed.refuses("INVALID_FIELD", "handoff", "create", fresh("h"), *PARTIES, *named)
    assert error["message"] == "9 reasonings: a handoff cites at most 8"


@pytest.fixture
def work_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with the code that a reasoning cites, in which the verbs run."""
    (tmp_path / "auth.py").write_text(CODE)
    identity = ["-c", "user.name=ann", "-c", "user.email=ann@example.org"]
    for words in (["init", "-q"], ["add", "auth.py"], [*identity, "commit", "-qm", "code"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True, capture_output=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def reason_about_code(deed: Deed, name: str) -> None:
    deed("reasoning", "start", name, "--task", f"Why do the tokens of {name} stay?", "--as", "a")
    for number, line in enumerate((2, 3, 5)):
        seen = [f"{name} sees {number}", "--evidence", f"auth.py:{line}"]
        deed("reasoning", "step", name, "--type", "observation", *seen, "--as", "a")
    deed("reasoning", "conclude", name, f"Compare the age in {name}", "--as", "a")


def test_receiver_reads_the_reasoning_and_how_its_evidence_stands_through_five_changes(
    deed: Deed, fresh: Fresh, work_tree: Path, carl: str
) -> None:
    reason_about_code(deed, own := fresh("r"))
    deed("handoff", "create", name := fresh("h"), *PARTIES, "--to", carl, "--reasoning", own)
    deed("handoff", "approve", name, "--as", "rita", *deed.as_read(name))
    entries = []
    for text, stand in [(CODE, 3), (CHANGED, 1), (CODE, 3), (CHANGED, 1), (CODE, 3)]:
        if text == CODE:
            subprocess.run(["git", "checkout", "-q", "auth.py"], check=True)
        else:
            (work_tree / "auth.py").write_text(text)
        deed.run("reasoning", "validate", own, "--as", "rita")
        entries += [one["event_index"] for one in deed.data("reasoning", "validations", own)["items"][:1]]
        word, may = (
            ("validated", "act on the brief")
            if stand == 3
            else ("found wrong", "check it, or ask a human, before you rely on it")
        )
        line = rf"; {stand} of 3 stand, {word} by rita {AGE}; {may}\n"
        brief = f"│ CONCLUSION: Compare the age in {own}"
        for reads in (["next", "--as", carl], ["handoff", "show", name]):
            said = deed(*reads)
            assert re.search(line, said)
            assert (brief in said) is ("show" in reads)  # a list names the brief, and does not repeat it
        action = deed.data("snapshot", "receive", own, "--as", carl)["action"]
        assert action == ("act" if stand == 3 else "human_review_required")
    assert len(set(entries)) == 5
    primed = deed("prime", "--as", carl, "--budget", 4000)
    assert f"claim {name} (with its reasoning): `deed handoff claim" in primed
    assert "CONCLUSION" not in primed  # only `handoff show` prints it


def test_what_a_human_answered_is_read_with_the_handoff(deed: Deed, fresh: Fresh) -> None:
    own = fresh("r")
    deed("reasoning", "start", own, "--task", f"Why {own}?", "--domain", "security", "--as", "a")
    deed("reasoning", "step", own, "--type", "observation", f"{own} leaks", "--as", "a")
    deed("reasoning", "conclude", own, "Close it", "--as", "a")
    deed("handoff", "create", name := fresh("h"), *PARTIES, "--reasoning", own)
    assert "; check it, or ask a human, before you rely on it\n" in deed("handoff", "show", name, "--as", "b")
    review = deed.data("snapshot", "receive", ref_of(deed, own), "--as", "b")["review"]["id"]
    deed("review", "answer", review, "--approve", "--as", "rita")
    assert "; rita, a human, approved it\n" in deed("handoff", "show", name, "--as", "b")
    assert "; check it, or ask a human, before you rely on it\n" in deed("handoff", "show", name, "--as", "a")
    task = ("--task", "Close the leak")
    review = deed.data("snapshot", "receive", ref_of(deed, own), *task, "--as", "a")["review"]["id"]
    deed("review", "answer", review, "--approve", "--as", "rita")
    shown = deed("handoff", "show", name, "--as", "a")
    assert (
        "; check it, or ask a human, before you rely on it; rita, a human, approved it for the task 'Close the leak' ("
        in shown
    )


def test_a_file_may_name_what_is_not_here_and_is_shown_all_the_same(
    deed: Deed, fresh: Fresh, rob: str, tmp_path: Path
) -> None:
    ref = reason(deed, fresh("r"))
    path = tmp_path / f"{fresh('h')}.md"
    text = FILE.format(reviewer=rob, refs=f"{ELSEWHERE}, \x1b[2Jjwt, {ref}")
    path.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    deed("handoff", "import", path, "--as", "a")
    said = deed("handoff", "show", path.stem)
    gone = "this ledger has no such reasoning: it belongs to another ledger, or was never recorded"
    assert f"Reasoning 000000000000: {gone}\n" in said
    assert f"Reasoning {ref[7:19]} by a, fidelity " in said
    assert gone in deed("next", "--as", rob)
    assert refs_of(deed, path.stem) == [ELSEWHERE, ref]
    assert deed("handoff", "render", path.stem).encode() == path.read_bytes()
