"""The auditor replays a ledger from its first entry, offline, and trusts nobody.

Terms: a *problem* makes the verdict fail and names the index of the entry. A *note* is worth knowing and does not
change the verdict. A report is *anchored* when the auditor has knowledge from elsewhere: the fingerprint of the root
key, or a checkpoint from earlier. Otherwise the report is *self-asserted*: the audit only shows that the ledger agrees
with itself. There are six verdicts: VALID; VALID_WITH_ERASURES (valid, but the bodies of the named entries were
erased); SUSPECT_KEY (valid, but a signing key was later declared compromised); PARTIAL (entries of a bundle of one
stream, the newest entries of a bundle, blobs that entries need, or the package of a family are missing, and the report
lists them; the rest is valid); HISTORY_CHANGED (valid by itself, but not the history that this reader trusted before);
INVALID. The program ``verify.py`` in a bundle gives the same verdicts with the same codes. Its verdict on every family
that a package brings is PARTIAL.

Call ``verify.verify_log``, ``bundle.verify_bundle`` or ``fsck.fsck``. ``deedbook.audit`` has the verdict on a bundle
for other programs, and ``bundle_ledger`` reads a verified bundle as a ledger.
"""
