"""Tree of Thoughts: searching with thinkers, decided purely and told in messages that six agents sign.

The words used here: a *thinker* thinks (``thinkers``); a *state* is the tree that the log tells (``tree.advance``); an
*action* is what the explorer does next, a pure function of the state (``search.next_action``), so an explorer that was
killed goes on as if it had not been; ``messages`` puts actions and answers into events. An *agent* (``agents``) plays
one role in a process of its own (``processes``); ``run`` starts the six and reads what they come to; ``memory`` keeps
the best path as a reasoning memory, and ``logs`` makes the log folder.
"""
