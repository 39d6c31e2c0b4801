"""Acting on events: durable subscriptions whose effect happens once.

A ``Reactor`` follows the log by index and calls one function for each event of the kinds it asks for:

    reactor = Reactor(client, Subscriptions(path), "mail")

    @reactor.on("handoff.completed")
    def note(event, db):
        db.execute("INSERT INTO done VALUES (?)", (event.name,))

    reactor.run(stop)

Position, attempts and dead letters live in the subscriber's own SQLite file. What the function writes through ``db``
commits in one transaction with the position: after any crash the effect has happened once or not at all, and a gap
is impossible because the position is an index of the log. Effects outside that file (a command, a webhook) are at least
once; they get the event's id as a stable key.
"""

from __future__ import annotations

from consumers.reactor.reactor import Reactor
from consumers.reactor.subscriptions import DeadLetter, Subscriptions

__all__ = ["DeadLetter", "Reactor", "Subscriptions"]
