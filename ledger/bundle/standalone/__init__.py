"""Checks a bundle of a Deedbook ledger, or a receipt. Needs Python 3.11, PyNaCl and blake3, and nothing of Deedbook.

    tar xf audit.tar && python3 verify.py [--root FINGERPRINT] [--checkpoint FILE] [FOLDER or TAR]
    python3 verify.py [--root FINGERPRINT] RECEIPT

The program checks the form of every entry, its fields, its id, its signature (or that of its batch), the ledger's
clock, the version counts of streams and of authority events, the Merkle tree, the signed checkpoint, and the blobs. It
makes the page `index.html` again from the entries and compares it, unless entries are missing. It replays the rules.
Those of agents and keys are code: registrations, roles, delegations with their scope, time and number of events,
revocations, rotations, removals. Those of handoffs, reviews, sessions, reasonings, snapshots and records are tables in
`schemas.json`. If a bundle has events of a family that a package brings, the verdict is PARTIAL and names the
family: this program checks neither their fields nor their rules. `deed verify --bundle` does, with the package.

Each problem is one line with the number of the entry (the first one has 0) and the code of the rule that is broken. The
last line but one says whether somebody must enter a passphrase before anything is approved (`gate: closed`) or not
(`gate: open`). The last line is the verdict; the exit code goes with it:

    VALID                0  everything in the bundle is correct
    VALID_WITH_ERASURES  0  everything in it is correct, but the texts of the named entries were erased
    SUSPECT_KEY          6  everything in it is correct, but some events were signed with a key after its compromise
    PARTIAL              6  what was checked is correct, but the named events or files are missing, or the fields and
                            rules of the named families were not checked
    HISTORY_CHANGED      6  the bundle is correct by itself, but contradicts the checkpoint of --checkpoint
    INVALID              6  something is wrong: the verdict names the entry or the file
                         2  this is not a bundle, or not a checkpoint

The signatures and the tree cover the id of an erased event, so they stay valid. Its remaining fields are what root, or
two humans, signed as its rest. Nobody without its texts can check that.

A receipt proves one entry. The program checks the path from the entry to the checkpoint, the author's signature, and
the entries of root that name the key of the checkpoint. The rules need the whole log, so a receipt cannot show that the
author's key was valid.

With --accept SUSPECT_KEY or --accept PARTIAL, that verdict exits with 0. With --closed-gate, every verdict exits with 6
if the gate is not closed.

Without --root, a verdict is self-asserted: anybody can make a complete ledger with keys of their own. Compare the
fingerprint of the root key with one from another source.

The sender can leave out the newest entries: an older state of the ledger is correct, too. Get a checkpoint from another
source, for example from `deed checkpoint`, a witness or a mail, and pass it with --checkpoint, as a file or as text.
VALID then says that the bundle is complete up to this checkpoint. If the bundle ends before it, the verdict is PARTIAL
and says how many entries are missing. A bundle of one stream can only be compared with a checkpoint of the same size.

If you do not trust the maker of the bundle, also take this
program from another source: each release of Deedbook writes the same program, which `pip install deedbook-verify`
installs as the command `deedbook-verify BUNDLE`. It accepts only the tables of event kinds and rules whose hash is in
it (KINDS_SHA256).

The program is meant to be read. It shares no code with Deedbook, so it does not repeat mistakes of that code. Only
the part that makes the page is one text for both, because it decides nothing. Each part uses only the parts above it.
"""
