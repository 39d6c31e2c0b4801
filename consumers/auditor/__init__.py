"""The auditor: replays a ledger from its first entry, offline, and trusts nobody while doing it.

Words: a *problem* makes the verdict fail, and names the index it was found at; a *note* is worth knowing and fails
nothing; a report is *anchored* when the auditor brought knowledge of its own (the fingerprint of the root key, or a
checkpoint kept from earlier), else all that was checked is that the ledger agrees with itself: *self-asserted*. The
verdict is one of four words: VALID; SUSPECT_KEY, valid, but a key that signed was later reported compromised; PARTIAL, of a
bundle of one stream that lacks what is named; INVALID.

Call ``verify.verify_log``, ``bundle.verify_bundle`` or ``fsck.fsck``.
"""
