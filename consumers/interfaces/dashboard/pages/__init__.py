"""The only table of routes: every page, download and form of the dashboard. Routes with a menu text are in the menu."""

from __future__ import annotations

from functools import partial
from typing import Final

from deedbook.consumers.interfaces.dashboard.page import Route
from deedbook.consumers.interfaces.dashboard.pages.acceptance import PATH, acceptance, accepted
from deedbook.consumers.interfaces.dashboard.pages.agents import agent, agents
from deedbook.consumers.interfaces.dashboard.pages.audit import VERIFY, audit, verify
from deedbook.consumers.interfaces.dashboard.pages.decisions import decided, lock, unlock
from deedbook.consumers.interfaces.dashboard.pages.events import event, events, search
from deedbook.consumers.interfaces.dashboard.pages.graph import graph
from deedbook.consumers.interfaces.dashboard.pages.handoffs import handoff, handoff_diff, handoff_version, review
from deedbook.consumers.interfaces.dashboard.pages.home import home
from deedbook.consumers.interfaces.dashboard.pages.knowledge import knowledge
from deedbook.consumers.interfaces.dashboard.pages.lists import LISTS, list_page
from deedbook.consumers.interfaces.dashboard.pages.me import logout, logout_others, me
from deedbook.consumers.interfaces.dashboard.pages.proof import proof, receipt
from deedbook.consumers.interfaces.dashboard.pages.reasoning import reasoning
from deedbook.consumers.interfaces.dashboard.pages.session import session
from deedbook.consumers.interfaces.dashboard.pages.thoughts import tasks, thoughts
from deedbook.consumers.interfaces.dashboard.pages.timeline import timeline
from deedbook.consumers.interfaces.dashboard.pages.week import week

ROUTES: Final[tuple[Route, ...]] = (
    Route("/", "home", home, "Needs you"),
    Route(PATH, "acceptance", acceptance),
    Route("/week", "week", week, "Week", searches=True),
    Route("/graph", "graph", graph, "Graph"),
    Route("/timeline", "timeline", timeline, "Timeline"),
    Route("/events", "events", events, "Events"),
    Route("/e/{ref:path}", "event", event),
    Route("/proof/{ref:path}", "proof", proof),
    Route("/search", "search", search, searches=True),
    *(Route(listed.path, name, partial(list_page, name)) for name, listed in LISTS.items()),
    Route("/h/{id}", "handoff", handoff),
    Route("/h/{id}/v/{number}", "handoff_version", handoff_version),
    Route("/h/{id}/diff", "handoff_diff", handoff_diff),
    Route("/reviews/{id:path}", "review", review),
    Route("/r/{ref:path}", "reasoning", reasoning),
    Route("/s/{id:path}", "session", session),
    Route("/k", "knowledge", knowledge, "Knowledge"),
    Route("/t", "tasks", tasks, "Thinking"),
    Route("/t/{id:path}", "thoughts", thoughts),
    Route("/agents", "agents", agents, "Agents"),
    Route("/a/{name:path}", "agent", agent),
    Route("/audit", "audit", audit, "Audit"),
    Route("/me", "me", me),
)

DOWNLOADS: Final[tuple[Route, ...]] = (Route("/receipts/{ref:path}", "receipt", receipt),)

FORMS: Final[tuple[Route, ...]] = (
    Route("/h/{id}/decide", "handoff", partial(decided, "handoff", handoff, home)),
    Route(PATH, "acceptance", accepted),
    Route("/questions/{id:path}/decide", "question", partial(decided, "question", home, home)),
    Route("/reviews/{id:path}/decide", "review", partial(decided, "review", review, home)),
    Route(VERIFY, "audit", verify),
    Route("/unlock", "unlock", unlock),
    Route("/lock", "lock", lock),
    Route("/logout", "logout", logout),
    Route("/logout/others", "logout", logout_others),
)
