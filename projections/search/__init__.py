"""Full-text search over what people and agents wrote: one row an event that carries human text.

What counts as text, by kind, stands in ``texts``; what counts as a word, in ``words``, the same for what is written
and for what is asked. Nothing enters that an event does not carry itself: what a blob holds (sealed or merely long) is
not found, nor is what programs derived from events that are found already (briefs, validations).
"""
