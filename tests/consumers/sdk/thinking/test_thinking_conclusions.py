"""An answer that only announces a next step is no conclusion; an announcement at its end is not part of one."""

from __future__ import annotations

import pytest

from deedbook.consumers.sdk.thinking.extract import extract_reasoning

THINKING = "The pool is never closed.\n\nEvery request opens another."


@pytest.mark.parametrize(
    ("answer", "conclusion"),
    [
        ("Close the pool at shutdown.", "Close the pool at shutdown."),
        ("I found the leak. Let me verify it first:", "I found the leak."),
        ("The pool leaks.\n\nNow let me look at who opens it:\n", "The pool leaks."),
        ("池没有关闭。让我检查一下：", "池没有关闭。"),
        ("池沒有關閉。讓我檢查一下：", "池沒有關閉。"),
        ("Let me revert first:", ""),
        ("Okay, now I'll run the tests.", ""),
        ("Let them know that the pool leaks.", "Let them know that the pool leaks."),
        ("I need to close the pool.", "I need to close the pool."),
        ("We compared both. I'm going to recommend sqlite.", "We compared both. I'm going to recommend sqlite."),
        ("The cause:\nLet me check the lock", "The cause:\nLet me check the lock"),
        ("现在我确定是锁的问题。", "现在我确定是锁的问题。"),
        ("I will be out: the pool leaks, said Bob", "I will be out: the pool leaks, said Bob"),
    ],
)
def test_announcement_is_no_conclusion(answer: str, conclusion: str) -> None:
    extraction = extract_reasoning({"thinking": THINKING, "content": answer})
    assert extraction.memory.conclusion == conclusion
    assert ("conclusion" in extraction.absent) is (conclusion == "")


def test_what_somebody_else_assumes_is_no_assumption_of_the_author() -> None:
    thinking = (
        "It sees the count and assumes that no work is lost.\n\nI made a wrong assumption.\n\nI assume the logs rotate."
    )
    steps = extract_reasoning({"thinking": thinking, "content": "Done."}).memory.steps
    assert [step.type == "assumption" for step in steps] == [False, False, True]
