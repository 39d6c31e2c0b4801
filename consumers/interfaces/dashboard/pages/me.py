"""`/me`: the name of this login, the key that decides, and the browsers that are logged in with the name."""

from __future__ import annotations

import re
from collections.abc import Mapping

from deedbook.consumers.interfaces.dashboard.page import Page, PageContext, Redirect
from deedbook.consumers.interfaces.dashboard.signer import why_unusable


def me(context: PageContext) -> Page:
    """Return ``{"name", "registered", "roles", "key", "why_not", "problem", "logins"}``.

    ``why_not`` says why this login only reads, and ``problem`` why its key cannot sign here; both may be empty.
    """
    account = context.account
    problem = why_unusable(context.ledger, account.name) if context.human is not None else ""
    logins = [
        {
            "is_this": session is context.session,
            "began_ms": session.began_ms,
            "ends_ms": session.ends_ms,
            "unlocked_s": session.signer.left_s,
            "browser": browser_of(session.user_agent),
        }
        for session in context.guard.sessions_of(account.name)
    ]
    data = account._asdict() | {"registered": bool(account.key), "problem": problem, "logins": logins}
    return Page("me.html", account.name or "A reader", data)


def browser_of(user_agent: str) -> str:
    """Return the program and system in a browser's description of itself; the whole text if no known program is in it.

    >>> browser_of("Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML) Chrome/150.0.0.0 Safari/537.36")
    'Chrome 150, X11; Linux x86_64'
    """
    # Most browsers also name the browsers that they imitate, so the most specific name counts.
    programs = (re.search(rf"{name}/[0-9]+", user_agent) for name in ("Edg", "OPR", "Firefox", "Chrome", "Safari"))
    program, system = next(filter(None, programs), None), re.search(r"\(([^()]+)\)", user_agent)
    return f"{program[0].replace('/', ' ')}, {system[1]}" if program and system else user_agent


def logout(context: PageContext, form: Mapping[str, str]) -> Redirect:
    """End this login, and lead to the page that explains how to log in again."""
    context.session.demand(form, "logout")
    context.session.end("You logged out.")
    return Redirect("/")


def logout_others(context: PageContext, form: Mapping[str, str]) -> Redirect:
    """End every other login of this name."""
    context.session.demand(form, "logout", "others")
    for session in context.guard.sessions_of(context.session.name):
        if session is not context.session:
            session.end(f"Another login of {session.name} ended this one.")
    return Redirect("/me")
