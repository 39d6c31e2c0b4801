"""The compressor: makes briefs of reasoning graphs.

``compress`` is the default, deterministic and without any model::

from consumers.reasoning.compressor.compress import compress
from projections.briefs.prompt import TransferLevel, to_context_prompt

brief = compress(memory, TransferLevel.MINIMAL) print(to_context_prompt(brief).prompt, brief.fidelity.value)
"""
