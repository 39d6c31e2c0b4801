r"""Handoffs as markdown files.

    >>> from deedbook.consumers.handoffs.files.syntax.comparison import differences
    >>> from deedbook.consumers.handoffs.files.syntax.parser import parse
    >>> from deedbook.consumers.handoffs.files.syntax.writer import Progress, render
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

A *file* is its lines, each with its ending. Every element that is read points into them, so unchanged parts keep their
bytes. *Progress* is the status word, the ticks and the log. *Content* is all else; changing it requires a new approval.
A *problem* is a fault on a line that does not prevent the file from being read.

Rejected: a markdown renderer for a parsed tree, because none restores spacing, bullets and line endings.
"""
