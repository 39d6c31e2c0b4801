"""Tree of Thoughts: searching with thinkers, decided purely and told in messages that six agents sign.

The words used here: a *thinker* thinks (``thinkers``); a *task* is what the log says of a search, its tree among it
(``task``); a *step* is what an agent appends next, for the explorer a pure function of the tree (``search.next_step``),
so one that was killed goes on as if it had not been; ``answers`` makes a thinker's answers messages. An *agent*
(``agents``) plays one role in a process of its own (``processes``), the last of them keeps the best path as a reasoning
memory (``conclusion``); ``run`` starts the six and reads what they come to, ``logs`` makes the log folder.
"""
