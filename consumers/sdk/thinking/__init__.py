"""Turns the thinking of a model's response into a reasoning graph, without losing any text.

    >>> from deedbook.consumers.sdk.thinking.extract import extract_reasoning
    >>> text = "<think>The secret is in the environment. So it is in the logs.</think>Rotate the secret."
    >>> found = extract_reasoning(text, task="Audit the login")
    >>> [(step.type, step.content) for step in found.memory.steps]
    [('observation', 'The secret is in the environment.'), ('inference', 'So it is in the logs.')]
    >>> (found.memory.conclusion, found.conclusion_from, found.inferred[1])
    ('Rotate the secret.', 'answer', ['type'])
    >>> text[found.spans[2].start : found.spans[2].end]
    'So it is in the logs.'

Terms: a *source* is one string of the response; a *region* is a part of it that is thinking or answer; a *span* is the
position of a step in its source; a *gap* is the text between spans (tags, list marks, white space).

The record of what was inferred is beside the graph, never in it. Whether a step's type or dependencies were guessed
does not change the graph's statements, so it must not change its ref.
"""
