"""An agent's wait counts as one episode until it is interrupted, however often the notifier observes it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from deedbook.consumers.handoffs.notifier.episodes import EpisodeKey, OpenEpisode, WaitRecord, episodes, interrupted
from deedbook.consumers.handoffs.operations import ENDS
from deedbook.ledger.events import KINDS

KEYS = [
    EpisodeKey("handoff", name, agent, action)
    for name in ("h1", "h2")
    for agent in ("rita", "bob")
    for action in ("approve", "claim", "verify")
]
looks = st.lists(st.sets(st.sampled_from(KEYS)), max_size=12)


def waiting(key: EpisodeKey, title: str = "T") -> WaitRecord:
    return WaitRecord(key=key, title=title, status="pending")


@given(looks)
def test_every_wait_begins_once_and_ends_once_for_each_time_it_is_seen_to_begin(found: list[set[EpisodeKey]]) -> None:
    known: set[EpisodeKey] = set()
    begins: list[EpisodeKey] = []
    for now in found:
        begun, ended = episodes(frozenset(known), [waiting(key) for key in now])
        assert {one.key for one in begun} == now - known
        assert set(ended) == known - now
        begins += [one.key for one in begun]
        known = now
    for key in KEYS:
        risen = sum(key in after and key not in before for before, after in zip([set(), *found], found, strict=False))
        assert begins.count(key) == risen


def test_changed_title_or_status_is_no_new_episode() -> None:
    key = KEYS[0]
    assert episodes({key}, [waiting(key, "another title")]) == ([], [])


def test_wait_that_two_answers_name_begins_once() -> None:
    begun, _ = episodes((), [waiting(KEYS[0]), waiting(KEYS[0])])
    assert len(begun) == 1


def test_event_ends_only_what_its_kind_ends_of_its_own_subject() -> None:
    known = {key: OpenEpisode("e", 10) for key in KEYS}
    assert interrupted(known, [(10, "handoff.claimed", "h1")]) == {
        key for key in KEYS if key.id == "h1" and key.action == "claim"
    }
    assert interrupted(known, [(10, "handoff.logged", "h1"), (11, "handoff.ready", "h1")]) == set()
    assert interrupted(known, [(10, "handoff.cancelled", "h2")]) == {key for key in KEYS if key.id == "h2"}


def test_amending_leaves_the_wait_for_an_approval_and_ends_the_others() -> None:
    known = {key: OpenEpisode("e", 10) for key in KEYS if key.id == "h1"}
    over = interrupted(known, [(10, "handoff.amended", "h1")])
    assert {key.action for key in known.keys() - over} == {"approve"}


def test_event_that_the_look_had_seen_ends_nothing() -> None:
    known = {KEYS[0]: OpenEpisode("e", 11)}
    assert interrupted(known, [(10, "handoff.approved", KEYS[0].id)]) == set()
    assert interrupted(known, [(11, "handoff.approved", KEYS[0].id)]) == {KEYS[0]}


def test_review_and_handoff_of_one_name_are_two_subjects() -> None:
    review = EpisodeKey("review", "h1", "rita", "review")
    known = {review: OpenEpisode("e", 0), EpisodeKey("handoff", "h1", "rita", "verify"): OpenEpisode("f", 0)}
    assert interrupted(known, [(1, "review.answered", "h1")]) == {review}


def test_only_kinds_that_exist_are_said_to_end_something() -> None:
    assert ENDS.keys() <= KINDS.keys()
