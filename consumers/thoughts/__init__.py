"""Tree of Thoughts: six agents search a tree with thinkers, by pure decisions and signed messages.

Terms: a *thinker* is a program or model that thinks (``thinkers``). A *task* is the state of a search in the log,
including its tree (``task``). A *step* is the next event of an agent; for the explorer it is a pure function of the
tree (``search.next_step``), so a killed explorer continues as if nothing had happened. ``answers`` makes messages of a
thinker's answers. An *agent* (``agents``) plays one role in a process of its own (``processes``); at the end one of
them stores the best path as a reasoning (``conclusion``). ``run`` starts the six and reads the result; ``logs`` writes
the log folder.
"""
