"""`deed handoff`: the table of its verbs."""

from __future__ import annotations

import click

from deedbook.consumers.interfaces.cli.verbs import Lazy, LazyGroup

VERBS = {
    "create": Lazy(
        "handoffs:create", "Create a handoff from the acting agent to NAME; it waits for its reviewer's approval."
    ),
    "amend": Lazy("handoffs:amend", "Change a handoff before work on it begins."),
    "approve": Lazy("handoffs:approve", "Approve this version before the work begins, as the reviewer."),
    "reject": Lazy("handoffs:reject", "Reject a handoff for good, as the reviewer."),
    "claim": Lazy("handoffs:claim", "Start work on a handoff that is approved and whose dependencies are done."),
    "check": Lazy("handoffs:check", "Tick tasks and acceptance criteria."),
    "ask-waiver": Lazy(
        "handoffs:ask_waiver",
        "Ask the reviewer to waive a criterion that cannot be met or checked here.",
    ),
    "waive": Lazy("handoffs:waive", "Waive an acceptance criterion, as the reviewer."),
    "log": Lazy("handoffs:log", "Add a line to a handoff's log."),
    "block": Lazy("handoffs:block", "Report that the work cannot continue, and why."),
    "unblock": Lazy("handoffs:unblock", "Report that the work can continue."),
    "release": Lazy("handoffs:release", "Return claimed work, so that somebody else can claim it."),
    "complete": Lazy(
        "handoffs:complete", "Report that the work is done; every acceptance criterion must be checked or waived."
    ),
    "verify": Lazy("handoffs:verify", "Accept the result after the work is completed, as the reviewer."),
    "request-changes": Lazy("handoffs:request_changes", "Send completed work back, as the reviewer."),
    "cancel": Lazy("handoffs:cancel", "Cancel the handoff."),
    "supersede": Lazy("handoffs:supersede", "Replace this handoff by another one."),
    "why": Lazy("handoffs:why", "Explain in one sentence why a handoff is not ready, or say that it is."),
    "import": Lazy("handoff_files:import_", "Import handoff files, proposals and active.md tables."),
    "render": Lazy("handoff_files:render", "Print the markdown file of a handoff."),
    "watch": Lazy("handoff_files:watch", "Synchronize a folder of handoff files with the ledger."),
    "graph": Lazy("handoff_graph:graph", "Draw dependencies: a tree, Mermaid or DOT."),
    "list": Lazy("handoff_list:list_", "List handoffs, newest first, or show a board."),
    "show": Lazy("handoff_show:show", "Show one handoff: its state and why, tasks, criteria, history."),
}


@click.group(
    cls=LazyGroup, lazy=VERBS, aliases={"new": "create", "close": "complete", "link": "create", "done": "complete"}
)
def handoff() -> None:
    """Hand work over: create, approve, claim, check, complete, verify."""
