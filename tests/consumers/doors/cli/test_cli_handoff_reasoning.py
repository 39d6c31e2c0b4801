"""The reasoning behind a handoff: named by who signs, read by who receives, and whatever became of it is said."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from calling import Baton

    Fresh = Callable[[str], str]

PARTIES = ("--to", "b", "--reviewer", "rita", "--title", "Expire tokens", "--as", "a")
ELSEWHERE = "sha256:" + "0" * 64


def reason(baton: Baton, name: str) -> str:
    """Let a reason until a conclusion, and return the ref of that."""
    baton("reasoning", "start", "--id", name, "--task", f"Why do the tokens of {name} never expire?", "--as", "a")
    seen = ["--content", f"check() of {name} never reads their age", "--evidence", "src/auth.py:4"]
    baton("reasoning", "step", name, "--type", "observation", *seen, "--as", "a")
    baton("reasoning", "conclude", name, "--conclusion", f"Compare the age in {name}", "--as", "a")
    return ref_of(baton, name)


def ref_of(baton: Baton, name: str) -> str:
    found: str = baton.data("reasoning", "show", name)["ref"]
    return found


def refs_of(baton: Baton, name: str, of: str = "reasoning_refs") -> list[str]:
    refs: list[str] = baton.data("handoff", "show", name)[of]
    return refs


def test_a_reasoning_is_named_by_its_id_a_ref_or_the_beginning_of_one(baton: Baton, fresh: Fresh) -> None:
    ref, other = reason(baton, fresh("r")), reason(baton, own := fresh("r"))
    named = ["--reasoning", own, "--reasoning", ref[7:19], "--reasoning", ref]
    baton("handoff", "create", "--id", name := fresh("h"), *PARTIES, *named)
    assert refs_of(baton, name) == [other, ref]
    assert f"- Reasoning: {other}, {ref}\n" in baton("handoff", "render", name)
    baton("handoff", "amend", name, "--reasoning", ref, "--as", "a")
    assert refs_of(baton, name) == [ref]
    baton("handoff", "amend", name, "--reasoning", "none", "--as", "a")
    assert refs_of(baton, name) == []


def test_what_is_signed_is_the_version_of_that_moment(baton: Baton, fresh: Fresh) -> None:
    baton("reasoning", "start", "--id", own := fresh("r"), "--task", "why?", "--as", "a")
    baton("reasoning", "step", own, "--type", "observation", "--content", "it is so", "--as", "a")
    ref = ref_of(baton, own)
    baton("handoff", "create", "--id", name := fresh("h"), *PARTIES, "--reasoning", own)
    baton("reasoning", "conclude", own, "--conclusion", "because", "--as", "a")
    assert refs_of(baton, name) == [ref] != [ref_of(baton, own)]


@pytest.mark.parametrize("named", ["nothere", ELSEWHERE[:30], "sha256:xyz", "", "../r"])
def test_what_names_no_reasoning_is_refused_before_it_is_signed(baton: Baton, fresh: Fresh, named: str) -> None:
    size = baton.size()
    baton.refuses("NOT_FOUND", "handoff", "create", "--id", fresh("h"), *PARTIES, "--reasoning", named)
    assert baton.size() == size


@pytest.mark.served
def test_a_return_brings_the_reasoning_behind_the_result(baton: Baton, fresh: Fresh) -> None:
    ref, result = reason(baton, fresh("r")), reason(baton, own := fresh("r"))
    baton("handoff", "create", "--id", name := fresh("h"), *PARTIES, "--reasoning", ref)
    baton("handoff", "approve", name, "--as", "rita", *baton.as_read(name))
    baton("handoff", "claim", name, "--as", "b")
    baton("handoff", "complete", name, "--reasoning", own, "--as", "b")
    assert (refs_of(baton, name), refs_of(baton, name, "result_refs")) == ([ref], [result])
    (waiting,) = [one for one in baton.data("next", "--as", "rita")["items"] if one["id"] == name]
    assert waiting["reasoning_refs"] == [result, ref]
