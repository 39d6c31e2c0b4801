"""The compressor: makes briefs of reasoning graphs (DESIGN §9).

``compress`` is the default, deterministic and without any model::

    from consumers.reasoning.compressor import compress
    from projections.briefs.prompt import TransferLevel, to_context_prompt

    brief = compress(memory, TransferLevel.MINIMAL)
    print(to_context_prompt(brief).prompt, brief.fidelity.value)
"""

from __future__ import annotations

from consumers.reasoning.compressor.compress import COMPRESSOR_NAME, COMPRESSOR_VERSION, compress

__all__ = ["COMPRESSOR_NAME", "COMPRESSOR_VERSION", "compress"]
