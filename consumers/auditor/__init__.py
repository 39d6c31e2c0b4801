"""The auditor replays a ledger from its first entry, offline, and trusts nobody.

Terms: a *problem* makes the verdict fail and names the index of the entry. A *note* is worth knowing and fails nothing.
A report is *anchored* when the auditor brought knowledge of their own: the fingerprint of the root key, or a checkpoint
from earlier. Otherwise the audit only shows that the ledger agrees with itself: it is *self-asserted*. There are six
verdicts: VALID; VALID_WITH_ERASURES (valid, but the bodies of the named entries were erased); SUSPECT_KEY (valid, but
a signing key was later declared compromised); PARTIAL (entries of a bundle of one stream, the newest entries of a
bundle, blobs that entries need, or the package of a family are missing, and the report lists them; the rest is
valid); HISTORY_CHANGED (valid by itself, but not the history that this reader trusted before); INVALID. The program
``verify.py`` in a bundle says the same with the same codes, but PARTIAL of every family that a package brings.

Call ``verify.verify_log``, ``bundle.verify_bundle`` or ``fsck.fsck``. ``deedbook.audit`` has the verdict on a bundle
for other programs, and ``bundle_ledger`` reads a verified bundle as a ledger.
"""
