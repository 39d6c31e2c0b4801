"""Git notes of Empirica as records of this ledger: each note is read, kept byte for byte, and mapped where it can be.

A *note* is a blob in the newest tree of a notes ref. It is *mapped* to the kind of event that it stands for, or stored
as *unmapped* with the reason; what it says that no field here can hold is *said*, or *dirty* where it is not what it
should be. Notes that this ledger wrote itself are its *own*: they are counted, and not read back.

Decided, and refused: a note is known by its bytes and the ref it stands at, not by the commit it is on, because git
copies notes from commit to commit; a note that was changed since is imported beside what it was. Streams are those of
sessions, ``session/ID``: a stream for each note would keep an imported session from being resumed.
"""
