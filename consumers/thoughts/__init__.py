"""Tree of Thoughts: searching with thinkers, decided purely and told in messages that six agents sign.

The words used here: a *thinker* thinks (``thinkers``); a *state* is the tree that the log tells (``tree.advance``); a
*step* is what the explorer says next, a pure function of the state (``search.next_step``), so an explorer that was
killed goes on as if it had not been; ``messages`` makes requests and answers. An *agent* (``agents``) plays one role in
a process of its own (``processes``), and the last of them keeps the best path as a reasoning memory; ``run`` starts the
six and reads what they come to, and ``logs`` makes the log folder.
"""
