"""The auditor: replays a ledger from its first entry, offline, and trusts nobody while doing it.

Words: a *problem* makes the verdict fail, and names the index it was found at; a *note* is worth knowing and fails
nothing; a report is *anchored* when the auditor brought knowledge of its own (the fingerprint of the root key, or a
checkpoint kept from earlier), else all that was checked is that the ledger agrees with itself: *self-asserted*. The
verdict is one of four words: VALID; SUSPECT_KEY, right, but a key was called compromised since it signed; PARTIAL, of a
bundle of one stream that lacks what is named; INVALID.

``deed fsck`` is ``consumers.auditor.fsck.fsck``: not re-exported, because the module's name would hide it.
"""

from typing import TYPE_CHECKING

from ledger.front_door import front_door

if TYPE_CHECKING:
    from consumers.auditor.bundle import verify_bundle as verify_bundle
    from consumers.auditor.report import AuditReport as AuditReport
    from consumers.auditor.report import Problem as Problem
    from consumers.auditor.verify import verify_log as verify_log
else:
    __getattr__, __dir__ = front_door(__name__)
