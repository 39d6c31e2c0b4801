"""Handoff files for tests: the protocol's own examples, and documents of parts that are hard to preserve."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from hypothesis import strategies as st

from deedbook.consumers.handoffs.files.syntax.writer import write
from deedbook.ledger.events.handoff import HandoffContent


def new(
    title: str = "x", sender: str = "a", to: str = "b", *, status: str = "pending", log: Any = (), **fields: Any
) -> bytes:
    """Return the file of new content."""
    return write(HandoffContent(title=title, to=to, **fields), sender, status=status, log=log)


PROPOSAL: Final = (Path(__file__).parent / "handoff-protocol-v2.md").read_bytes()
FIRST, SECOND = (
    (block.split("\n```")[0] + "\n").encode()
    for block in PROPOSAL.decode().split("```markdown\n")
    if block.startswith("# Handoff:")
)

HEADS: Final = (
    "# Handoff: Fix the cache",
    "# Handoff: <b>Bold</b> & `code` *and* [link](x)",
    "#  handoff：快取 ##",
    "# **Handoff: x**",
    "# Proposal: 疊加式模式",
    "Handoff: underlined\n===",
    "# Just a title",
)
METAS: Final = (
    "## Meta\n- Status: pending\n- From: kuro\n- To: claude-code",
    "## Meta\n\n* **Status**: approved（go）\n* **From:** kuro\n* To：bob\n* Reviewer: —\n* Created: 2026-02-12",
    "## meta:\nStatus: In Progress (since Monday)\nFrom: a\nTo: b\nDepends-on: 2026-02-12-x.md, y",
    "## Meta\n+ From: a\n+ From: b\n+ To: c\n+ Depends-on:\n  - one.md\n  - two.md",
    "Status: blocked, see log\nFrom: kuro\nTo: bob",
    f"## Meta\n- From: a\n- To: b\n- Reasoning: sha256:{'a' * 64}, jwt",
    f"From: a\nReasoning：\n  - `sha256:{'b' * 64}`\n  - blake3:{'c' * 64} # not this\n  - <x>\nTo: b",
    "## **Meta**\n- From: a\n- To: b\n- Status: —",
    "## Meta\n- From: a\n- To: b\n- Note: https://x.example/y:z\n- Status: done",
)
WITHOUT_META: Final = ("## Status: completed (2026-02-12)", "", "Some text.")
BOXES: Final = (
    "## Tasks\n- [ ] one\n- [x] two\n  - [X] nested\n\n    a note\n- [-] none\n- [ ]glued",
    "## 子任務\n1. [ ] first\n2. [x] second\nlazy text",
    "## Acceptance Criteria\n* [ ] tests pass\n* [ ] tests pass\n+ [x] 通過",
    "## Acceptance Criteria\n- [x] tests pass\n  - 2026-02-12 [bob] met: 12 passed\n  - a note\n1. [ ] docs\n   more",
    "## 验收标准\n\n+ [X] a\n\n  paragraph\n+ [ ] b\n- - [ ] c",
)
PIECES: Final = (
    "",
    "## Task\nDo it.\n\n### Deeper\nmore",
    "## 任務\n做這件事。  \n\ttab",
    *BOXES,
    "## Tasks\n```\n- [ ] in a fence\n```\n    - [ ] in indented code\n> - [ ] quoted",
    "## ACCEPTANCE CRITERIA:\n- plain\n- [ ]\n- [x]\tafter a tab",
    "## Context\n~~~ text\n## Log\n~~~\n\n---\n",
    "## Context\n<!-- - [ ] in a comment -->\n\\## escaped",
    "## Log\n- 2026-02-12 [kuro] made\n- 2026-02-13T01:02:03Z [bob] went on\n  and on",
    "## Log\n\nnot a log line\n* 2026-02-12 [] nobody\n",
    "## 日誌",
    "## Other\n| a | b |\n|---|---|\n| 1 | 2 |",
    "## Open\n```ts\nconst x = 1",
    "## Open\n<!-- never closed",
    "Ã©tÃ© \ufffd and \u2028 and \x0b and \x85",
    "- [ ] a box in no section",
    "# Another title",
    "[ref]: /url",
)


@st.composite
def documents(draw: st.DrawFn, *, has_boxes: bool = False) -> bytes:
    """Draw a document of pieces, with any line endings, with or without a byte order mark and a newline at the end."""
    head = draw(st.sampled_from(HEADS))
    metas = (*METAS, *WITHOUT_META) if "Proposal" in head else METAS
    parts = [head, draw(st.sampled_from(metas))]
    if has_boxes:
        parts += [draw(st.sampled_from(BOXES))]
    parts += [*draw(st.lists(st.sampled_from(PIECES), max_size=6)), draw(st.sampled_from(("## Log", "## Task\ntext")))]
    gap = draw(st.sampled_from(["\n\n", "\n", "\n \n", "\n\n\n"]))
    text = gap.join(parts) + draw(st.sampled_from(["", "\n", "\n\n", "  "]))
    endings = draw(st.sampled_from([["\n"], ["\r\n"], ["\r"], ["\n", "\r\n"], ["\r", "\n", "\r\n"]]))
    lines = text.split("\n")
    joined = "".join(line + endings[at % len(endings)] for at, line in enumerate(lines[:-1])) + lines[-1]
    return (b"\xef\xbb\xbf" if draw(st.booleans()) else b"") + joined.encode()
