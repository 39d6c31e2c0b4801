"""Handoffs as markdown files: imported, rendered, and synchronised with the ledger.

- ``syntax``: reads and writes the parts of a file without loss; pure
- ``mapping``: converts between a file and a handoff
- ``imports``: files as claims; ``plan``: the plan for an edited file; pure
- ``folder``, ``watcher``: one agent's synchronisation of a folder, with the state that ``sync`` stores

A *held* edit is one that only another agent may make.
"""
