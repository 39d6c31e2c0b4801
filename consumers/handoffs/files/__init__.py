"""Handoffs as markdown files: imported, rendered, and kept in step with the ledger (seed 002, DESIGN §10).

- ``syntax``: what a file says and where, losslessly; pure
- ``mapping``, ``content``, ``current``, ``earlier``: between a file and a handoff, both ways
- ``importing``: files as claims; ``planning``, ``merging``, ``signing``: what an edited file asks for, and how the
  ledger's news come into it; ``folder``, ``table_folder``, ``watching``: a folder in step, by the hand of one agent

A *skeleton* is a file's bytes as they were when its content was set; a *held* edit is one that somebody else must make.
"""
