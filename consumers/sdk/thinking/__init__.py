"""Thinking blocks: what a model thought aloud becomes a reasoning graph, with nothing lost on the way.

    >>> from deedbook.consumers.sdk.thinking.extract import extract_reasoning
    >>> text = "<think>The secret is in the environment. So it is in the logs.</think>Rotate the secret."
    >>> found = extract_reasoning(text, task="Audit the login")
    >>> [(step.type, step.content) for step in found.memory.steps]
    [('observation', 'The secret is in the environment.'), ('inference', 'So it is in the logs.')]
    >>> (found.memory.conclusion, found.conclusion_from, found.inferred[1])
    ('Rotate the secret.', 'answer', ['type'])
    >>> text[found.spans[2].start : found.spans[2].end]
    'So it is in the logs.'

The words used here: a *source* is one string of the response; a *region* is a part of it that is thinking or answer;
a *span* is where a step stands in its source; a *gap* is what stands between spans (tags, list marks, white space).

That something was inferred is kept beside the graph, never in it: whether somebody guessed a step's type, or found by
its words what it rests on, does not change what the graph says, so it must not change its ref.
"""
