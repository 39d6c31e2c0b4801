"""The validator checks another agent's reasoning before anybody acts on it.

    >>> from deedbook.consumers.reasoning.validator.validator import ReasoningValidator
    >>> from deedbook.projections.reasoning.memory import memory_from_dict
    >>> steps = [{"step": 1, "type": "assumption", "content": "Logs are kept for 30 days"},
    ...          {"step": 2, "type": "conclusion", "content": "Rotate the secret", "confidence": 0.8}]
    >>> memory, _ = memory_from_dict({"task": "t", "conclusion": "Rotate the secret", "steps": steps,
    ...                               "dependencies": {"1": [], "2": []}})
    >>> report = ReasoningValidator().validate(memory)
    >>> report.passed, [issue.code for issue in report.issues]
    (True, [])
    >>> report.counts().inferences_unlinked
    1

Evidence is looked up in a ``Tree``: ``open_tree(folder)`` is the folder as it is now, ``open_tree(folder, commit)`` a
git commit. The report names the tree. Terms: a *reference* is evidence as the author wrote it; a *check* is the result
for one reference, assumption or inference; an *issue* is a reason why a report does not pass.
"""
