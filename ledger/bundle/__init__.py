"""Bundles: a whole log, or one stream of it, in a tar that a stranger can check without us.

A bundle of a log holds, in this order and nothing else:

    blobs/ALGORITHM/HEX       blobs that events refer to by this ref, as far as the ledger holds them
    checkpoint                C2SP tlog-checkpoint: origin, size and root, signed by the checkpoint key
    keys/checkpoint.vkey      the key that signed it, as a C2SP vkey
    keys/root.vkey            the root key (signs entry 0; no notes)
    keys/root.fingerprint     BLAKE3 of the root key, hex: what auditors compare with what they were told
    keys/agents.vkeys         every key that entries register or delegate, one vkey a line, in the order of the log
    manifest.json             what this is (``Manifest``), RFC 8785 form and a newline
    schemas.json              what the data of each kind must be: the table whose hash stands in verify.py
    tile/L/N[.p/W]            the tree's hashes, C2SP tlog-tiles
    tile/entries/N[.p/W]      the entries, each after its length as big-endian u16, C2SP tlog-tiles
    verify.py                 checks all of it; needs Python, PyNaCl and blake3, and nothing of Deedbook

A bundle of one stream is a part of a log (``ledger.admission.replay``): authority, the stream, and the streams that its
rules look at. It holds the same, and instead of tiles:

    ends                      how many entries these streams have, signed by the ledger (``ledger.proof.checkpoint``)
    entries/INDEX.entry       the entry's bytes (INDEX has 20 digits)
    entries/INDEX.tlog-proof  its inclusion under the checkpoint, C2SP tlog-proof; ``extra`` is its path in its batch

A backup is a bundle of a log with these, and `deed restore` makes a ledger of it, or of any bundle of a log:

    home/chains.toml, home/config.toml      settings
    home/keys.sealed                        key files, under a passphrase of the backup's own

So its rules are replayed too, and what was taken out of it is missed: between its entries by their versions, at a
stream's end by the ledger's word, a whole stream by the rules that look at it. What came after the checkpoint it cannot
show. Refused: the manifest's word on what is in it (nobody signs that), and a list of dependencies beside the rules.

A tar of this format has one form: ustar headers without owner or time, zero padding, members in the order above. So
equal logs give equal files, and a flipped byte anywhere is found. Nothing is ever extracted by this module.

Sources: C2SP tlog-tiles.md, tlog-checkpoint.md, tlog-proof.md, signed-note.md.
"""

from __future__ import annotations

from deedbook.ledger.bundle.archive import Bundle
from deedbook.ledger.bundle.export import export_bundle
from deedbook.ledger.bundle.layout import Manifest

__all__ = ["Bundle", "Manifest", "export_bundle"]
