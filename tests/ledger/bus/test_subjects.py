"""Each part of a subject is checked or encoded."""

from __future__ import annotations

from base64 import urlsafe_b64decode

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from deedbook.ledger.bus import subjects
from deedbook.ledger.errors import Refused

L = "0123456789abcdef0123456789abcdef"


@given(st.text(max_size=100))
def test_stream_token_is_a_safe_subject_token_for_any_name(stream: str) -> None:
    name = stream.encode("utf-8", "ignore").decode()
    token = subjects.stream_token(name)
    assert len(token) == 22
    assert not set(token) & set(".*> =\r\n")
    assert urlsafe_b64decode(token + "==") == blake3(name.encode()).digest()[:16]


def test_subjects_are_those_of_the_published_contract() -> None:
    token = subjects.stream_token("handoff/x")
    assert subjects.submit_subject(L, "alice") == f"deedbook.{L}.submit.alice"
    assert subjects.read_subject(L, "alice", "range") == f"deedbook.{L}.read.alice.range"
    assert (
        subjects.event_subject(L, "handoff.completed", "handoff/x") == f"deedbook.{L}.event.handoff.completed.{token}"
    )
    assert subjects.live_subject(L) == f"deedbook.{L}.live.>"
    assert subjects.live_subject(L, "handoff.completed") == f"deedbook.{L}.live.handoff.completed.*"
    assert subjects.live_subject(L, "handoff.completed", "handoff/x") == f"deedbook.{L}.live.handoff.completed.{token}"
    assert subjects.live_subject(L, stream="handoff/x") == f"deedbook.{L}.live.*.*.{token}"
    assert subjects.live_subject(L, "x.deploy.step_done.late") == f"deedbook.{L}.live.x.deploy-step_done-late.*"
    assert subjects.checkpoint_subject(L) == f"deedbook.{L}.checkpoint"
    assert subjects.retired_subject(L, 2) == f"deedbook.{L}.retired.2"
    assert subjects.log_stream_name(L, 1) == f"DEEDBOOK_{L}_1"
    assert subjects.inbox_prefix("alice") == "_INBOX_alice"


def test_received_subjects_give_the_verb_back() -> None:
    assert subjects.read_verb(subjects.read_subject(L, "alice", "handoff.list")) == "handoff.list"


@pytest.mark.parametrize("agent", ["", "*", ">", "a.b", "A", "a*", "-a", "a b", "a\r\nPUB x", "a" * 64, "ä", "a\n"])
def test_agent_names_that_could_mean_more_are_refused(agent: str) -> None:
    with pytest.raises(Refused, match="cannot be part of a subject") as refused:
        subjects.submit_subject(L, agent)
    assert refused.value.code == "INVALID_FORMAT"
    with pytest.raises(Refused):
        subjects.inbox_prefix(agent)


@pytest.mark.parametrize(
    "kind", ["", "handoff", "handoff.*", "handoff.>", "a.b.c", "a..b", "Handoff.completed", "a.b\n"]
)
def test_kinds_that_are_not_two_words_are_refused(kind: str) -> None:
    with pytest.raises(Refused):
        subjects.event_subject(L, kind, "s")
    with pytest.raises(Refused):
        subjects.live_subject(L, kind)


@pytest.mark.parametrize("ledger", ["", "*", L.upper(), L[:-1], L + "0", L[:-1] + "\n"])
def test_ledger_ids_are_32_hex_digits(ledger: str) -> None:
    with pytest.raises(Refused):
        subjects.checkpoint_subject(ledger)
    with pytest.raises(Refused):
        subjects.log_stream_name(ledger, 1)


@pytest.mark.parametrize("verb", ["", "*", "range.>", "a..b", ".a", "a."])
def test_verbs_that_could_mean_more_are_refused(verb: str) -> None:
    with pytest.raises(Refused):
        subjects.read_subject(L, "alice", verb)


def test_generations_count_from_one() -> None:
    with pytest.raises(Refused):
        subjects.log_stream_name(L, 0)
