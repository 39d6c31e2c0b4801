"""The only table of routes: every page, download and form of the dashboard. Routes with a menu text are in the menu."""

from __future__ import annotations

from functools import partial
from typing import Final

from deedbook.consumers.interfaces.dashboard.page import Download, Page, PageContext, Redirect, Route
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
from deedbook.consumers.interfaces.dashboard.pages.timeline import timeline
from deedbook.consumers.interfaces.dashboard.pages.week import week
from deedbook.ledger.families import Family, installed
from deedbook.ledger.families import Page as FamilyPage
from deedbook.ledger.packages import part_of
from deedbook.projections.views.registry import SEARCH

ROUTES: Final[tuple[Route, ...]] = (
    Route("/", "home", home, "Needs you"),
    Route(PATH, "acceptance", acceptance),
    Route("/week", "week", week, "Week", group=SEARCH),
    Route("/graph", "graph", graph, "Graph"),
    Route("/timeline", "timeline", timeline, "Timeline"),
    Route("/events", "events", events, "Events"),
    Route("/e/{ref:path}", "event", event),
    Route("/proof/{ref:path}", "proof", proof),
    Route("/search", "search", search, group=SEARCH),
    *(Route(listed.path, name, partial(list_page, name)) for name, listed in LISTS.items()),
    Route("/h/{id}", "handoff", handoff),
    Route("/h/{id}/v/{number}", "handoff_version", handoff_version),
    Route("/h/{id}/diff", "handoff_diff", handoff_diff),
    Route("/reviews/{id:path}", "review", review),
    Route("/r/{ref:path}", "reasoning", reasoning),
    Route("/s/{id:path}", "session", session),
    Route("/k", "knowledge", knowledge, "Knowledge"),
    Route("/agents", "agents", agents, "Agents"),
    Route("/a/{name:path}", "agent", agent),
    Route("/audit", "audit", audit, "Audit"),
    Route("/me", "me", me),
)


def page_routes() -> list[Route]:
    """Return the pages, those of families last."""
    return [*ROUTES, *(_page_of(family, page) for family in installed() for page in family.pages)]


def _page_of(family: Family, page: FamilyPage) -> Route:
    """Return the route of a page of a family, which is loaded when somebody opens it."""

    def show(context: PageContext) -> Page | Redirect | Download:
        if not page.page:
            return _table_of(context, family, page)
        made: Page | Redirect | Download = part_of(family, page.page)(context)
        return made

    name = page.page.rpartition(":")[2] or page.query.rpartition(".")[2]
    return Route(f"/{family.name}{page.path}", f"{family.name}_{name}", show, page.menu, family.name)


def _table_of(context: PageContext, family: Family, page: FamilyPage) -> Page:
    """Return a page with the rows of a list, newest first; ``after`` is the previous page's ``next``."""
    answer = context.ask(page.query, after=context.number("after"))
    columns = [*dict.fromkeys(name for row in answer["items"] for name in row)]
    return Page("family.html", page.menu or family.name, answer | {"family": family.name, "columns": columns})


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
