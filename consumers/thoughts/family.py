"""Tree of Thoughts as a family: all that Deedbook knows of it begins here. Other families are registered alike."""

from __future__ import annotations

from typing import Final

from deedbook.ledger.families import FORMAT, Family

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
    kinds={f"tot.{kind}": f"deedbook.ledger.events.tot:{data}" for kind, data in _KINDS.items()},
    rules="deedbook.ledger.lifecycle.tot:RULES",
)
