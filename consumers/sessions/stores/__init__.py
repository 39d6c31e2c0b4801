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

from __future__ import annotations

from typing import TYPE_CHECKING

from ledger.front_door import front_door

if TYPE_CHECKING:
    from consumers.sessions.stores.names import name_of, text_of
    from consumers.sessions.stores.notes import JSON_NOTES, MARKDOWN_NOTES, NOTES, Listed, Notes
    from consumers.sessions.stores.project import Project, ReportsSettings, project_of
    from consumers.sessions.stores.remotes import Transfer, fetch, push
    from consumers.sessions.stores.repairing import Repaired, repair
    from consumers.sessions.stores.stored import Status, Stored
    from consumers.sessions.stores.storing import load_handoff, store_report

__all__ = [
    "JSON_NOTES",
    "MARKDOWN_NOTES",
    "NOTES",
    "Listed",
    "Notes",
    "Project",
    "Repaired",
    "ReportsSettings",
    "Status",
    "Stored",
    "Transfer",
    "fetch",
    "load_handoff",
    "name_of",
    "project_of",
    "push",
    "repair",
    "store_report",
    "text_of",
]

__getattr__ = front_door(
    __name__,
    {
        "names": ("name_of", "text_of"),
        "notes": ("JSON_NOTES", "MARKDOWN_NOTES", "NOTES", "Listed", "Notes"),
        "project": ("Project", "ReportsSettings", "project_of"),
        "remotes": ("Transfer", "fetch", "push"),
        "repairing": ("Repaired", "repair"),
        "stored": ("Status", "Stored"),
        "storing": ("load_handoff", "store_report"),
    },
)
