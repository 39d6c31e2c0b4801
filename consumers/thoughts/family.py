"""Tree of Thoughts as a family: Deedbook finds all its parts through this module.

Other families are registered alike.
"""

from __future__ import annotations

from typing import Final

from deedbook.ledger.families import FORMAT, Command, Family, Page

_PACKAGE: Final = "deedbook.consumers.thoughts"
_KINDS: Final = {
    "started": "TotStarted",
    "decompose_task": "DecomposeTask",
    "decomposition_result": "DecompositionResult",
    "initialize_search": "InitializeSearch",
    "generate_thoughts": "GenerateThoughts",
    "generated_thoughts": "GeneratedThoughts",
    "nodes_added": "TotNodesAdded",
    "evaluate_thoughts": "EvaluateThoughts",
    "evaluation_results": "EvaluationResults",
    "nodes_marked": "TotNodesMarked",
    "backtracked": "TotBacktracked",
    "synthesize_solution": "SynthesizeSolution",
    "final_solution": "FinalSolution",
    "search_complete": "SearchComplete",
    "model_answered": "TotModelAnswered",
    "paused": "TotPaused",
    "resumed": "TotResumed",
    "error": "TotError",
    "log_written": "TotLogWritten",
}

FAMILY: Final = Family(
    format=FORMAT,
    name="tot",
    kinds={f"tot.{kind}": f"{_PACKAGE}.events:{data}" for kind, data in _KINDS.items()},
    rules=f"{_PACKAGE}.transition:RULES",
    codes=f"{_PACKAGE}.codes:CODES",
    views={"tot": 10},
    projections={"tot": f"{_PACKAGE}.views.fold:VIEW"},
    queries={
        "tot.list": f"{_PACKAGE}.views.queries:list_tasks",
        "tot.prove": f"{_PACKAGE}.views.queries:prove_task",
        "tot.show": f"{_PACKAGE}.views.queries:show_task",
        "tot.tree": f"{_PACKAGE}.views.queries:show_tree",
    },
    answers={"tot.list": "thought_tasks", "tot.prove": "thought_proof", "tot.tree": "thought_tree"},
    ids={"tot.tree": "task_id"},
    texts=f"{_PACKAGE}.views.texts:TEXTS",
    phrases={"tot.started": "began to search", "tot.search_complete": "finished the search"},
    timeline=("tot.started", "tot.search_complete"),
    lists={"task": "tot list"},
    newest={"tot_tasks": "started_index"},
    command=Command(
        f"{_PACKAGE}.interfaces.command:tot", "Search a tree of thoughts with six agents; show and prove it."
    ),
    pages=(
        Page("", f"{_PACKAGE}.interfaces.pages:tasks", menu="Thinking"),
        Page("/{id:path}", f"{_PACKAGE}.interfaces.pages:thoughts"),
    ),
    hooks={
        "entry": f"{_PACKAGE}.interfaces.tool:ENTRY",
        "slash_command": f"{_PACKAGE}.interfaces.files:SLASH_COMMAND",
        "erased_copies": f"{_PACKAGE}.interfaces.erased_copies:erase_logs",
        "demo": f"{_PACKAGE}.interfaces.demo:play",
    },
    templates=f"{_PACKAGE}.interfaces:templates",
)
