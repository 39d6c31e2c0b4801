"""Verify a bundle in Python: somebody sent you a file, and you have no ledger and no server.

    from deedbook.audit import verify_bundle

    verdict = verify_bundle("audit.tar", root="FINGERPRINT")
    if not verdict.is_valid:
        print(verdict.sentence, verdict.problems, verdict.missing)

`deed verify --bundle FILE` prints the same verdict.
"""

from __future__ import annotations

from pathlib import Path

from deedbook.consumers.auditor import bundle
from deedbook.consumers.auditor.report import AuditedAgent, Problem
from deedbook.consumers.auditor.verdict import Verdict, verdict_of
from deedbook.consumers.handoffs.option_names import with_arguments
from deedbook.ledger.errors import DeedbookError

__all__ = ["AuditedAgent", "Problem", "Verdict", "verify_bundle"]


def verify_bundle(path: Path | str, *, root: str | None = None, checkpoint: str | None = None) -> Verdict:
    """Return the verdict on the bundle at ``path``: its tar, or the folder that it was unpacked to.

    Nothing is written, and no server is contacted. ``root`` is the fingerprint of the root key (hex, at least 32
    digits), from another source than the bundle; ``checkpoint`` is the text of a checkpoint of the ledger, from another
    source, too: if the bundle ends before it, ``missing`` says how many entries are not here. Without either,
    ``is_anchored`` is false: the bundle only agrees with itself.

    Raises Refused: ``NOT_FOUND``, ``INVALID_FORMAT`` or ``TOO_LARGE``: this is not a bundle; ``USAGE``: ``root`` is no
    fingerprint; ``INVALID_FORMAT``: ``checkpoint`` is no checkpoint.
    """
    try:
        return verdict_of(bundle.verify_bundle(Path(path), root=root, trusted_checkpoint=checkpoint))
    except DeedbookError as error:
        error.message = with_arguments(error.message)
        raise
