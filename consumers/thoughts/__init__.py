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

from typing import TYPE_CHECKING

from ledger.front_door import front_door

if TYPE_CHECKING:
    from consumers.thoughts.driver import Solved as Solved
    from consumers.thoughts.driver import Spoken as Spoken
    from consumers.thoughts.driver import solve as solve
    from consumers.thoughts.messages import Outgoing as Outgoing
    from consumers.thoughts.messages import outgoing as outgoing
    from consumers.thoughts.messages import respond as respond
    from consumers.thoughts.orchestrating import TaskOptions as TaskOptions
    from consumers.thoughts.running import resume_task as resume_task
    from consumers.thoughts.running import run_task as run_task
    from consumers.thoughts.search import Action as Action
    from consumers.thoughts.search import next_action as next_action
    from consumers.thoughts.settings import TASK_TYPES as TASK_TYPES
    from consumers.thoughts.settings import Overrides as Overrides
    from consumers.thoughts.settings import TaskSettings as TaskSettings
    from consumers.thoughts.settings import read_task_type as read_task_type
    from consumers.thoughts.settings import search_config as search_config
    from consumers.thoughts.thinking import Debugging as Debugging
    from consumers.thoughts.thinking import Game24 as Game24
    from consumers.thoughts.thinking import LlmThinker as LlmThinker
    from consumers.thoughts.thinking import Planning as Planning
    from consumers.thoughts.thinking import Thinker as Thinker
    from consumers.thoughts.tree import TreeState as TreeState
    from consumers.thoughts.tree import advance as advance
else:
    __getattr__, __dir__ = front_door(__name__)
