"""Bundles: a whole log, or one stream of it, as a tar that anybody can verify without Deedbook.

A bundle of a log contains these members, in this order:

    blobs/ALGORITHM/HEX       the blobs that entries of the bundle refer to by this ref and that the ledger has
    checkpoint                C2SP tlog-checkpoint: origin, size and root, signed by the checkpoint key
    index.html the events and their signers, for any browser; verifiers make it again and compare
    keys/agents.vkeys         every key that entries register or delegate, one vkey a line, in the order of the log
    keys/checkpoint.vkey      the keys that may sign a checkpoint after the last entry, as C2SP vkeys
    keys/root.fingerprint     BLAKE3 of the root key, hex: auditors compare it with one from another source
    keys/root.vkey            the root key, which signs entry 0 and no notes
    manifest.json             the description of the bundle (``Manifest``): RFC 8785 and a newline
    schemas.json              the fields of each kind, and the rules: the tables whose hash is in verify.py
    tile/L/N[.p/W]            the hashes of the tree, C2SP tlog-tiles
    tile/entries/N[.p/W]      the bare forms of the entries, each after its length as big-endian u16, C2SP tlog-tiles
    tile/bodies/N[.p/W]       the bodies of the same entries, each after its length; this follows each tile of entries
    verify.py                 verifies all of it; needs Python, PyNaCl and blake3, and nothing of Deedbook

A bundle of one stream is a part of a log (``ledger.admission.replay``): authority, the stream, and the streams that its
rules read. After the checkpoint it contains these members, and no tiles:

    ends                      the lengths of these streams, signed by the ledger (``StreamHeads``)
    entries/INDEX.entry       the entry's bytes (INDEX has 20 digits)
    entries/INDEX.tlog-proof  its inclusion under the checkpoint, C2SP tlog-proof; ``extra`` is its path in its batch

A *signed file* is a bundle of one stream as one text file (``signed_file``).

A backup is a bundle of a log with these members before ``keys/``. `deed restore` makes a ledger of it, or of any bundle
of a log:

    home/chains.toml, home/config.toml      settings
    home/keys.sealed                        key files, sealed with a passphrase of the backup
    home/subjects.sealed                    the requested keys of subjects (``ledger.seal``), sealed in the same way

Verifiers replay the rules of a part, too, and detect missing entries: a gap between entries by their versions, the end
of a stream by the signed lengths, a whole stream by the rules that read it, a blob by the entry that is incomplete
without it. They refuse a blob that no entry references: nobody signed it (``blobs.BundleBlobs``). A bundle cannot show
entries after its checkpoint. Rejected: a list of contents in the manifest as proof, because nobody signs it; and a list
of dependencies beside the rules.

The tar has a canonical form: ustar headers without owner or time, zero padding, members in this order. So equal logs
give equal files, and any flipped byte is found. This module never extracts anything.

Sources: C2SP tlog-tiles.md, tlog-checkpoint.md, tlog-proof.md, signed-note.md.
"""

from __future__ import annotations

from deedbook.ledger.bundle.archive import Bundle
from deedbook.ledger.bundle.export import export_bundle, signed_file_of
from deedbook.ledger.bundle.layout import Manifest

__all__ = ["Bundle", "Manifest", "export_bundle", "signed_file_of"]
