"""Handoffs as markdown files: imported, rendered, and kept in step with the ledger.

- ``syntax``: what a file says and where, losslessly; pure
- ``mapping``: between a file and a handoff, both ways
- ``imports``: files as claims; ``plan``: what an edited file asks for; pure
- ``folder``, ``watcher``: a folder in step, by the hand of one agent, with what ``sync`` remembers

A *held* edit is one that somebody else must make.
"""
