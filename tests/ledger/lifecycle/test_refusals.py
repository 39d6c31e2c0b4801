"""A refusal by a rule has a code, details, and a sentence about the next step."""

from __future__ import annotations

from typing import Any

import pytest
from machine_runner import refuse

WAITS = 'alice handoff.created h1 to=bob reviewer=rita depends_on=["h3"]'
CYCLE = [f'alice handoff.created h{number} to=bob reviewer=rita depends_on=["h{number + 1}"]' for number in range(60)]


@pytest.mark.parametrize(
    ("lines", "code", "details"),
    [
        (["superseded", "bob handoff.completed h1"], "TRANSITION_NOT_ALLOWED", {"status": "superseded"}),
        (["lapsed", "bob handoff.completed h1"], "TRANSITION_NOT_ALLOWED", {"status": "in_progress"}),
        (["in_progress", "bob handoff.completed h1"], "CRITERIA_OPEN", {"criterion_numbers": [1, 2]}),
        (["checked", "bob handoff.completed h1"], "CRITERIA_OPEN", {"criterion_numbers": [2]}),
        (["claimed_in_its_file", "bob handoff.completed h1"], "CRITERIA_OPEN", {"criterion_numbers": [1, 2]}),
        (["pending", "alice handoff.superseded h1 by=h2"], "NOT_FOUND", {"by": "h2"}),
        (["imported", "eve record.imported h1 as=handoff.created"], "NOT_AUTHORIZED", {"owner": "scribe"}),
        (
            [WAITS, "rita handoff.approved h1 version=current", "bob handoff.claimed h1"],
            "DEPENDENCY_MISSING",
            {"on": "h3"},
        ),
        (
            [
                WAITS,
                "rita handoff.approved h1 version=current",
                "alice handoff.created h3 to=bob reviewer=rita",
                "bob handoff.claimed h1",
            ],
            "DEPENDENCY_PENDING",
            {"on": "h3", "status": "pending"},
        ),
        (["humans_approved", 'hugo handoff.amended h1 to=bob depends_on=["h1"]'], "DEPENDENCY_CYCLE", ["h1", "h1"]),
        (
            [
                'alice handoff.created a to=bob reviewer=rita depends_on=["b"]',
                'alice handoff.created b to=bob reviewer=rita depends_on=["x", "c"]',
                'alice handoff.created x to=bob reviewer=rita depends_on=["y"]',
                'alice handoff.created c to=bob reviewer=rita depends_on=["y", "a"]',
            ],
            "DEPENDENCY_CYCLE",
            ["c", "a", "b", "c"],
        ),
        (
            [*CYCLE, 'alice handoff.created h60 to=bob reviewer=rita depends_on=["h0"]'],
            "DEPENDENCY_CYCLE",
            ["h60", *(f"h{number}" for number in range(61))],
        ),
    ],
)
def test_details_of_a_refusal_name_what_is_in_the_way(
    lines: list[str], code: str, details: dict[str, Any] | list[str]
) -> None:
    refused = refuse("handoff", *lines)
    assert refused.code == code
    assert refused.details == (details if isinstance(details, dict) else {"cycle": details})
    assert isinstance(details, dict) or " → ".join(details) in refused.message


@pytest.mark.parametrize(
    ("given", "when", "message"),
    [
        (
            "verified",
            "bob handoff.criterion_checked h1 position=0",
            "h1 is verified: nobody can tick its criteria any more",
        ),
        (
            "pending",
            "bob handoff.claimed h1",
            "h1 is pending: nobody can claim it now; its reviewer can approve or reject it",
        ),
        ("pending", "bob handoff.cancelled h1 reason=no", "h1: only alice or rita may cancel it, not bob"),
        ("pending", "alice handoff.approved h1 version=current", "alice is the sender of h1 and may not approve it"),
        (
            "checked",
            "bob handoff.criterion_checked h1 position=0",
            "criterion 1 of h1 is checked: this changes nothing",
        ),
    ],
)
def test_refusal_is_a_plain_sentence_without_kinds(given: str, when: str, message: str) -> None:
    refused = refuse("handoff", given, when)
    assert refused.message.startswith(message)
    assert "handoff." not in refused.message


@pytest.mark.parametrize(
    ("given", "when"),
    [
        ("pending", "rita handoff.approved h1 version=none"),
        ("completed", "rita handoff.verified h1 result=none"),
    ],
)
def test_wrong_version_is_named_beside_the_present_one(given: str, when: str) -> None:
    details = refuse("handoff", given, when).details
    present = details.get("version", details.get("result"))
    assert details["named"] == "sha256:" + "0" * 64 != present


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["imported", "eve record.imported h1 as=handoff.created"], "only scribe may import it again"),
        (
            ["pending", "alice handoff.amended h1 to=bob reviewer=ruth"],
            "deed handoff amend h1 --reviewer OTHER --as rita",
        ),
        (["pending", "rita/session handoff.approved h1 version=current"], "sign it with the identity key"),
        *(
            (
                [
                    "scribe record.imported h1 as=handoff.created to=bob",
                    f"{author} handoff.approved h1 version=current",
                ],
                "scribe must name a reviewer with `deed handoff amend h1 --reviewer OTHER`",
            )
            for author in ("scribe", "eve")
        ),
    ],
)
def test_refusal_says_who_may_go_on_and_how(lines: list[str], words: str) -> None:
    assert words in refuse("handoff", *lines).message


def test_owner_of_a_session_is_named() -> None:
    assert refuse("session", "open", "bob finding.logged s1").details == {"name": "bob", "allowed": ["alice"]}


def test_circle_of_steps_is_named() -> None:
    steps = 'alice reasoning.extended g1 steps=[4,5] dependencies={"4":[5],"5":[4]}'
    cycle = refuse("reasoning", "open", steps).details["cycle"]
    assert cycle[0] == cycle[-1]
    assert set(cycle) == {4, 5}
