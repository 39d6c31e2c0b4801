"""`deed demo`: tells the main workflow on real input as a story, with each actor in its own process.

Nothing is simulated: each step is a signed event, a refusal of the gate, or a check that passed.
"""
