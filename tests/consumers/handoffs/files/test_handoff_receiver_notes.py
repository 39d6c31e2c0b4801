"""The section Receiver Notes of a file: the sender's knowledge for the receiver is read and written unchanged."""

from __future__ import annotations

import pytest
from handoff_texts import new

from deedbook.consumers.handoffs.agent_names import AgentNames
from deedbook.consumers.handoffs.files.mapping import content_of_file
from deedbook.consumers.handoffs.files.syntax.comparison import differences, revise
from deedbook.consumers.handoffs.files.syntax.parser import parse
from deedbook.consumers.handoffs.files.syntax.writer import Progress, render, write
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.handoff import HandoffContent, ReceiverNotes

NOTES = ReceiverNotes(
    tested_by=["pytest -q tests/test_auth.py"],
    touches=["src/auth.py", "src/登录.py"],
    traps=["the installed command is another checkout's", "- [ ] looks like a box: it is none", "# no heading"],
    tried=["a cache: it hid the fault"],
)
FILE = new(notes=NOTES, context="Why.")


def test_a_new_file_has_them_before_its_context_and_reads_back() -> None:
    assert "## Receiver Notes\n- Tested-by: pytest -q tests/test_auth.py\n- Touches: src/auth.py\n" in FILE.decode()
    assert FILE.index(b"## Receiver Notes") < FILE.index(b"## Context")
    assert parse(FILE).notes == NOTES
    assert content_of_file(parse(FILE), template=None, agents=AgentNames()).notes == NOTES
    assert b"Receiver" not in new()


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
def test_spelled_otherwise_they_mean_the_same_and_keep_their_bytes(ending: bytes) -> None:
    head = "# Handoff: x\n\n## Meta\n- From: a\n- To: b\n\n"
    text = f"{head}## 接手須知\n* trap：one\n  that goes on\n- TRIED: two\n\nfree words\n"
    content = text.encode().replace(b"\n", ending)
    file = parse(content)
    assert file.notes == ReceiverNotes(traps=["one that goes on"], tried=["two"])
    assert [problem.line for problem in file.problems if "Receiver Notes" in problem.text] == [12]
    assert render(file, Progress()) == content == revise(file, {"notes": file.notes})


def test_an_amendment_rewrites_the_section_alone_and_an_edit_is_seen() -> None:
    fewer = ReceiverNotes(tried=["a cache: it hid the fault"])
    revised = revise(parse(FILE), {"notes": fewer})
    assert parse(revised).notes == fewer
    assert differences(parse(FILE), parse(revised)).fields == ("notes",)
    assert parse(revise(parse(new()), {"notes": NOTES})).notes == NOTES


def test_what_would_not_come_back_is_refused_by_name() -> None:
    with pytest.raises(Refused, match="notes cannot be written"):
        write(HandoffContent(title="x", to="b", notes=ReceiverNotes(traps=[" "])), "a")
