"""Checks a bundle of a Deedbook ledger; needs Python 3.11, PyNaCl and blake3, and nothing of Deedbook.

    tar xf audit.tar && python3 verify.py [--root FINGERPRINT] [--partial] [FOLDER or TAR]

It checks the form of every entry, its fields, its id, its signature (its own, or that of its batch), the ledger's
clock, the versions of streams and of the authority events, the Merkle tree, the signed checkpoint, and the blobs. It
replays who may sign: registrations, roles, delegations with their scope, time and number of events, revocations,
rotations, removals. It does not replay what else the rules of a handoff, a reasoning or a session say, and names the
families of events of which that is so: `deed verify --bundle` replays those, too.

The verdict is the last line, the exit code beside it:

    VALID         0  everything fits
    SUSPECT_KEY   0  everything fits, and some of it was signed with a key that was reported compromised later
    PARTIAL       6  what is here fits, but events or files are missing, which are named (with --partial: 0)
    INVALID       6  something does not fit: the index, or the file
                  2  this is no bundle

Without --root a verdict is self-asserted: whoever makes a ledger can make a whole one. Compare the fingerprint of the
root key with one that you have from elsewhere; and take this program from elsewhere, too, if the bundle's maker is
whom you doubt: each release of Deedbook makes the same one. It believes no table of the kinds of events but the one
whose hash stands in it (KINDS_SHA256).

It is written to be read: it shares no code with Deedbook, so that a mistake there is not repeated here. Its parts are
joined in the order in which they follow.
"""
