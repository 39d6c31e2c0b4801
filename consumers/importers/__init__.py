"""Imports records of other tools: reads files, and makes events of what they hold.

    >>> from deedbook.consumers.importers.reasoning import extensions_of, read_reasoning_file
    >>> line = b'{"task": "Why?", "conclusion": "So.", "steps": [{"step": 1, "type": "conclusion", "content": "So."}]}'
    >>> [graph] = read_reasoning_file(line)
    >>> [type(data).__name__ for data in extensions_of(graph.memory)]
    ['ReasoningStarted', 'ReasoningExtended', 'ReasoningConcluded']

Nothing is dropped silently: fields that the ledger does not have are unmapped and returned by path.
"""
