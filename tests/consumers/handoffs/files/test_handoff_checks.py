"""The problems of a handoff file before a merge, found by its signed entries."""

from __future__ import annotations

from typing import Any

import pytest

from deedbook.consumers.handoffs.files.checks import edit_problems, history_problems, state_problems
from deedbook.ledger.bundle.signed_file import SignedEntries

NOW = b"""# Handoff: Fix

## Meta
- Status: in_progress
- From: a
- To: b

## Tasks
- [x] look
- [ ] fix

## Acceptance Criteria
- [x] green
  - 2026-02-12 [b] met: 12 passed

## Log
- 2026-02-12 [a] created
"""


@pytest.mark.parametrize(
    ("old", "new", "line", "text"),
    [
        ("- [ ] fix", "- [x] fix", 10, "task 2 is ticked, and nobody signed that"),
        ("- [x] look", "- [ ] look", 9, "task 1 is not ticked, and the signed entries say it is"),
        ("12 passed", "13 passed", 14, "criterion 1 has evidence that nobody signed"),
        ("  - 2026-02-12 [b] met: 12 passed\n", "", 13, "criterion 1 lacks its signed evidence"),
        ("in_progress", "verified", 4, "the status is 'verified', and the signed entries say in_progress"),
        ("To: b", "To: c", 6, "To is not as it was signed"),
        ("- [ ] fix", "- [ ] fix it", 8, "Tasks is not as it was signed"),
        ("# Handoff: Fix", "# Handoff: Fix it", 1, "Title is not as it was signed"),
        ("[a] created", "[a] created\n- 2026-02-13 [b] done", 18, "no signed entry has this line of the log"),
        ("- 2026-02-12 [a] created\n", "", 16, "the log lacks a signed line: '2026-02-12 [a] created'"),
        ("## Log", "text\n\n## Log", 16, "this line is not as the signed entries give it"),
        ("in_progress\n", "in_progress ← not signed: x\n", 4, "this line is not as the signed entries give it"),
        ("# Handoff: Fix\n", "", 16, "the file has no title: begin it with '# Handoff: …' or '# Proposal: …'"),
    ],
)
def test_each_edit_is_named_with_its_line(old: str, new: str, line: int, text: str) -> None:
    content = NOW.decode().replace(old, new, 1).encode()
    assert content != NOW
    problems = [(problem.what, problem.line, problem.text) for problem in edit_problems("h.md", content, NOW, "do")]
    assert ("edited", line, text) in problems


def test_the_file_as_signed_has_no_problem_and_a_byte_more_has_one() -> None:
    assert edit_problems("h.md", NOW, NOW, "do") == []
    assert [problem.line for problem in edit_problems("h.md", NOW + b"\n", NOW, "do")] == [18]


def entries(size: int, **changed: bytes) -> SignedEntries:
    """Return the entries 0 to 2 of a log, some of them changed."""
    return SignedEntries("l", "handoff/h", size, {n: changed.get(f"n{n}", b"%d" % n) for n in range(3)})


@pytest.mark.parametrize(
    ("after", "text"),
    [
        (entries(3), None),
        (entries(9), None),
        (entries(2), "the base has a later head, and this file does not"),
        (entries(9, n1=b"x"), "the base has 1 of 3 entries, first entry 1, and this file does not"),
        (
            SignedEntries("l", "handoff/h", 9, {0: b"0"}),
            "the base has 2 of 3 entries, first entry 1, and this file does not",
        ),
    ],
)
def test_a_history_only_grows(after: SignedEntries, text: str | None) -> None:
    assert [problem.text for problem in history_problems("h", entries(3), after, "do")] == ([text] if text else [])


def handoff(status: str, **fields: Any) -> dict[str, Any]:
    """Return the fields of a handoff that decide."""
    digests = {"version": "sha256:" + "1" * 64, "result": "sha256:" + "2" * 64}
    return (
        {"id": "h", "status": status, "from": "a", "to": "b", "reviewer": "r", "claimed_status": None}
        | digests
        | fields
    )


@pytest.mark.parametrize(
    ("status", "verified", "completed", "approved"),
    [
        ("pending", "unapproved", "unapproved", "unapproved"),
        ("approved", "open", "open", None),
        ("in_progress", "open", "open", None),
        ("blocked", "open", "open", None),
        ("completed", "unverified", None, None),
        ("verified", None, None, None),
        ("rejected", "open", "open", "open"),
        ("cancelled", "open", "open", "open"),
        ("superseded", "open", "open", "open"),
    ],
)
def test_each_status_passes_or_says_what_is_left(
    status: str, verified: str | None, completed: str | None, approved: str | None
) -> None:
    for required, expected in (("verified", verified), ("completed", completed), ("approved", approved)):
        problems = state_problems("h.md", 4, handoff(status), required)  # type: ignore[arg-type]
        assert [problem.what for problem in problems] == ([expected] if expected else [])
        assert all(problem.is_unfinished for problem in problems)


def test_a_handoff_that_ended_otherwise_is_accepted_if_the_team_says_so() -> None:
    assert state_problems("h.md", 4, handoff("cancelled"), "verified", ["cancelled"]) == []
    assert state_problems("h.md", 4, handoff("rejected"), "verified", ["cancelled"]) != []


def test_an_imported_file_that_nobody_confirmed_is_not_approved() -> None:
    (problem,) = state_problems("h.md", 4, handoff("pending", claimed_status="verified", reviewer=None), "verified")
    assert "nobody here has confirmed the imported file" in problem.text
    assert problem.next == f"deed handoff approve h --version sha256:{'1' * 64} --as a"
