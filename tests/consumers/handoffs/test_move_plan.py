"""The plan of a move: the messages that fit, the text for the next agent, and an id that follows from both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from harness_sessions import REQUEST, SECOND, claude_lines, write
from hypothesis import given
from hypothesis import strategies as st

from deedbook.consumers.handoffs.moves.plan import Parties, Records, fit, passing_on, plan_move, tokens_min
from deedbook.consumers.importers.transcripts.messages import SessionMessage, SessionTranscript, read_messages
from deedbook.consumers.sdk.quotation import Origin
from deedbook.projections.briefs.tokens import most_tokens

if TYPE_CHECKING:
    from pathlib import Path

PARTIES: Final = Parties("claude-code", "Claude Code", "ann", "codex", "Codex CLI", "ben")
ORIGIN: Final = Origin("ab12", "closed")
RECORDS: Final = Records("s1", ("found: <b>it</b> leaks",), ("task: Mend it",), ("r1",))


def transcript(*texts: str, **more: Any) -> SessionTranscript:
    messages = [SessionMessage("assistant" if number % 2 else "user", text) for number, text in enumerate(texts)]
    return SessionTranscript("claude-code", "s", "/shop", messages, more.get("left_out", {}), {}, {})


def test_plan_of_a_whole_session(tmp_path: Path) -> None:
    read = read_messages(write(tmp_path / "s.jsonl", claude_lines("/shop").rows), "claude-code")
    plan = plan_move(PARTIES, read, RECORDS, ORIGIN, 50_000)
    *said, last = plan.messages
    assert said == read.messages
    assert (last.role, last.text) == ("user", plan.brief)
    assert plan.title == f"Go on with: {REQUEST}"
    assert plan.changes.changed == ["2 tool calls told as text (Bash 2)"]
    assert plan.changes.left_out == [
        "1 thinking block: signed or encrypted for the model that thought it",
        "1 image: only text is moved",
        "1 harness text: the new harness writes its own",
    ]
    assert f"deed handoff claim {plan.id} --as ben" in plan.brief
    assert "<others " in plan.brief
    assert ("leaks" in plan.brief, "leaks" in plan.body) == (True, False), "the handoff has it as a note"
    assert "<b>" not in plan.brief, "a record cannot end the block around it"
    assert all(line in plan.brief for line in [*plan.changes.changed, *plan.changes.left_out])


def test_id_follows_from_what_is_new(tmp_path: Path) -> None:
    def id_of(*texts: str, records: Records = RECORDS) -> str:
        return plan_move(PARTIES, transcript(*texts), records, ORIGIN, 50_000).id

    assert id_of(REQUEST, "Yes.") == id_of(REQUEST, "Yes.")
    assert id_of(REQUEST, "Yes.") != id_of(REQUEST, "Yes.", "More")
    assert id_of(REQUEST, "Yes.") != id_of(REQUEST, "Yes.", records=RECORDS._replace(notes=("found: other",)))


def test_long_session_keeps_the_first_request_and_the_newest_messages() -> None:
    texts = [f"{number} {'word ' * 60}" for number in range(200)]
    plan = plan_move(PARTIES, transcript(*texts), Records(), ORIGIN, 2_000)
    kept = [int(message.text.split()[0]) for message in plan.messages[:-1]]
    assert kept == [0, *range(201 - len(kept), 200)]
    assert sum(most_tokens(message.text) for message in plan.messages[:-1]) <= 2_000
    assert plan.changes.left_out == [f"{200 - len(kept)} older messages: they do not fit into 2000 tokens"]


def test_request_like_a_command_gets_a_word_before_it_for_gemini() -> None:
    read = transcript(REQUEST, "Yes.", SECOND)
    plans = [plan_move(PARTIES._replace(new=new), read, Records(), ORIGIN, 9_000) for new in ("gemini", "codex")]
    assert [plan.messages[2].text for plan in plans] == [f"User: {SECOND}", SECOND]


def test_work_in_progress_is_named_with_the_commands_that_pass_it_on() -> None:
    handoff = {"id": "h1", "status": "in_progress", "title": "Mend", "from": "rita", "reviewer": "joe"}
    handoff |= {"tasks": [{"text": "read", "done": True}], "criteria": [{"text": "passes", "mark": "asked"}]}
    plan = plan_move(PARTIES, transcript(REQUEST), Records(handoffs=(handoff,)), ORIGIN, 9_000)
    assert "handoff h1 (in_progress): Mend\n  task 1 (done): read\n  criterion 1 (open): passes" in plan.brief
    assert passing_on(handoff, PARTIES) == [
        "deed handoff release h1 --as ann --reason 'moved to Codex CLI'",
        "deed handoff amend h1 --as rita --to ben",
        "deed handoff show h1 --as joe",
    ]


@given(st.lists(st.text(min_size=1, max_size=400), min_size=1, max_size=30), st.integers(tokens_min // 2, 3_000))
def test_what_fits_is_within_the_limit_and_nothing_is_lost_from_the_count(texts: list[str], tokens: int) -> None:
    messages = transcript(*texts).messages
    kept, dropped, was_cut = fit(messages, tokens, len)
    assert sum(len(message.text) + 8 for message in kept) <= tokens
    assert len(kept) + len(dropped) == len(messages)
    assert was_cut or [message for message in messages if message in kept] == kept or len({*texts}) < len(texts)
