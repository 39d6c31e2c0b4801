"""`baton demo`: the main job on real input, told as a story, with every actor in a process of its own.

- ``stage``: a temporary ledger, a sample project, a running node, the actors' processes
- ``actor``: the process of one agent: reads acts from standard input, does them over NATS, answers
- ``story``: the acts in order, and what each must come to
- ``telling``: the story on a terminal

Nothing is simulated: each step is a signed event, a refusal of the gate, or a check that failed to fail.
"""
