"""`deed report resume`: a fresh process continues from the reports, within its budget of tokens."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from reported_sessions import CACHE, begin, finish

from deedbook.consumers.sessions.resumed_text import left_out_lines
from deedbook.projections.briefs.tokens import count_tokens

if TYPE_CHECKING:
    from calling import Deed
    from reported_sessions import Fresh


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--resume-mode", "last", "--session-id", "s"], "takes no session id"),
        (["--resume-mode", "last_n", "--session-id", "s"], "takes no session id"),
        (["--count", "6"], "--count"),
        (["--count", "0"], "--count"),
        (["--detail-level", "most"], "--detail-level"),
        (["--resume-mode", "first"], "--resume-mode"),
    ],
)
def test_options_of_resume_that_contradict_each_other_are_refused(deed: Deed, given: list[str], said: str) -> None:
    assert said in deed.refuses("USAGE", "report", "resume", *given)["message"]
    assert (
        "give session_id" in deed.refuses("INVALID_FIELD", "report", "resume", "--resume-mode", "session_id")["message"]
    )


def test_findings_of_ten_kilobytes_are_kept_and_resume_stays_small(deed: Deed, fresh: Fresh) -> None:
    label, name = fresh("agent"), fresh("long")
    begin(deed, name, CACHE, "--ai-id", label)
    texts = ["缓存从不清除，因此总线会变慢。" * 220, "the cache never evicts and so the bus slows down " * 210]
    made = finish(deed, name, "--finding", texts[0], "--finding", texts[1])
    assert made["status"] == "success"
    for level, tokens in (("summary", 400), ("detailed", 800), ("full", 1250)):
        said = deed.run("report", "resume", "--ai-id", label, "--detail-level", level, "--json").out
        assert count_tokens(json.dumps(json.loads(said)["data"], ensure_ascii=False, separators=(",", ":"))) <= tokens
        left_out = json.loads(said)["data"]["sessions"][0]["left_out"]
        assert "findings" in left_out["shortened"]
        text = deed("report", "resume", "--ai-id", label, "--detail-level", level)
        assert f"see: {left_out['see']}" in text


def test_what_was_left_out_is_said_with_the_command_that_shows_it() -> None:
    left_out = {"key_findings": 2, "shortened": ["task", "next_steps"], "see": "deed report show s"}
    assert left_out_lines(left_out) == [
        "key findings: 2; shortened: task, next steps",
        "see: deed report show s",
    ]
