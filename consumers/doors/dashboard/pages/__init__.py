"""Every page of the dashboard, and every act: the only table of routes. Those with a menu word stand in the head."""

from __future__ import annotations

from typing import Final

from consumers.doors.dashboard.page import ActRoute, Route
from consumers.doors.dashboard.pages.events import event, events, search
from consumers.doors.dashboard.pages.graph import graph
from consumers.doors.dashboard.pages.home import home

ROUTES: Final[tuple[Route, ...]] = (
    Route("/", "home", home, "Needs you"),
    Route("/events", "events", events, "Events"),
    Route("/e/{ref:path}", "event", event),
    Route("/search", "search", search, searches=True),
    Route("/graph", "graph", graph, "Graph"),
)

ACTS: Final[tuple[ActRoute, ...]] = ()
