r"""Handoffs as markdown files (seed 002, v1 and v2; DESIGN §10).

    >>> meta = b"## Meta\n- Status: approved, go\n- From: al\n- To: bo\n"
    >>> file = parse(b"# Handoff: Fix it\n\n" + meta + b"\n## Tasks\n- [ ] look\n")
    >>> file.format, file.title, file.status.word, [task.text for task in file.tasks]
    ('handoff/v2', 'Fix it', 'approved', ['look'])
    >>> after = render(file, Progress(status="in_progress", tasks={0: True}))
    >>> print(after.decode().split("## Meta\n")[1])
    - Status: in_progress, go
    - From: al
    - To: bo
    <BLANKLINE>
    ## Tasks
    - [x] look
    <BLANKLINE>
    >>> differences(file, parse(after)).tasks, differences(file, parse(after)).is_content_changed
    ({0: True}, False)

A *file* is its lines, each with its ending; what is read from it points into them, so that whatever is not changed
keeps its bytes. *Progress* is the status word, the ticks and the log; *content* is all else, and changing it asks
for a new approval. A *problem* is something odd on a line that does not keep the file from being read.

Refused was a markdown renderer for a parsed tree: none gives back spacing, bullets and line endings as they were.
"""

from __future__ import annotations

from consumers.handoffs.files.syntax.active_table import (
    ActiveTable,
    RowChange,
    TableRow,
    is_active_table,
    parse_table,
    render_table,
    row_id,
)
from consumers.handoffs.files.syntax.comparing import Edits, differences, with_progress_of
from consumers.handoffs.files.syntax.document import Checkbox, HandoffFile, LogLine, MetaEntry, Section, StatusText
from consumers.handoffs.files.syntax.lines import Problem, file_size_max_bytes
from consumers.handoffs.files.syntax.parsing import parse
from consumers.handoffs.files.syntax.rendering import Progress, render
from consumers.handoffs.files.syntax.revising import Revision, revise
from consumers.handoffs.files.syntax.writing import NewFile, write

__all__ = [
    "ActiveTable",
    "Checkbox",
    "Edits",
    "HandoffFile",
    "LogLine",
    "MetaEntry",
    "NewFile",
    "Problem",
    "Progress",
    "Revision",
    "RowChange",
    "Section",
    "StatusText",
    "TableRow",
    "differences",
    "file_size_max_bytes",
    "is_active_table",
    "parse",
    "parse_table",
    "render",
    "render_table",
    "revise",
    "row_id",
    "with_progress_of",
    "write",
]
