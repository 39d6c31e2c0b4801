"""Checks a bundle of a Deedbook ledger. Needs Python 3.11, PyNaCl and blake3, and nothing of Deedbook.

    tar xf audit.tar && python3 verify.py [--root FINGERPRINT] [--partial] [FOLDER or TAR]

The program checks the form of every entry, its fields, its id, its signature (or that of its batch), the ledger's
clock, the version counts of streams and of authority events, the Merkle tree, the signed checkpoint, and the blobs. It
replays who may sign: registrations, roles, delegations with their scope, time and number of events, revocations,
rotations, removals. It does not replay the other rules of handoffs, reasonings and sessions, and its verdict names
these families of events. `deed verify --bundle` replays those rules, too.

The last line is the verdict; the exit code goes with it:

    VALID         0  everything is correct
    SUSPECT_KEY   0  everything is correct, but some events were signed with a key after its compromise
    PARTIAL       6  the present part is correct, but the named events or files are missing (0 with --partial)
    INVALID       6  something is wrong: the verdict names the index or the file
                  2  this is not a bundle

Without --root, a verdict is self-asserted: anybody can make a complete ledger with keys of their own. Compare the
fingerprint of the root key with one from another source. If you do not trust the maker of the bundle, also take this
program from another source: each release of Deedbook writes the same program. It accepts only the table of event
kinds whose hash is in it (KINDS_SHA256).

The program is meant to be read. It shares no code with Deedbook, so it does not repeat mistakes of that code. Each
of its parts uses only the parts above it.
"""
