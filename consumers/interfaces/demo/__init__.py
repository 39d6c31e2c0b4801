"""`deed demo`: the main job on real input, told as a story, with every actor in a process of its own.

Nothing is simulated: each step is a signed event, a refusal of the gate, or a check that failed to fail.
"""
