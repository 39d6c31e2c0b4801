"""Many callers, one writer: each caller gets the answer to its own submission; a refusal affects no other caller."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from deedbook.ledger.admission import committer as group_commit
from deedbook.ledger.admission.check import check
from deedbook.ledger.admission.committer import Committer
from deedbook.ledger.client.author import Draft
from deedbook.ledger.errors import Refused, Unavailable
from deedbook.ledger.events.handoff import HandoffClaimed
from deedbook.ledger.events.session import FindingLogged, SessionStarted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from building import Ledger

    from deedbook.ledger.admission.decide import Accepted
    from deedbook.ledger.format.envelope import Submission


def started(ledger: Ledger, name: str, **fields: object) -> Submission:
    """Return the signed start of a session of alice."""
    return ledger.sign("alice", Draft(stream=f"session/{name}", data=SessionStarted(), **fields))  # type: ignore[arg-type]


class Halted:
    """A gate that blocks every submission until it is opened."""

    def __init__(self, ledger: Ledger) -> None:
        self.gate = ledger.gate
        self.is_open = threading.Event()
        self.groups: list[int] = []

    def admit(self, group: list[group_commit.Checked]) -> list[list[Accepted] | Refused]:
        self.groups.append(len(group))
        assert self.is_open.wait(30)
        return self.gate.admit(group)


@pytest.fixture
def halted(ledger: Ledger) -> Iterator[Halted]:
    """A halted gate. It is opened at the end of the test, so that its committer can close."""
    gate = Halted(ledger)
    yield gate
    gate.is_open.set()


def test_refused_submission_of_a_group_does_not_cost_the_others(ledger: Ledger) -> None:
    size = ledger.head()[0]
    group = [started(ledger, "a"), started(ledger, "b", expect=7), started(ledger, "c"), started(ledger, "a", expect=0)]
    one, two, three, four = ledger.gate.admit([check(submission) for submission in group])
    assert isinstance(one, list)
    assert isinstance(three, list)
    assert isinstance(two, Refused)
    assert isinstance(four, Refused)
    assert (one[0].index, three[0].index, ledger.head()[0]) == (size, size + 1, size + 2)
    assert {two.code, four.code} == {"STREAM_CONFLICT"}


def test_refused_submission_leaves_nothing_for_the_next_of_its_group_to_see(ledger: Ledger) -> None:
    half = ledger.sign(
        "alice",
        Draft(stream="session/a", data=SessionStarted()),
        Draft(stream="session/b", data=FindingLogged(finding="f")),
    )
    finding = ledger.sign("alice", Draft(stream="session/a", data=FindingLogged(finding="f")))
    answers = ledger.gate.admit([check(half), check(finding), check(started(ledger, "b"))])
    assert [type(answer) for answer in answers] == [Refused, Refused, list]


def test_sixty_four_threads_each_get_their_own_answers(ledger: Ledger) -> None:
    ledger.submit(ledger.sign("alice", *(Draft(stream=f"session/{n}", data=SessionStarted()) for n in range(64))))
    start = ledger.head()[0]

    def work(number: int) -> list[tuple[int, str]]:
        texts = [f"{number}: {count}" for count in range(6)]
        drafts = [Draft(stream=f"session/{number}", data=FindingLogged(finding=text)) for text in texts]
        bad = ledger.sign("alice", Draft(stream="session/none", data=FindingLogged(finding=str(number))))
        found = []
        for draft, text in zip(drafts, texts, strict=True):
            found.append((committer.submit(ledger.sign("alice", draft)).result(60)[0].index, text))
            with pytest.raises(Refused):
                committer.submit(bad).result(60)
        return found

    with Committer(ledger.gate) as committer, ThreadPoolExecutor(64) as threads:
        answers = [answer for answers in threads.map(work, range(64)) for answer in answers]
    assert sorted(index for index, _ in answers) == list(range(start, start + 64 * 6))
    for index, text in answers[::16]:
        assert ledger.event(index).data.finding == text


def test_contested_claim_is_won_once(ledger: Ledger) -> None:
    ledger.approve("h1", ledger.hand_over("h1"))
    claims = []
    for _ in range(16):
        ledger.clock.advance(1)
        claims.append(ledger.sign("bob", Draft(stream="handoff/h1", data=HandoffClaimed())))
    with Committer(ledger.gate) as committer:
        answers = [committer.submit(claim) for claim in claims]
    refusals = [answer.exception() for answer in answers if answer.exception() is not None]
    assert len(refusals) == 15
    assert {error.code for error in refusals if isinstance(error, Refused)} == {"ALREADY_CLAIMED"}


def test_what_waits_while_a_group_is_written_becomes_the_next_group(ledger: Ledger, halted: Halted) -> None:
    with Committer(halted) as committer:  # type: ignore[arg-type]  # a gate that can be halted
        answers = [committer.submit(started(ledger, f"{number}")) for number in range(20)]
        deadline = time.monotonic() + 30
        while sum(halted.groups) + committer._ready.qsize() < 20:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        halted.is_open.set()
        assert len({answer.result(30)[0].index for answer in answers}) == 20
    assert sum(halted.groups) == 20
    assert len(halted.groups) <= 3


def test_bad_bytes_are_answered_to_their_caller_alone(ledger: Ledger) -> None:
    with Committer(ledger.gate) as committer:
        bad = committer.submit(ledger.sign_bytes("alice", b"{"))
        good = committer.submit(started(ledger, "a"))
        assert isinstance(bad.exception(30), Refused)
        assert not good.result(30)[0].is_repeat


def test_closing_finishes_what_was_submitted_and_takes_nothing_more(ledger: Ledger) -> None:
    committer = Committer(ledger.gate)
    answers = [committer.submit(started(ledger, f"{number}")) for number in range(50)]
    committer.close()
    assert all(answer.done() for answer in answers)
    assert len({answer.result()[0].index for answer in answers}) == 50
    with pytest.raises(Unavailable) as refused:
        committer.submit(started(ledger, "late"))
    assert refused.value.code == "STORE_UNAVAILABLE"
    committer.close()


def test_queue_has_a_limit_and_is_free_again_when_it_was_answered(
    ledger: Ledger, halted: Halted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "submit_queue_max", 3)
    with Committer(halted) as committer:  # type: ignore[arg-type]  # a gate that can be halted
        waiting = [committer.submit(started(ledger, f"{number}")) for number in range(3)]
        with pytest.raises(Unavailable) as refused:
            committer.submit(started(ledger, "one too many"))
        assert (refused.value.code, refused.value.recoverable) == ("BUSY", True)
        halted.is_open.set()
        for answer in waiting:
            answer.result(30)
        assert committer.submit(started(ledger, "again")).result(30)


def test_caller_that_gives_up_does_not_stop_the_others(ledger: Ledger, halted: Halted) -> None:
    with Committer(halted) as committer:  # type: ignore[arg-type]  # a gate that can be halted
        answers = [committer.submit(started(ledger, f"{number}")) for number in range(8)]
        given_up = [answer.cancel() for answer in answers[::2]]
        halted.is_open.set()
        for answer, was_cancelled in zip(answers[::2], given_up, strict=True):
            if was_cancelled:
                with pytest.raises(CancelledError):
                    answer.result(30)
        for answer in answers[1::2]:
            answer.result(30)
        assert committer.submit(started(ledger, "again")).result(30)


def test_callers_in_a_loop_are_answered_refused_or_forgotten(ledger: Ledger, halted: Halted) -> None:
    async def call(committer: Committer) -> None:
        answers = [committer.submit_from_loop(started(ledger, f"{number}")) for number in range(8)]
        bad = committer.submit_from_loop(b"{")
        assert answers[3].cancel()
        halted.is_open.set()
        given = await asyncio.gather(*answers, return_exceptions=True)
        assert isinstance(given[3], asyncio.CancelledError)
        assert len({one[0].index for one in given if isinstance(one, list)}) == 7
        with pytest.raises(Refused):
            await bad

    async def leave(committer: Committer) -> None:
        committer.submit_from_loop(started(ledger, "nobody waits"))

    with Committer(halted) as committer:  # type: ignore[arg-type]  # a gate that can be halted
        asyncio.run(call(committer))
        asyncio.run(leave(committer))
        assert committer.submit(started(ledger, "again")).result(30)
        deadline = time.monotonic() + 30
        while committer._waiting and time.monotonic() < deadline:  # another thread may still have the submission
            time.sleep(0.001)
        assert committer._waiting == 0


def test_store_that_fails_is_told_to_everyone_of_the_group_and_work_goes_on(
    ledger: Ledger, halted: Halted, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_group: object) -> None:
        raise Unavailable("STORE_FULL", "full")

    halted.is_open.set()
    with Committer(halted) as committer:  # type: ignore[arg-type]  # a gate that can be halted
        monkeypatch.setattr(halted, "admit", broken)
        first, second = (committer.submit(started(ledger, name)).exception(30) for name in "ab")
        assert isinstance(first, Unavailable)
        assert isinstance(second, Unavailable)
        assert first is not second
        monkeypatch.undo()
        assert committer.submit(started(ledger, "a")).result(30)
