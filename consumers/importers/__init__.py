"""What comes into a ledger from elsewhere: files of reasoning graphs, and the events they become.

    >>> from deedbook.consumers.importers.reasoning import extensions_of, read_reasoning_file
    >>> line = b'{"task": "Why?", "conclusion": "So.", "steps": [{"step": 1, "type": "conclusion", "content": "So."}]}'
    >>> [graph] = read_reasoning_file(line)
    >>> [type(data).__name__ for data in extensions_of(graph.memory)]
    ['ReasoningStarted', 'ReasoningExtended', 'ReasoningConcluded']

Nothing is dropped in silence: a field that the ledger does not have is returned as unmapped, with its path.
"""
