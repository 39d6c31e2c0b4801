"""The page of a bundle, `index.html`: what its entries say, for somebody with a browser and nothing else.

Nobody signs the page. It is made from the entries alone, with equal bytes for equal entries, so a verifier makes it
again and compares. Deedbook itself uses this part, too, to write and to check the page, because two implementations
would differ sooner or later. This is safe, because the page decides nothing. All texts of others are escaped here. The
page has no script, and its policy lets a browser load nothing.

An event that this part cannot read is left out; a bundle with such an event is INVALID anyway.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from bisect import bisect_left
from collections import Counter, deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from blake3 import blake3

from deedbook.ledger.bundle.standalone.form import CLOCK_MAX_MS, blobs_in
from deedbook.ledger.bundle.standalone.rules import matches

SUBJECTS_MAX = 1_000
EVENTS_MAX = 5_000
TEXT_MAX = 300
DETAILS_MAX = 600
DIGITS = 16
NO_ROLE, GOOD_ROLE = -2, -1
REFS_MAX = 20
NAMES_MAX = 5
CSS = """
body { font: 16px/1.5 sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere }
table { border-collapse: collapse; width: 100% } td, th { text-align: left; vertical-align: top; padding: .2rem .6rem }
tr { border-top: 1px solid #bbb } pre { white-space: pre-wrap } code, pre { font-family: monospace; font-size: .9em }
pre, .note { background: #f3f3f3; color: #111; padding: .6rem 1rem } .doubt { color: #b00020; font-weight: bold }
h3 { margin: 1.6rem 0 .2rem }
"""
WARNING = """<div class="note">
<p><strong>This page proves nothing.</strong> Nobody signed it. It shows the signed entries of this bundle, and anybody
could have edited it. Believe it only after a verifier has checked it: the verifier makes this page again from the
signed entries. It prints INVALID if one byte differs, and says so if it could not check the page.</p>
<p>To verify, run this in the folder of the unpacked bundle:</p>
<pre>python3 -m pip install blake3 pynacl
python3 verify.py --root FINGERPRINT</pre>
<p>The digits after <code>--root</code> are the fingerprint of the root key <em>in this bundle</em>. Use those that you
got from another source instead, such as the person who set the ledger up: anybody can make one with keys of their own.
If you do not trust the sender, take the program from another source, too: <code>pip install deedbook-verify</code>,
then <code>deedbook-verify .</code> with the same option.</p>
<p>The last line is the verdict. VALID: every signature is right, every event was permitted, and nothing was changed. It
does not mean that a handoff was approved, or its result accepted: this page says that of each, below.
VALID_WITH_ERASURES: the same, but the texts of some events were erased, as this page says. SUSPECT_KEY: some
events were signed with a key that was reported stolen, so the thief may have signed them. PARTIAL: the entries that are
here are correct; something is missing, and that line names it. HISTORY_CHANGED: the bundle contradicts your checkpoint.
INVALID: something is wrong. The lines before the verdict say what, and name handoffs that nobody approved, and evidence
that is not in this bundle. <code>gate: closed</code> means that everybody who may approve, or appoint others, stores
their key with a passphrase. <code>gate: open</code>: somebody does not, so a program on their machine could have signed
for them.</p></div>"""
POLICY = f"default-src 'none'; style-src 'sha256-{base64.b64encode(hashlib.sha256(CSS.encode()).digest()).decode()}'"


def escape(text: str) -> str:
    """Return a line with its unprintable characters escaped, because streams and fields may have hostile names."""
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)


def cut(text: str, limit: int = TEXT_MAX) -> str:
    """Return a text of at most ``limit`` characters."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def safe(text: object, limit: int = TEXT_MAX) -> str:
    """Return text of others for the page: cut, and without a character that a browser could take for markup."""
    return f"<bdi>{html.escape(escape(cut(str(text), limit)))}</bdi>"


def when(at_ms: int) -> str:
    """Return a time of the ledger's clock."""
    is_possible = at_ms <= CLOCK_MAX_MS
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if is_possible else "no time"


def row(cells: list[str], tag: str = "td") -> str:
    """Return a row of a table; the cells are markup."""
    return "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in cells) + "</tr>"


def table(heads: list[str], rows: list[list[str]]) -> list[str]:
    """Return a table with a header row if there are ``heads``; without ``rows``, the word None."""
    lines = [row(heads, "th")] if heads else []
    return ["<table>", *lines, *map(row, rows), "</table>"] if rows else ["<p>None.</p>"]


def details(data: Any) -> str:
    """Return the values of an event's data in one line, as plain text."""
    if isinstance(data, dict):
        parts = [(name, details(value)) for name, value in data.items()]
        return "; ".join(f"{name}: {text}" for name, text in parts if text)
    if isinstance(data, list):
        return ", ".join(filter(None, map(details, data)))
    return "" if data is None else str(data)


@dataclass
class Signed:
    """A signed event: its index, time, author and key, its kind and its data in one line.

    ``remnant`` is the digest of the remnant of an erased body, empty if the body is here.
    """

    index: int
    at_ms: int
    author: str
    key: str
    kind: str
    text: str = ""
    remnant: str = ""


@dataclass
class Subject:
    """A handoff, reasoning or session: its first event, its state and who set it, its last texts, its decisions.

    ``refuted`` are the newest refutations of the assumptions of a reasoning, by step and agent. ``claim`` is the status
    in the imported file.
    """

    first: Signed
    claim: str = ""
    state: str = ""
    state_by: Signed | None = None
    texts: dict[str, Any] = field(default_factory=dict)
    decisions: dict[str, Signed] = field(default_factory=dict)
    refuted: dict[tuple[int, str], Signed] = field(default_factory=dict)
    events: int = 0


@dataclass
class Member:
    """An agent: its roles, its identity keys in order, how the last one is stored, its registration and removal."""

    roles: list[str]
    keys: list[str]
    index: int
    protection: str = "none"
    removed: int | None = None


class Page:
    """Collects the events of a bundle in the order of the log, and makes the page."""

    def __init__(self, tables: Any) -> None:
        """Begin without events. ``tables`` are those of `schemas.json`."""
        self.tables = tables
        self.root = ""
        self.count = 0
        self.last: Signed | None = None
        self.kinds: Counter[str] = Counter()
        self.needed: set[str] = set()
        self.agents: dict[str, Member] = {}
        self.delegated: dict[str, tuple[str, int]] = {}
        self.compromised: dict[str, tuple[int, int, str]] = {}
        # (agent, role, index, event) of each grant in order; with None as the event, of each revocation.
        self.grants: list[tuple[str, str, int, Signed | None]] = []
        self.states: dict[tuple[str, str], list[tuple[int, int]]] | None = None
        self.subjects: dict[str, dict[str, Subject]] = {"handoff": {}, "reasoning": {}, "session": {}}
        self.erased: dict[int, Signed] = {}
        # The redactions of each entry: the event, the digest of the remnant that it names, its blobs and its reason.
        self.redactions: dict[int, list[tuple[Signed, str, list[str], str]]] = {}
        self.totals: Counter[str] = Counter()
        self.events: deque[tuple[str, Signed]] = deque(maxlen=EVENTS_MAX)

    def add(self, index: int, at_ms: int, key: str, body: dict[str, Any], stored: bytes, *, is_erased: bool) -> None:
        """Add the next event: its index, its time, the key (hex) that signed it, its body, and the body as ``stored``.

        If the body was erased, ``stored`` is the remnant, and ``body`` is the body in it.
        """
        kind, data, (family, _, name) = str(body["kind"]), body["data"], body["stream"].partition("/")
        signed = Signed(index, at_ms, body["author"], key, kind)
        self.count, self.last = self.count + 1, signed
        if is_erased:
            signed.remnant = f"sha256:{hashlib.sha256(stored).hexdigest()}"
            self.erased[index] = signed
        self.kinds[kind] += 1
        self.needed.update(blobs_in(self.tables, kind, data, stored))
        if family in self.subjects:
            self.add_to_subject(family, name, signed, data)
        if family == "handoff":
            signed.text = details(data)[: DETAILS_MAX + 1]
            self.events.append((name, signed))
        if family in ("ledger", "agent"):
            self.add_authority(signed, data)

    def add_to_subject(self, family: str, name: str, signed: Signed, data: dict[str, Any]) -> None:
        """Add an event of a handoff, reasoning or session."""
        subjects = self.subjects[family]
        if name not in subjects:
            self.totals[family] += 1
            subjects[name] = Subject(signed)
            if len(subjects) > SUBJECTS_MAX:
                del subjects[next(iter(subjects))]
        subject = subjects[name]
        subject.events += 1
        if signed.kind == "reasoning.assumption_settled":
            subject.refuted.pop((data["step"], signed.author), None)
            subject.refuted |= {} if data["holds"] else {(data["step"], signed.author): signed}
            return
        content = data
        if signed.kind == "record.imported":
            content = data.get("mapped", {})
            subject.claim = data.get("claims", {}).get("status") or "nothing about its state"
        subject.decisions[signed.kind.partition(".")[2]] = signed
        fields = self.tables.types[self.tables.kinds[signed.kind][1]]["properties"]
        rows = (row for row in self.tables.rules[family]["rows"] if row["kind"] == signed.kind)
        rule: dict[str, Any] = next((row for row in rows if matches(row.get("when", {}), data, fields)), {})
        records = rule.get("records", [])
        if family != "handoff":
            subject.texts |= content
        elif "content" in records:  # other events have fields of these names, too: a question has its own receiver
            subject.texts = content
        if "to" in rule:
            subject.state, subject.state_by = rule["to"], signed
        if rule.get("to") == "pending":  # a changed handoff needs another approval
            subject.decisions.pop("approved", None)
        if "approval" in records:
            subject.decisions["approved"] = signed

    def add_authority(self, signed: Signed, data: dict[str, Any]) -> None:
        """Add an event of agents or keys."""
        self.states = None
        match signed.kind:
            case "ledger.created":
                self.root = str(data["root"])
                self.agents["root"] = Member(
                    ["admin"], [data["root"]], signed.index, data.get("root_protection", "none")
                )
                self.agents["node"] = Member([], [data["node_key"]], signed.index)
            case "agent.registered":
                protection = data.get("protection", "none")
                self.agents[data["name"]] = Member(sorted(data["roles"]), [data["key"]], signed.index, protection)
                self.grants += [(data["name"], role, signed.index, signed) for role in data["roles"]]
            case "role.granted":
                member = self.member(data["agent"])
                member.roles = sorted({*member.roles, data["role"]})
                self.grants.append((data["agent"], data["role"], signed.index, signed))
            case "role.revoked":
                member = self.member(data["agent"])
                member.roles = sorted({*member.roles} - {data["role"]})
                self.grants.append((data["agent"], data["role"], signed.index, None))
            case "key.rotated":
                member = self.member(data["agent"])
                member.keys, member.protection = [*member.keys, data["key"]], data.get("protection", "none")
            case "key.delegated":
                self.delegated[data["key"]] = (signed.key, signed.index)
            case "key.compromised":
                reason = data.get("reason", "no reason given")
                self.compromised[data["key"]] = (data["since"], signed.index, str(reason))
            case "agent.removed":
                self.member(data["agent"]).removed = signed.index
            case "entry.redacted":
                redaction = (signed, data["remnant"], data.get("blobs", []), str(data["reason"]))
                self.redactions.setdefault(data["entry"], []).append(redaction)
            case _:  # other events of authority change nothing that the page shows
                pass

    def member(self, name: str) -> Member:
        """Return an agent, even if its registration is not in the bundle."""
        return self.agents.setdefault(name, Member([], [], -1))

    def doubt(self, signed: Signed | None, text: str = "signed by") -> str:
        """Return a mark if the signature of an event is compromised, or one on which its author's needed role rests."""
        if signed is None:
            return ""
        report = self.report(signed)
        if report is None:
            report, text = self.role_report(signed, self.roles_for(signed.kind)), "by a role that rests on"
        return "" if report is None else f', <span class="doubt">{text} a key that entry {report} reports stolen</span>'

    def report(self, signed: Signed) -> int | None:
        """Return the entry that reports the signature of an event as compromised, after all reports in the bundle.

        A key that a thief delegated belongs to the thief. A delegated key cannot delegate another one.
        """
        for signer, at in ((signed.key, signed.index), self.delegated.get(signed.key, ("", 0))):
            if signer in self.compromised and at >= self.compromised[signer][0]:
                return self.compromised[signer][1]
        return None

    def role_report(self, signed: Signed, roles: list[str]) -> int | None:
        """Return the entry whose report makes the author's grants of these roles void; None if a grant counts."""
        histories = (self.role_states().get((signed.author, role), []) for role in roles)
        states = [history[at - 1][1] for history in histories if (at := bisect_left(history, (signed.index,)))]
        reports = [state for state in states if state != NO_ROLE]
        return min(reports) if reports and GOOD_ROLE not in reports else None

    def role_states(self) -> dict[tuple[str, str], list[tuple[int, int]]]:
        """Return the history of each (agent, role): pairs of an index and the state of the role since then.

        The state is ``NO_ROLE``, ``GOOD_ROLE``, or, if all its grants rest on compromised keys, the entry that reports
        such a key. A grant rests on the key that signed it and on the role of its author.
        """
        if self.states is None:
            self.states, now = {}, dict[tuple[str, str], int]()
            for name, role, index, grant in self.grants:
                state, before = NO_ROLE, now.get((name, role), NO_ROLE)
                if grant is not None:
                    report, admin = self.report(grant), now.get((grant.author, "admin"), NO_ROLE)
                    state = max(admin, GOOD_ROLE) if report is None else report
                    state = state if before == NO_ROLE else min(state, before)
                now[name, role] = state
                self.states.setdefault((name, role), []).append((index, state))
        return self.states

    def roles_for(self, kind: str) -> list[str]:
        """Return the roles for a decision on a handoff; its author needs one of them."""
        rows = (rule for rule in self.tables.rules["handoff"]["rows"] if rule["kind"] == kind)
        return next((rule["roles"] for rule in rows if "roles" in rule), [])

    def redaction(self, index: int) -> tuple[Signed, str, list[str], str] | None:
        """Return the redaction of an entry: the last that names its remnant, if the entry is erased here."""
        remnant = self.erased[index].remnant if index in self.erased else None
        named = [redaction for redaction in self.redactions.get(index, []) if remnant in (None, redaction[1])]
        return named[-1] if named else None

    def redacted(self, index: int) -> str:
        """Return by whom, when and why the body of an erased entry was redacted, as plain text."""
        redaction = self.redaction(index)
        if redaction is None:
            return "redacted by nobody"
        signed, _, _, reason = redaction
        return f"redacted by {signed.author} on {when(signed.at_ms)}: {reason}"

    def unapproved(self) -> list[str]:
        """Return the line about the newest handoffs that nobody has approved: VALID does not mean approved."""
        names = [name for name, subject in self.subjects["handoff"].items() if "approved" not in subject.decisions]
        listed = ", ".join(f"handoff/{name}" for name in reversed(names[-NAMES_MAX:]))
        more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
        return [f"approved by nobody: {listed}{more}"] if names else []

    def signer(self, signed: Signed | None) -> str:
        """Return who signed an event, and where."""
        if signed is None:
            return "nobody"
        return f"{safe(signed.author)}, entry {signed.index}, {when(signed.at_ms)}{self.doubt(signed)}"

    def to_html(self, manifest: dict[str, Any]) -> bytes:
        """Return the page for the bundle with this manifest."""
        is_key = re.fullmatch("[0-9a-f]{64}", self.root)
        fingerprint = blake3(bytes.fromhex(self.root)).hexdigest() if is_key else "unknown"
        title = f"Bundle of the ledger {html.escape(escape(manifest['origin']))}"
        lines = [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width">',
            f"<title>{title}</title>",
            f"<style>{CSS}</style></head><body>",
            f"<h1>{title}</h1>",
            WARNING.replace("FINGERPRINT", fingerprint),
            *self.state_of(manifest, fingerprint),
            *self.handoffs(),
            *self.reasonings(),
            *self.sessions(),
            *self.erasures(),
            "<h2>All events</h2>",
            *table(["kind", "number"], [[safe(kind), str(count)] for kind, count in sorted(self.kinds.items())]),
            *self.signers(),
            "</body></html>",
        ]
        return "\n".join([*lines, ""]).encode()

    def state_of(self, manifest: dict[str, Any], fingerprint: str) -> list[str]:
        """Return the state that the verdict is about, and what the bundle lacks."""
        size, stream = manifest["size"], manifest["stream"]
        content = "all streams" if stream is None else f"the stream {safe(stream)}, and the streams that its rules read"
        lacking = f"none up to entry {size - 1}"
        if stream is not None:
            lacking = (
                f"{size - self.count} of {size} entries: all other handoffs, sessions and reasonings of this ledger"
            )
        lacking += ". Newer entries of the ledger may be left out, too: see below"
        redactions = [redaction for index in self.redactions if (redaction := self.redaction(index)) is not None]
        erased = {ref for _, _, refs, _ in redactions for ref in refs}
        missing = sorted(self.needed - erased - {*manifest["blobs"]})
        listed = "".join(f"<br><code>{safe(ref)}</code>" for ref in missing[:REFS_MAX])
        rows = [
            ["ledger", f"<code>{safe(manifest['ledger'])}</code>"],
            ["fingerprint of the root key", f"<code>{fingerprint}</code>"],
            ["state", f"a log of {size} entries with the tree head <code>{safe(manifest['root'])}</code>"],
            ["signed by", "the ledger's checkpoint key, in the file <code>checkpoint</code>"],
            ["last entry here", self.signer(self.last)],
            ["content", content],
            ["entries left out", lacking],
            [
                "files that an entry needs, missing when this bundle was made",
                f"{len(missing)}{listed}" if missing else "none",
            ],
        ]
        later = (
            "<p>Without a checkpoint, VALID does not exclude that the ledger has newer entries, which the sender left "
            "out. Get a <em>checkpoint</em> (the signed size and tree head of the log) from another source, for "
            "example by mail from somebody who can read the ledger, or from a witness. Store it in a file, and run "
            "<code>python3 verify.py --root FINGERPRINT --checkpoint FILE</code>. VALID then says that the bundle is "
            "complete up to this checkpoint. PARTIAL says how many of the newest entries are missing, and "
            "HISTORY_CHANGED that the checkpoint contradicts this bundle.</p>"
        )
        return ["<h2>What this bundle is</h2>", *table([], rows), later]

    def handoffs(self) -> list[str]:
        """Return each handoff with its state, its decisions and its events."""
        lines = self.heading("handoff", "Handoffs")
        states, of = self.tables.rules["handoff"]["states"], dict[str, list[Signed]]()
        for name, signed in self.events:
            of.setdefault(name, []).append(signed)
        for name, subject in self.subjects["handoff"].items():
            state, texts, decisions = states.get(subject.state, {}), subject.texts, subject.decisions
            meaning = state.get("meaning", state.get("next", ""))
            events, approved, verified = of.get(name, []), decisions.get("approved"), decisions.get("verified")
            doubt = self.doubt(subject.state_by, "but this rests on") or self.doubt(approved, "but this rests on")
            rows = [
                ["state", f"<strong>{safe(state.get('status', subject.state))}</strong>: {safe(meaning)}{doubt}"],
                ["imported by" if subject.claim else "created by", self.signer(subject.first)],
                ["given to", safe(texts.get("to") or "nobody")],
                ["reviewer", safe(texts.get("reviewer") or "nobody but its sender")],
                ["approved by", self.signer(approved)],
                ["result accepted by", self.signer(verified)],
            ]
            if subject.state == "imported":
                claim = f"{safe(subject.claim)}. This is only a claim: nobody has confirmed it in this ledger"
                rows.insert(1, ["its imported file says", claim])
            lines += [f"<h3>{safe(texts.get('title', name))}</h3>", f"<p><code>handoff/{safe(name)}</code></p>"]
            lines += table([], rows)
            if subject.events > len(events):
                lines.append(f"<p>{subject.events - len(events)} earlier events are not shown.</p>")
            lines += table(["entry", "time", "signed by", "event", "content"], [self.event_row(one) for one in events])
        return lines

    def event_row(self, signed: Signed) -> list[str]:
        """Return the cells of an event."""
        key = f"{safe(signed.author)}, key <code>{signed.key[:DIGITS]}</code>{self.doubt(signed)}"
        text = self.redacted(signed.index) if signed.remnant else signed.text
        return [str(signed.index), when(signed.at_ms), key, safe(signed.kind), safe(text, DETAILS_MAX)]

    def reasonings(self) -> list[str]:
        """Return each reasoning with its conclusion."""
        rows = [
            [
                f"<code>{safe(name)}</code>",
                safe(subject.first.author),
                safe(subject.texts.get("task", "")),
                safe(subject.texts.get("conclusion") or "not concluded"),
                self.signer(subject.decisions.get("concluded")),
                "; ".join(f"step {step}, by {self.signer(signed)}" for (step, _), signed in subject.refuted.items())
                or "none",
            ]
            for name, subject in self.subjects["reasoning"].items()
        ]
        heads = ["reasoning", "begun by", "question", "conclusion", "concluded by", "refuted assumptions"]
        return self.heading("reasoning", "Reasonings") + table(heads, rows)

    def sessions(self) -> list[str]:
        """Return each session with its task."""
        rows = [
            [
                f"<code>{safe(name)}</code>",
                safe(subject.texts.get("task", "")),
                self.signer(subject.first),
                self.signer(subject.decisions["ended"]) if "ended" in subject.decisions else "open",
                str(subject.events),
            ]
            for name, subject in self.subjects["session"].items()
        ]
        heads = ["session", "task", "begun by", "ended by", "events"]
        return self.heading("session", "Sessions") + table(heads, rows)

    def erasures(self) -> list[str]:
        """Return the events whose bodies were erased, if there are any, and the redactions that name them."""
        if not self.erased:
            return []
        newest = list(self.erased.values())[-EVENTS_MAX:]
        left_out = [f"<p>The newest {len(newest)} are shown.</p>"] if len(self.erased) > len(newest) else []
        rows = [
            [str(one.index), when(one.at_ms), safe(one.author), safe(one.kind), safe(self.redacted(one.index))]
            for one in newest
        ]
        meaning = (
            "<p>The texts of these events were erased, and the page shows <code>[redacted]</code> or <code>*</code> "
            "instead. The signatures cover the erased texts. Nobody without the texts can check that the rest of such "
            "an event is what its author signed: those who redacted it say so.</p>"
        )
        table_of = table(["entry", "time", "signed by", "event", "redaction"], rows)
        return [f"<h2>Erased entries ({len(self.erased)})</h2>", meaning, *left_out, *table_of]

    def heading(self, family: str, title: str) -> list[str]:
        """Return the heading of a list, and how many of its older subjects are not shown."""
        total, count = self.totals[family], len(self.subjects[family])
        left_out = [f"<p>The newest {count} of {total} are shown.</p>"] if total > count else []
        return [f"<h2>{title} ({total})</h2>", *left_out]

    def signers(self) -> list[str]:
        """Return the agents that could sign, with their identity keys."""
        rows = []
        for name, member in self.agents.items():
            keys = "<br>".join(f"<code>{safe(key)}</code>{self.reported(key)}" for key in member.keys)
            ended = "" if member.removed is None else f"removed by entry {member.removed}"
            cells = [
                safe(name),
                safe(", ".join(member.roles)),
                keys,
                "yes" if member.protection == "passphrase" else "no",
                str(member.index),
                ended,
            ]
            rows.append(cells)
        heads = ["agent", "roles", "identity keys (Ed25519, the last one is in use)", "stored with a passphrase"]
        heads += ["registered by entry", ""]
        meaning = "<p>Whether a key is stored with a passphrase is what its owner's program said: nobody can check it."
        meaning += " Without one, every program on the owner's machine can sign, also an approval.</p>"
        return ["<h2>Who could sign</h2>", *table(heads, rows), meaning]

    def reported(self, key: str) -> str:
        """Return a mark if a key was reported stolen."""
        if key not in self.compromised:
            return ""
        since, index, reason = self.compromised[key]
        return (
            f' <span class="doubt">reported stolen by entry {index}, for all events from entry {since} on</span>'
            f"<br>reason: {safe(reason)}"
        )
