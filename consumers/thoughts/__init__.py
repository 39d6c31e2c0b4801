"""Tree of Thoughts: searching with thinkers, decided purely and told in messages (seed 003; DESIGN §12).

    >>> from consumers.thoughts import Game24, solve
    >>> found = solve("用4、9、10、13得到24", None, Game24())
    >>> found.solution.answer, found.solution.verification.is_valid
    ('(9 - (13 - 10)) × 4 = 24', True)
    >>> found.entries[-1].data.payload.stats.total_nodes
    36

The words used here: a *thinker* thinks (``consumers.thoughts.thinking``); a *state* is the tree that the log tells
(``advance``); an *action* is what the explorer does next, a pure function of the state (``next_action``), so an
explorer that was killed goes on as if it had not been; ``outgoing`` and ``respond`` put both into messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.front_door import front_door

if TYPE_CHECKING:
    from consumers.thoughts.driver import Solved, Spoken, solve
    from consumers.thoughts.messages import Outgoing, outgoing, respond
    from consumers.thoughts.orchestrating import TaskOptions
    from consumers.thoughts.running import resume_task, run_task
    from consumers.thoughts.search import Action, next_action
    from consumers.thoughts.settings import TASK_TYPES, Overrides, TaskSettings, read_task_type, search_config
    from consumers.thoughts.thinking import Debugging, Game24, LlmThinker, Planning, Thinker
    from consumers.thoughts.tree import TreeState, advance

__all__ = [
    "TASK_TYPES",
    "Action",
    "Debugging",
    "Game24",
    "LlmThinker",
    "Outgoing",
    "Overrides",
    "Planning",
    "Solved",
    "Spoken",
    "TaskOptions",
    "TaskSettings",
    "Thinker",
    "TreeState",
    "advance",
    "next_action",
    "outgoing",
    "read_task_type",
    "respond",
    "resume_task",
    "run_task",
    "search_config",
    "solve",
]

__getattr__ = front_door(
    __name__,
    {
        "driver": ("Solved", "Spoken", "solve"),
        "messages": ("Outgoing", "outgoing", "respond"),
        "orchestrating": ("TaskOptions",),
        "running": ("resume_task", "run_task"),
        "search": ("Action", "next_action"),
        "settings": ("TASK_TYPES", "Overrides", "TaskSettings", "read_task_type", "search_config"),
        "thinking": ("Debugging", "Game24", "LlmThinker", "Planning", "Thinker"),
        "tree": ("TreeState", "advance"),
    },
)
