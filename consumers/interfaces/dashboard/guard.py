"""Authentication of browsers and forms: launch links, sessions, Host, Origin and the tokens of forms.

Loopback does not authenticate, because agents run on this machine. `deed dashboard` prints a launch link for one name.
It works once within 15 minutes, and becomes a strict HttpOnly cookie of a session of that name. The owner of the
ledger's folder can make more links, because only they can read the dashboard's own file there. Cookies ignore ports, so
another server on this address receives ours: a cookie allows reading and never signs. A form is accepted only from a
page of our own (Origin and Sec-Fetch-Site, OWASP "Cross-Site Request Forgery Prevention"), with a token that is bound
to the session and to the exact thing that the page showed.

A session always begins with a new cookie and ends the one that the browser had, so nobody can choose the cookie of
somebody else. A link that another page opens logs in only after a click on a page that says under which name: otherwise
a foreign page could log a person in under a name that they do not expect.

The dashboard listens only on loopback, so no passphrase crosses a network without TLS. For a page that others reach, a
proxy with TLS on this machine forwards to it, and ``Guard`` has its ``origin``: the only host and origin that it then
accepts. It reads no header of a proxy except Host.
"""

from __future__ import annotations

import hmac
import re
import secrets
import threading
from collections import defaultdict
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple

from deedbook.consumers.interfaces.dashboard.account import Account
from deedbook.consumers.interfaces.dashboard.signer import Signer, Trials
from deedbook.ledger.errors import Refused

if TYPE_CHECKING:
    from starlette.responses import Response

link_max_s: Final = 15 * 60
session_max_s: Final = 24 * 3600
sessions_of_name_max: Final = 16
user_agent_max_chars: Final = 200
_HOST: Final = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\])(?::[0-9]{1,5})?", re.ASCII)
_LINK: Final = re.compile(r"([0-9]{1,15})\.([A-Za-z0-9_-]{16,64})\.([a-z0-9_-]{0,63})\.([0-9a-f]{64})", re.ASCII)
_ORIGIN: Final = re.compile(r"(https://[a-z0-9.-]{1,253}(?::(?!443/?$)[0-9]{1,5})?)(?::443)?/?", re.ASCII)

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
    """One browser that opened a launch link, in the name of that link, and the key that may sign there."""

    def __init__(self, account: Account, now_ms: int, user_agent: str, trials: Trials) -> None:
        """Begin a session for an account. The session ends if the account gets another key."""
        self.name, self.key = account.name, account.key
        self.began_ms, self.user_agent = now_ms, user_agent[:user_agent_max_chars]
        self.secret = secrets.token_bytes(32)
        self.signer = Signer(account.name, trials)
        self.ended = ""
        """Why it ended, as a sentence; empty while it lasts."""

    @property
    def ends_ms(self) -> int:
        """The time at which it ends (Unix ms)."""
        return self.began_ms + session_max_s * 1000

    def end(self, why: str) -> None:
        """Forget the key, and accept neither the cookie nor any form from now on."""
        self.signer.end()
        self.ended = self.ended or why

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


class Link(NamedTuple):
    """A launch link that this dashboard's folder made: its end (Unix ms), its nonce, and the name that it logs in."""

    until_ms: int
    nonce: str
    name: str


class Guard:
    """The sessions of one dashboard; threads share it."""

    def __init__(self, secret: str, port: int, origin: str | None = None) -> None:
        """Use this secret for launch links, and name the cookie after the port; ``origin`` is that of the TLS proxy."""
        # Over TLS no other origin can set a cookie with this prefix (RFC 6265bis, 4.1.3.2).
        self.cookie = f"__Host-deedbook_{port}" if origin else f"deedbook_{port}"
        self.secret = secret
        self.origin = origin
        self._lock = threading.Lock()
        self._sessions: dict[str, Session] = {}
        self._used: dict[str, int] = {}
        self._trials: defaultdict[str, Trials] = defaultdict(Trials)

    def link(self, text: str) -> Link | None:
        """Return a launch link, which may be stale or used; None if it is forged."""
        match = _LINK.fullmatch(text)
        if match is None or not hmac.compare_digest(match[4], _mac(self.secret.encode(), text.rpartition(".")[0])):
            return None
        return Link(int(match[1]) + link_max_s * 1000, match[2], match[3])

    def launch(self, link: Link, account: Account, now_ms: int, *, user_agent: str, cookie: str | None) -> str | None:
        """Return the cookie of a new session for a launch link; None if the link is stale or used.

        The session of the browser's present ``cookie`` ends. A name has at most ``sessions_of_name_max`` sessions.
        """
        new = secrets.token_urlsafe(32)
        with self._lock:
            self._used = {nonce: end for nonce, end in self._used.items() if end > now_ms}
            if link.until_ms <= now_ms or link.nonce in self._used:
                return None
            self._used[link.nonce] = link.until_ms
            if (before := self._sessions.get(cookie or "")) is not None:
                before.end("You logged in again.")
            own = [key for key, session in self._sessions.items() if session.name == account.name]
            own.sort(key=lambda key: not self._sessions[key].ended)  # the sessions that ended first, then by age
            for key in own[: -sessions_of_name_max + 1]:
                self._sessions.pop(key).end("There were too many.")
            self._sessions[new] = Session(account, now_ms, user_agent, self._trials[account.name])
        return new

    def session(self, cookie: str | None, now_ms: int) -> Session | None:
        """Return the session of a cookie, which may have ``ended``; None if there is none."""
        with self._lock:
            for session in self._sessions.values():
                if now_ms >= session.ends_ms:
                    session.end(f"This login ended after {session_max_s // 3600} hours.")
            return self._sessions.get(cookie or "")

    def sessions_of(self, name: str) -> list[Session]:
        """Return the sessions of a name that have not ended, oldest first."""
        with self._lock:
            return [session for session in self._sessions.values() if session.name == name and not session.ended]

    def set_cookie(self, response: Response, name: str, value: str, *, max_age: int | None = None) -> None:
        """Set a cookie that scripts cannot read and that pages of other sites cannot make the browser send."""
        is_secure = self.origin is not None
        response.set_cookie(name, value, max_age=max_age, httponly=True, samesite="strict", secure=is_secure)

    def check_host(self, headers: Mapping[str, str]) -> None:
        """Check the Host header, against DNS rebinding: a foreign site can make its name resolve to this address.

        On loopback any port is accepted, because behind `ssh -L` the port differs. Raises Refused: ``USAGE``.
        """
        host = headers.get("host", "")
        if self.origin is None and _HOST.fullmatch(host) is None:
            message = "the dashboard answers only at 127.0.0.1 and localhost: open the link that it printed"
            raise Refused("USAGE", message)
        if self.origin is not None and host.lower() != self.origin.removeprefix("https://"):
            message = f"the dashboard answers only at {self.origin}: the proxy must pass the header Host on unchanged"
            raise Refused("USAGE", message)

    def check_origin(self, headers: Mapping[str, str]) -> None:
        """Check that a page of our own sent a form. Raises Refused: ``NOT_AUTHORIZED``."""
        own, origin = self.origin or f"http://{headers.get('host')}", headers.get("origin")
        # A text browser sends a Referer and no Origin.
        is_own = origin == own or (origin is None and headers.get("referer", "").startswith(f"{own}/"))
        if not is_own or headers.get("sec-fetch-site", "same-origin") != "same-origin":
            raise Refused("NOT_AUTHORIZED", "a page of another origin sent this form: nothing was done")


def launch_link(secret: str, name: str, now_ms: int) -> str:
    """Return a token that lets one browser in as ``name`` within ``link_max_s``; any process with the secret can."""
    text = f"{now_ms}.{secrets.token_urlsafe(16)}.{name}"
    return f"{text}.{_mac(secret.encode(), text)}"


def parse_origin(text: str) -> str:
    """Return the origin of a proxy with TLS, as browsers send it. Raises Refused: ``USAGE``.

    >>> parse_origin("https://Deeds.example.org:443/")
    'https://deeds.example.org'
    """
    match = _ORIGIN.fullmatch(text.lower())
    if match is None:
        message = (
            f"--url takes https://HOST or https://HOST:PORT, not {text[:80]!r}: without TLS everybody on the network "
            "could read passphrases. Put a proxy with TLS before the dashboard, or use `ssh -L`."
        )
        raise Refused("USAGE", message)
    return match[1]


def _mac(secret: bytes, text: str) -> str:
    return hmac.new(secret, text.encode(), sha256).hexdigest()
