"""Imports git notes of Empirica: each note is read, stored byte for byte, and mapped to an event if possible.

A *note* is a blob in the newest tree of a notes ref. It is *mapped* to the kind of event that it means, or *unmapped*
with the reason. Values that no field here can hold are *said*; values with a wrong type or range are *dirty*. Notes
that this ledger wrote itself are its *own*: they are counted and not read back.

Decisions: a note is identified by its bytes and its ref, not by the commit it is on, because git copies notes from
commit to commit. A note that was changed is imported beside its old version. Notes go to the streams of their sessions,
``session/ID``: if each note had its own stream, an imported session could not be resumed.
"""
