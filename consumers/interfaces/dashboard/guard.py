"""Authentication of browsers and forms: launch links, sessions, Host, Origin and the tokens of forms.

Loopback does not authenticate, because agents run on this machine. The terminal that started the dashboard prints a
launch link, which works once within 15 minutes and becomes a strict HttpOnly cookie. The owner of the ledger's folder
can make another, because only they can read the dashboard's own file there. Cookies ignore ports, so another server on
this address receives ours: a cookie allows reading and never signs. A form is accepted only from a page of our own
(Origin and Sec-Fetch-Site, OWASP "Cross-Site Request Forgery Prevention"), with a token that is bound to the session
and to the exact thing that the page showed.
"""

from __future__ import annotations

import hmac
import re
import secrets
import threading
from collections.abc import Mapping
from hashlib import sha256
from typing import Final

from deedbook.consumers.interfaces.dashboard.signer import Signer, Trials
from deedbook.ledger.errors import Refused

link_max_s: Final = 15 * 60
sessions_max: Final = 64
_HOST: Final = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\])(?::[0-9]{1,5})?", re.ASCII)
_LINK: Final = re.compile(r"([0-9]{1,15})\.([A-Za-z0-9_-]{16,64})\.([0-9a-f]{64})", re.ASCII)

CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS: Final = {
    "content-security-policy": CSP,
    "referrer-policy": "same-origin",  # with no-referrer a browser sends `Origin: null` with our own forms
    "x-content-type-options": "nosniff",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Session:
    """One browser that opened a launch link, and the human's key that may sign there."""

    def __init__(self) -> None:
        self.secret = secrets.token_bytes(32)
        self.signer = Signer(Trials())

    def token(self, *parts: str) -> str:
        """Return the token that proves that this session showed these parts: route, thing, ref and operation."""
        return _mac(self.secret, "\0".join(parts))

    def demand(self, form: Mapping[str, str], *parts: str) -> None:
        """Check that a form carries the token for these parts. Raises Refused: ``NOT_AUTHORIZED``."""
        if not hmac.compare_digest(form.get("csrf", "").encode(), self.token(*parts).encode()):
            message = (
                "this form does not belong to a page that this dashboard showed you: reload the page and try again"
            )
            raise Refused("NOT_AUTHORIZED", message)


class Guard:
    """The sessions of one dashboard; threads share it."""

    def __init__(self, secret: str, port: int) -> None:
        """Use this secret for launch links, and name the cookie after the port."""
        self.cookie = f"deedbook_{port}"
        self.secret = secret
        self._lock = threading.Lock()
        self._sessions: dict[str, Session] = {}
        self._used: dict[str, int] = {}

    def launch(self, link: str, now_ms: int) -> str | None:
        """Return the cookie of a new session for a launch link; None for one that is forged, stale or used."""
        match = _LINK.fullmatch(link)
        if match is None or not hmac.compare_digest(match[3], _mac(self.secret.encode(), f"{match[1]}.{match[2]}")):
            return None
        until = int(match[1]) + link_max_s * 1000
        cookie = secrets.token_urlsafe(32)
        with self._lock:
            self._used = {nonce: end for nonce, end in self._used.items() if end > now_ms}
            if until <= now_ms or match[2] in self._used:
                return None
            self._used[match[2]] = until
            while len(self._sessions) >= sessions_max:
                self._sessions.pop(next(iter(self._sessions))).signer.lock()
            self._sessions[cookie] = Session()
        return cookie

    def session(self, cookie: str | None) -> Session | None:
        """Return the session of a cookie, or None if there is none."""
        return None if cookie is None else self._sessions.get(cookie)

    def leave(self, session: Session) -> None:
        """End a session: forget its key and its cookie."""
        session.signer.lock()
        with self._lock:
            self._sessions = {cookie: other for cookie, other in self._sessions.items() if other is not session}


def launch_link(secret: str, now_ms: int) -> str:
    """Return a token that lets one browser in within ``link_max_s``; any process that has the secret can make it."""
    text = f"{now_ms}.{secrets.token_urlsafe(16)}"
    return f"{text}.{_mac(secret.encode(), text)}"


def check_host(headers: Mapping[str, str]) -> None:
    """Check the Host header, against DNS rebinding: a foreign site can make its own name resolve to this address.

    Any port is accepted, because behind `ssh -L` the port differs. Raises Refused: ``USAGE``.
    """
    if _HOST.fullmatch(headers.get("host", "")) is None:
        raise Refused("USAGE", "the dashboard answers only at 127.0.0.1 and localhost: open the link that it printed")


def check_origin(headers: Mapping[str, str]) -> None:
    """Check that a page of our own sent a form. Raises Refused: ``NOT_AUTHORIZED``."""
    own, origin = f"http://{headers.get('host')}", headers.get("origin")
    # A text browser sends a Referer and no Origin.
    is_own = origin == own or (origin is None and headers.get("referer", "").startswith(f"{own}/"))
    if not is_own or headers.get("sec-fetch-site", "same-origin") != "same-origin":
        raise Refused("NOT_AUTHORIZED", "a page of another origin sent this form: nothing was done")


def _mac(secret: bytes, text: str) -> str:
    return hmac.new(secret, text.encode(), sha256).hexdigest()
