"""The compressor: makes briefs of reasoning graphs.

brief = compress(memory, TransferLevel.MINIMAL)
print(to_context_prompt(brief).prompt, brief.fidelity.value)
"""
