"""Thinkers: what thinks behind the agents of a Tree-of-Thoughts search (seed 003; DESIGN §12).

    >>> from consumers.thoughts.thinking import Game24
    >>> from ledger.events.tot import GenerationContext, ThoughtNode
    >>> problem = "用4、9、10、13得到24"
    >>> root = ThoughtNode(id="root", depth=0, content=problem)
    >>> said = Game24().generate([root], "sequential_proposal", 2, GenerationContext(problem=problem))
    >>> [candidate.content for candidate in said.candidates]
    ['13 - 10 = 3, 剩余: 3, 4, 9', '13 + 10 = 23, 剩余: 4, 9, 23']

Three are programs whose answers can be checked (``Game24``, ``Planning``, ``Debugging``); ``LlmThinker`` asks any
endpoint that speaks OpenAI's chat completions. All keep the protocol ``Thinker`` and return a ``Failure`` for what they
cannot do.
"""

from typing import TYPE_CHECKING

from ledger.front_door import front_door

if TYPE_CHECKING:
    from consumers.thoughts.thinking.debugging import Debugging as Debugging
    from consumers.thoughts.thinking.game24 import Game24 as Game24
    from consumers.thoughts.thinking.llm import LlmThinker as LlmThinker
    from consumers.thoughts.thinking.planning import Planning as Planning
    from consumers.thoughts.thinking.protocol import Path as Path
    from consumers.thoughts.thinking.protocol import Thinker as Thinker
else:
    __getattr__, __dir__ = front_door(__name__)
