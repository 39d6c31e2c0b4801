"""The stores of handoff reports beside the log: git notes and files (seed 004, "Storage Layer"; DESIGN §11).

    >>> from consumers.sessions.stores import Project, name_of, text_of
    >>> name_of("45a42346-364e-467c-9b2f-d15a8de0c52c")
    '45a42346-364e-467c-9b2f-d15a8de0c52c'
    >>> name_of("a session/with .. in it"), text_of("a%20session%2Fwith%20.%2E%20in%20it")
    ('a%20session%2Fwith%20.%2E%20in%20it', 'a session/with .. in it')
    >>> Project(no_git="config.toml says git = false").git is None
    True

A report is one event, ``report.generated``; what these stores hold is derived from it. ``project_of(settings)`` says
where a project's stores are, ``store_report`` writes one report to them and tells of each place what came of it, and
``repair`` writes again whatever is missing or different. So the loss of a store loses nothing, and none is asked
whether a report is true. The third store of the seed, SQL, is a view (``projections.reports``).

The words used here: a *note* is git's, a text on an object in a ref of its own; *ours* are notes whose commit names a
report; a *store* is all of them or all files; a *place* is one ref or one file.

Refused: one ref for all sessions (the seed's names, and writers of different sessions, would collide); a library for
git (none writes refs as git's own transactions do, and the operator's git is the one whose configuration counts); files
as the source of truth (an edit would be a report that nobody signed).

Names are loaded when first asked for.
"""

from typing import TYPE_CHECKING

from ledger.front_door import front_door

if TYPE_CHECKING:
    from consumers.sessions.stores.names import name_of as name_of
    from consumers.sessions.stores.names import text_of as text_of
    from consumers.sessions.stores.notes import JSON_NOTES as JSON_NOTES
    from consumers.sessions.stores.notes import MARKDOWN_NOTES as MARKDOWN_NOTES
    from consumers.sessions.stores.notes import NOTES as NOTES
    from consumers.sessions.stores.notes import Listed as Listed
    from consumers.sessions.stores.notes import Notes as Notes
    from consumers.sessions.stores.project import Project as Project
    from consumers.sessions.stores.project import ReportsSettings as ReportsSettings
    from consumers.sessions.stores.project import project_of as project_of
    from consumers.sessions.stores.remotes import Transfer as Transfer
    from consumers.sessions.stores.remotes import fetch as fetch
    from consumers.sessions.stores.remotes import push as push
    from consumers.sessions.stores.repairing import Repaired as Repaired
    from consumers.sessions.stores.repairing import repair as repair
    from consumers.sessions.stores.stored import Status as Status
    from consumers.sessions.stores.stored import Stored as Stored
    from consumers.sessions.stores.storing import load_handoff as load_handoff
    from consumers.sessions.stores.storing import store_report as store_report
else:
    __getattr__, __dir__ = front_door(__name__)
