"""Briefs: short texts that replace a reasoning graph, and the measured share of the graph that they keep.

    >>> from deedbook.projections.briefs.fidelity import measure
    >>> from deedbook.projections.reasoning.memory import memory_from_dict
    >>> steps = [{"step": 1, "type": "observation", "content": "The disk is 97 % full"},
    ...          {"step": 2, "type": "conclusion", "content": "Delete the old exports"}]
    >>> graph = {"task": "Why is it slow?", "conclusion": "Delete the old exports",
    ...          "steps": steps, "dependencies": {"2": [1]}}
    >>> memory, _ = memory_from_dict(graph)
    >>> measure(memory, "The disk is 97 % full. Delete the old exports.").band
    'high'

Terms: a *fact* is a step, sent verbatim; a *unit* is a critical text of the graph (``critical``); a *part* is one of
the three figures of a fidelity (recall R, anchors A, edges E); a *veto* caps a fidelity because the text contradicts
the graph; a *lead* is the 3 to 6 sentences that a brief begins with.
"""
