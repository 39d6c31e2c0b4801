"""Writes and checks ``index.html``, the page of a bundle, with the part of ``verify.py`` that makes it.

Both verifiers make the page again from the entries that they verified, and compare the bytes. Any change of the page is
a change of the format of bundles: an older bundle would get the verdict INVALID.
"""

from __future__ import annotations

import json
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final

import msgspec

from deedbook.ledger.bundle.program import schemas
from deedbook.ledger.bundle.standalone.page import Page
from deedbook.ledger.errors import Refused
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.families import is_of_package
from deedbook.ledger.format.codec import UNREADABLE
from deedbook.ledger.format.envelope import decode_entry, is_remnant, read_remnant

if TYPE_CHECKING:
    from deedbook.ledger.bundle.layout import Manifest

PAGE: Final = "index.html"


class BundlePage:
    """Collects the entries of a bundle in the order of the log, and makes the page."""

    def __init__(self) -> None:
        self._page = Page(SimpleNamespace(**json.loads(schemas())))

    def add(self, index: int, data: bytes) -> None:
        """Add the next entry. An entry that no gate could have accepted is left out: the bundle is INVALID anyway."""
        with suppress(*UNREADABLE, Refused, LookupError, TypeError, ValueError, AttributeError, RecursionError):
            entry = decode_entry(data)
            is_erased = is_remnant(entry.body)
            body = json.loads(read_remnant(entry.body).body if is_erased else entry.body)
            if not is_of_package(body["kind"], body["stream"]):  # `verify.py` does not check those either
                read_event(index, entry)  # refuses fields of a wrong type, over which the page would stumble at its end
            self._page.add(index, entry.accepted_ms, entry.key.hex(), body, entry.body, is_erased=is_erased)

    def unapproved(self) -> list[str]:
        """Return the line about handoffs that nobody approved, or nothing."""
        return self._page.unapproved()

    def encode(self, manifest: Manifest) -> bytes:
        """Return the bytes of the page."""
        return self._page.to_html(msgspec.to_builtins(manifest))
