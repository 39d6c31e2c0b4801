"""A human's key in one browser session: opened with a passphrase for a limited time, then forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from building import Clock
from looking import PASSPHRASE, seal

from deedbook.consumers.interfaces.dashboard.signer import Signer, Trials
from deedbook.ledger.errors import Refused
from deedbook.ledger.home.trust import forget
from deedbook.ledger.limits import key_unlocked_max_s, passphrase_wait_max_s

if TYPE_CHECKING:
    from looking import Viewer

    from deedbook.ledger.format.identity import Key


class Opening:
    """A ledger's folder whose opening of keys is counted: the key derivation itself takes most of a second."""

    def __init__(self, viewer: Viewer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ledger = viewer.dashboard.ledger
        self.tries: list[str] = []
        self.clock = Clock(0)
        self.key = viewer.ledger.keys["rita"]
        seal(viewer.ledger)
        monkeypatch.setattr("deedbook.ledger.home.home.open_key", self.open_key)
        self.trials = Trials(lambda: self.clock.now_ms / 1000)
        self.signer = Signer("rita", self.trials)

    def open_key(self, _path: Any, passphrase: str | None = None) -> Key:
        self.tries.append(passphrase or "")
        if passphrase != PASSPHRASE:
            raise Refused("KEY_LOCKED", "this is not the passphrase of the key of rita")
        return self.key

    def refuses(self, passphrase: str) -> str:
        with pytest.raises(Refused) as refused:
            self.signer.author(self.ledger, passphrase)
        assert refused.value.code == "KEY_LOCKED"
        return refused.value.message


@pytest.fixture
def opening(viewer: Viewer, monkeypatch: pytest.MonkeyPatch) -> Opening:
    return Opening(viewer, monkeypatch)


def test_a_passphrase_serves_for_one_decision(opening: Opening) -> None:
    assert opening.signer.author(opening.ledger, PASSPHRASE).name == "rita"
    assert opening.signer.left_s == 0
    assert "type the passphrase" in opening.refuses("")


def test_what_was_unlocked_signs_until_its_time_is_over(opening: Opening) -> None:
    proof = opening.signer.unlock(opening.ledger, PASSPHRASE)
    assert opening.signer.left_s == key_unlocked_max_s
    opening.clock.advance(key_unlocked_max_s - 1)
    assert opening.signer.left_s == 1
    assert opening.signer.author(opening.ledger, "", proof).name == "rita"
    opening.clock.advance(1)
    assert opening.signer.left_s == 0
    assert "type the passphrase" in opening.refuses("")
    opening.signer.lock()


@pytest.mark.parametrize("proof", ["", "x", "é"])
def test_without_the_proof_what_is_unlocked_signs_nothing_and_is_locked(opening: Opening, proof: str) -> None:
    right = opening.signer.unlock(opening.ledger, PASSPHRASE)
    assert opening.signer.author(opening.ledger, PASSPHRASE, proof).name == "rita"
    assert opening.signer.left_s
    for one in (proof, right):
        with pytest.raises(Refused, match="type the passphrase"):
            opening.signer.author(opening.ledger, "", one)
    assert opening.signer._key is None


def test_what_was_locked_signs_no_more(opening: Opening) -> None:
    opening.signer.unlock(opening.ledger, PASSPHRASE)
    opening.signer.lock()
    assert (opening.signer.left_s, opening.signer._key) == (0, None)
    assert "type the passphrase" in opening.refuses("")


def test_the_key_is_forgotten_when_its_time_is_over_though_nobody_asks(
    opening: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deedbook.consumers.interfaces.dashboard.signer.key_unlocked_max_s", 0)
    opening.signer.unlock(opening.ledger, PASSPHRASE)
    end = opening.signer._end
    if end is not None:
        end.join(60)
    assert opening.signer._key is None


def test_a_key_that_is_opened_while_its_session_ends_is_not_kept(opening: Opening) -> None:
    opening.signer.end()
    opening.signer.unlock(opening.ledger, PASSPHRASE)
    assert (opening.signer.left_s, opening.signer._key) == (0, None)


def test_another_session_is_not_unlocked_with_it(opening: Opening) -> None:
    opening.signer.unlock(opening.ledger, PASSPHRASE)
    other = Signer("rita", opening.trials)
    assert other.left_s == 0
    with pytest.raises(Refused, match="type the passphrase"):
        other.author(opening.ledger, "")
    opening.signer.lock()


def test_a_wrong_passphrase_lets_every_session_wait_that_never_knew_the_right_one(opening: Opening) -> None:
    proven = Signer("rita", opening.trials)
    assert proven.author(opening.ledger, PASSPHRASE).name == "rita"
    opening.refuses("wrong")
    assert "wait 2 s" in opening.refuses(PASSPHRASE)
    with pytest.raises(Refused, match="wait 2 s"):
        Signer("rita", opening.trials).author(opening.ledger, PASSPHRASE)  # a new login gives no new attempts
    assert proven.author(opening.ledger, PASSPHRASE).name == "rita"  # a stranger's attempts lock out no human
    opening.clock.advance(2)
    opening.refuses("wrong again")
    assert "wait 4 s" in opening.refuses(PASSPHRASE)
    assert opening.tries == [PASSPHRASE, "wrong", PASSPHRASE, "wrong again"]
    opening.clock.advance(4)
    opening.signer.author(opening.ledger, PASSPHRASE)
    opening.refuses("wrong")
    assert "wait 2 s" in opening.refuses(PASSPHRASE)
    assert opening.trials.open(opening.ledger, "rita", PASSPHRASE) == opening.key


def test_the_wait_has_an_end(opening: Opening) -> None:
    for _ in range(12):
        opening.refuses("wrong")
        opening.clock.advance(passphrase_wait_max_s)
    assert len(opening.tries) == 12


def test_no_refusal_repeats_what_was_typed(opening: Opening) -> None:
    for typed in ("hunter2", PASSPHRASE + "!"):
        assert typed not in opening.refuses(typed)
        opening.clock.advance(passphrase_wait_max_s)


def test_a_key_that_lies_unsealed_is_not_used(viewer: Viewer) -> None:
    ledger = viewer.dashboard.ledger
    with pytest.raises(Refused, match="has no passphrase, so no browser may use it") as refused:
        Signer("rita", Trials()).author(ledger, "anything")
    assert "`deed key rotate --as rita`" in refused.value.message


def test_a_folder_that_is_trusted_no_more_signs_nothing(opening: Opening) -> None:
    opening.signer.unlock(opening.ledger, PASSPHRASE)
    forget(opening.ledger.settings.home)
    with pytest.raises(Refused) as refused:
        opening.signer.author(opening.ledger, "")
    assert refused.value.code == "NOT_TRUSTED"
    opening.signer.lock()
