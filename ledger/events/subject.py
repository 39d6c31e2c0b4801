"""The kind of subjects: the people, customers or contracts whose sealed content can be erased (``ledger.seal``).

No event opens a subject: nobody needs to know of one before it is erased, and the log would name it for ever.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from deedbook.ledger.events.fields import EventData, Statement
from deedbook.ledger.format.forms import NAME_PATTERN

SubjectName = Annotated[
    str,
    msgspec.Meta(
        pattern=NAME_PATTERN, description="The name of a subject. It stays in the log for ever: use a pseudonym."
    ),
]


class SubjectErased(EventData, frozen=True):
    """The key of the subject that the stream names is destroyed: nobody can open its sealed content any more."""

    reason: Statement
