"""`deed key`: session keys with a time limit and a scope, replacement of keys, and reports of stolen keys."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import click

from deedbook.consumers.interfaces.cli.app import App, Group
from deedbook.consumers.interfaces.cli.commands.agents import new_passphrase, wait_until_let_in
from deedbook.consumers.interfaces.cli.durations import parse_ttl
from deedbook.consumers.interfaces.cli.output import print_table, reason_option, short_key
from deedbook.consumers.interfaces.cli.verbs import ListOption
from deedbook.consumers.sdk.rotation import rotate_agent, rotate_checkpoint
from deedbook.consumers.sdk.times import parse_moment
from deedbook.ledger.client.author import Draft
from deedbook.ledger.client.client import every_row
from deedbook.ledger.client.factory import open_client
from deedbook.ledger.errors import Refused, did_you_mean, near
from deedbook.ledger.events import KINDS
from deedbook.ledger.events.authority import (
    AgentInvited,
    AgentRegistered,
    KeyCompromised,
    KeyDelegated,
    KeyRevoked,
    RoleGranted,
    RoleRevoked,
)
from deedbook.ledger.events.body import Event
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.events.handoff import HandoffAmended, HandoffCreated, HandoffCriterionWaived
from deedbook.ledger.events.review import ReviewAnswered
from deedbook.ledger.format.identity import Key, KeyFile, read_key_file, write_session_key
from deedbook.ledger.home.trust import fingerprint
from deedbook.ledger.lifecycle.authority import ROOT, to_ms
from deedbook.ledger.lifecycle.clock import clock_text


@click.group(cls=Group)
def key() -> None:
    """List signing keys; delegate, rotate and revoke them.

    To change the passphrase of a key, replace the key: `deed key rotate --as NAME --lost` asks for a new one, and root
    signs.
    """


@key.command()
@click.option("--ttl", default="12h", show_default=True, help="How long it is valid: 30m, 12h, 7d.")
@click.option(
    "--kind", "kinds", cls=ListOption, help="A kind it may sign, or a prefix such as session.* (default: any)."
)
@click.option("--stream", "streams", cls=ListOption, help="A stream it may write, or a prefix (default: any).")
@click.option("--max-events", type=click.IntRange(1), help="How many events it may sign.")
def delegate(app: App, ttl: str, kinds: tuple[str, ...], streams: tuple[str, ...], max_events: int | None) -> None:
    """Make a session key for the acting agent (--as) and write it to keys/NAME.session.

    It can sign the agent's events until it expires, but never approvals.
    """
    name = app.acting()
    home, client = app.ledger_home(), app.client()
    session = Key.generate()
    until = datetime.now(UTC) + parse_ttl(ttl)
    expires_at = until.isoformat(timespec="seconds").replace("+00:00", "Z")
    delegated = KeyDelegated(
        key=session.public.hex(),
        proof=session.prove_possession(client.ledger, name),
        expires_at=expires_at,
        kinds=list(kinds),
        streams=list(streams),
        max_events=max_events,
    )
    accepted = app.author().emit(Draft(stream=f"agent/{name}", data=delegated))[0]
    path = home.session_file(name)
    content = KeyFile(
        ledger=client.ledger,
        name=name,
        public=session.public.hex(),
        seed=session.seed.hex(),
        expires_at=expires_at,
        kinds=list(kinds),
        streams=list(streams),
    )
    write_session_key(path, content)
    data = {"name": name, "key": content.public, "expires_at": expires_at, "file": str(path), "index": accepted.index}
    app.show("key", data, f"{path} signs for {name} until {expires_at} (entry {accepted.index})")


@key.command()
@click.argument("public_key")
@reason_option
def revoke(app: App, public_key: str, reason: str) -> None:
    """Revoke a key, named by its public key in hex or a unique prefix. Its owner or an admin signs."""
    key = _key_of(app, public_key)
    data = KeyRevoked(key=key["key"], reason=reason)
    accepted = app.author().emit(Draft(stream=f"agent/{key['agent']}", data=data))[0]
    answer = {"key": data.key, "agent": key["agent"], "index": accepted.index}
    app.show("key", answer, f"revoked {short_key(data.key)} of {answer['agent']} at {accepted.index}")


@key.command()
@click.option("--lost", is_flag=True, help="The old key is lost or ended; root signs instead.")
@click.option("--by", metavar="ADMIN", help="With --lost: the admin that signs (default: root).")
@click.option("--checkpoint", is_flag=True, help="Replace the key that signs checkpoints; signed by root.")
@click.option("--unprotected", is_flag=True, help="Leave the new key unsealed, as the old one is, or with --lost.")
@reason_option
def rotate(app: App, *, lost: bool, by: str | None, checkpoint: bool, unprotected: bool, reason: str) -> None:
    """Replace the identity key of the acting agent (--as), and its key for the bus with it.

    The old key signs the change, and is invalid afterwards. Session keys that it delegated end with it. Its earlier
    signatures stay valid. The new key files replace the old ones and are sealed with the same passphrase. If the old
    key has none, the passphrase of the new key is read first, as in `agent add`: for root, an admin, a reviewer or a
    human, you type it on the terminal; --passphrase-fd gives it for any agent.

    With --lost, root signs for a human, reviewer, admin or node. For any other agent, an admin may sign too. The new
    key needs a passphrase as if the old one had none.

    --as root replaces the root key: the ledger's id and its root fingerprint stay. --checkpoint replaces the key that
    signs checkpoints. If the command is interrupted, run it again: it continues.
    """
    if checkpoint:
        if lost or by or unprotected or app.settings().agent not in (None, ROOT):
            raise Refused("USAGE", "only root replaces the checkpoint key: give --checkpoint alone, or with --as root")
        _rotate_checkpoint(app, reason)
        return
    if by and not lost:
        raise Refused("USAGE", "--by needs --lost")
    _rotate_agent(app, app.acting(), signer=(by or ROOT) if lost else None, unprotected=unprotected, reason=reason)


def _rotate_agent(app: App, name: str, *, signer: str | None, unprotected: bool, reason: str) -> None:
    home = app.ledger_home()
    roles = next((agent.roles for agent in app.client().agents() if agent.name == name), ())
    if signer is not None:
        passphrase = new_passphrase(app, name, roles, unprotected=unprotected)
    elif read_key_file(home.key_file(name)).sealed is not None:
        if unprotected:
            message = "a sealed key is replaced by a sealed one: omit --unprotected, or let root sign with --lost"
            raise Refused("USAGE", message)
        passphrase = app.ask_passphrase(name)
        another = f"deed key rotate --as {name} --lost"
        app.check_last_passphrase(f"the new key keeps the passphrase; for another one, `{another}`")
    else:
        passphrase = new_passphrase(app, name, roles, unprotected=unprotected)
    rotated, accepted = rotate_agent(
        app.author(signer or name),
        home,
        name,
        passphrase=passphrase,
        reason=reason,
        reopen=lambda: open_client(app.settings()),
    )
    if rotated.nkey is not None:
        wait_until_let_in(app, home, name)
    path = home.key_file(name)
    data = {
        "name": name,
        "key": rotated.key,
        "nkey": rotated.nkey,
        "index": accepted.index,
        "file": str(path),
        "signed_by": signer or name,
    }

    text = [f"the key of {name} was replaced at entry {accepted.index} by {short_key(rotated.key)}"]
    text.append(f"  key file  {path}{'  (sealed)' if passphrase else ''}")
    if name == ROOT:
        first = fingerprint(bytes.fromhex(read_event(0, app.client().entry(0)).key))
        text.append(f"  auditors continue to use the fingerprint of the first root key: {first}")
    app.show("key", data, text)


def _rotate_checkpoint(app: App, reason: str) -> None:
    client = app.local_client()
    rotated, accepted = rotate_checkpoint(client, app.author(ROOT), app.ledger_home(), reason=reason)
    app.show(
        "key",
        {"key": rotated.key, "index": accepted.index},
        [
            f"checkpoints of more than {accepted.index} entries are signed with {short_key(rotated.key)}",
            "Next: deed checkpoint, and give its key to everybody who has the old one",
        ],
    )


@key.command()
@click.argument("key_or_agent", metavar="KEY|AGENT")
@click.option(
    "--since", required=True, metavar="INDEX|TIME", help="The first entry that the thief may have signed, or a time."
)
@reason_option
def compromised(app: App, key_or_agent: str, since: str, reason: str) -> None:
    """Report that a key was stolen. Its signatures from --since on are then shown as compromised.

    With an AGENT, every identity key that the agent had since then is reported. A reported key can sign nothing any
    more. The signatures of session keys that it delegated since then are compromised, too. Nothing is deleted. No later
    claim may rest on an approval, verification or waiver with such a signature until it is made again, nor on a
    completion until its reviewer verifies it, nor on a role or registration until somebody else grants it again. The
    answer lists them, and the decisions that keep their effect, such as a rejection: look at each. The agent itself
    signs the report (--as), or an admin; without --as, root signs. Replace a key of root or of a node first, with `deed
    key rotate`.
    """
    key = _key_of(app, key_or_agent)
    index = _first_since(app, since)
    data = KeyCompromised(key=key["key"], since=index, reason=reason)
    earlier = _earlier_keys(app, key, index) if key_or_agent == key["agent"] else []
    author = app.author(app.settings().agent or ROOT)
    # The present key comes last, because it may be the one that signs this.
    events = [
        KeyCompromised(key=compromised_key, since=index, reason=reason) for compromised_key in (*earlier, data.key)
    ]
    accepted = author.emit(*(Draft(stream=f"agent/{key['agent']}", data=each) for each in events))[-1]
    introduced = _introduced(app, data)
    decisions = list(_decisions(app, key["agent"], index))
    answer = {
        "key": data.key,
        "agent": key["agent"],
        "since": index,
        "index": accepted.index,
        "earlier": earlier,
        "introduced": introduced,
        "decisions": decisions,
    }
    text = [f"{short_key(data.key)} of {key['agent']} is compromised since entry {index}, says {accepted.index}"]
    text += [f"So is {short_key(old)}, which was its key then" for old in earlier]
    for row in introduced:
        short, at = short_key(row["key"]), row["since_index"]
        text.append(f"It brought in {short} of {row['agent']} at entry {at}, which is valid:")
        text.append(f"  if that is not theirs either: deed key compromised {short} --since {at}")
    text += _decision_lines(decisions)
    app.show(
        "key",
        answer,
        [*text, f"Next: deed key rotate --as {key['agent']} --lost, unless the agent is no longer needed"],
    )


def _earlier_keys(app: App, present: dict[str, Any], since: int) -> list[str]:
    """Return the agent's former identity keys that were valid at some time since then and are not yet compromised."""
    keys = app.query("agents.keys", agent=present["agent"])["items"]
    return [
        row["key"]
        for row in keys
        if row["type"] == "identity" and row["key"] != present["key"]
        if row["ended_index"] > since and (row["compromised_since"] is None or row["compromised_since"] > since)
    ]


_GRANTS: Final = frozenset(name for name, kind in KINDS.items() if kind.stream == "agent")
_DECISIONS: Final = {
    "handoff.approved": "approval",
    "handoff.completed": "completion",
    "handoff.verified": "verification",
    "reasoning.validated": "validation",
}
# Events of these kinds refuse or end something. No later event needs them, so they keep their effect after a report of
# their key.
_LASTING: Final = {
    "handoff.rejected": "rejection",
    "handoff.changes_requested": "request for changes",
    "handoff.cancelled": "cancellation",
    "handoff.superseded": "replacement",
    "handoff.question_settled": "settling of a question",
    "agent.removed": "removal",
    "agent.invitation_revoked": "revoked invitation",
    "key.revoked": "revocation of a key",
}


def _decisions(app: App, thief: str, since: int) -> Iterator[dict[str, Any]]:
    """Yield, agent by agent, the grants and decisions since an entry that have a compromised signature.

    This includes those by agents whose role rests on such a signature. ``lasts`` says that it still has its effect.
    """
    authors = [thief]
    for author in authors:  # the list grows meanwhile
        for row in _marked_events(app, author, since):
            event = read_event(row["event_index"], app.client().entry(row["event_index"]))
            what, lasts = _decision_of(event)
            if isinstance(event.data, AgentRegistered | AgentInvited | RoleGranted) and event.name not in authors:
                authors.append(event.name)
            if what:
                command = f"deed show {row['event_index']}"
                of_event = {name: row[name] for name in ("event_index", "author", "kind", "stream")}
                yield of_event | {"what": what, "lasts": lasts, "command": command}


def _decision_of(event: Event) -> tuple[str, bool]:
    """Return what an event decided (empty: nothing), and whether it has its effect after the report of its key."""
    data, name = event.data, event.name
    match data:
        case AgentRegistered() | AgentInvited():
            verb = "registration" if isinstance(data, AgentRegistered) else "invitation"
            return f"the {verb} of {name} as {', '.join(data.roles) or 'an agent without a role'}", False
        case RoleGranted():
            return f"the role {data.role} of {name}", False
        case RoleRevoked():
            return f"the loss of the role {data.role} of {name}", True
        case HandoffCriterionWaived():
            criterion = f"criterion {data.position + 1} of {name}"
            return (
                (f"the waiver of {criterion}", False) if data.granted else (f"the refusal to waive {criterion}", True)
            )
        case HandoffCreated() | HandoffAmended() if data.reviewer is None:
            return f"{name}, which needed no approval", False
        case HandoffAmended() if data.hands_over:
            return f"the hand-over of the review of {name} to {data.reviewer}, and what {data.reviewer} decided", False
        case ReviewAnswered():
            return f"the answer to the review {name}", False
        case _ if event.kind in _LASTING:
            return f"the {_LASTING[event.kind]} of {name}", True
        case _:  # event data is an open set
            return (f"the {_DECISIONS[event.kind]} of {name}" if event.kind in _DECISIONS else ""), False


def _decision_lines(decisions: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the decisions with a compromised key, each with the command that shows it, and advice about them."""
    for lasts, heading in (
        (False, "Nothing later may rest on these entries:"),
        (True, "These entries keep their effect, so look at each:"),
    ):
        rows = [row for row in decisions if row["lasts"] == lasts]
        yield from [heading] * bool(rows)
        yield from (f"  entry {row['event_index']} by {row['author']}: {row['what']}: {row['command']}" for row in rows)
    kinds = {row["kind"] for row in decisions if not row["lasts"]}
    if "handoff.completed" in kinds:
        yield "Let a reviewer judge each result again: `deed handoff verify` or `deed handoff request-changes`."
    if kinds & _GRANTS:
        yield "Grant a role again (`deed agent grant-role`) or remove the agent (`deed agent remove`)."


def _marked_events(app: App, author: str, since: int) -> Iterator[dict[str, Any]]:
    begins = {"after": since - 1} if since else {}
    rows = every_row(app.plain, "catalog.find", {"author": author, **begins})
    yield from (row for row in rows if "compromised" in row and row["event_index"] >= since)


def _introduced(app: App, event: KeyCompromised) -> list[dict[str, Any]]:
    """Return the valid identity keys that the compromised one introduced since then.

    It registered them, or replaced other keys by them. Also return keys that such a key has introduced for the same
    agent since, because a thief may have rotated it.
    """
    keys = [row for row in app.query("agents.keys")["items"] if row["type"] == "identity"]
    agents, valid = dict[str, str](), []
    for row in sorted(keys, key=lambda row: int(row["since_index"])):
        if row["since_index"] < event.since:
            continue
        signer = read_event(row["since_index"], app.client().entry(row["since_index"])).key
        if signer == event.key or agents.get(signer) == row["agent"]:
            agents[row["key"]] = row["agent"]
            valid += [{name: row[name] for name in ("agent", "key", "since_index")}] * (row["state"] == "valid")
    return valid


def _first_since(app: App, text: str) -> int:
    """Return the index in ``text``; for a time, the index after the last entry that was accepted before it."""
    since = parse_moment(text, "since")
    if since.isdecimal():
        if int(since) >= (size := app.client().head().size):
            raise Refused("NOT_FOUND", f"there is no entry {since}: the last one is {size - 1}", index=int(since))
        return int(since)
    try:
        before = app.query("catalog.instant", at=clock_text(to_ms(since) - 1))
    except Refused as error:
        if error.code != "NOT_FOUND":
            raise
        return 0  # no entry is earlier than the given time
    if before["event_index"] + 1 == before["size"]:
        raise Refused("NOT_FOUND", f"no entry was accepted since {text}: give an earlier time, or an index")
    return int(before["event_index"]) + 1


@key.command("list", looks_back=True)
@click.option("--agent", "name", help="Only the keys of this agent.")
def list_keys(app: App, name: str | None) -> None:
    """List identity, session and checkpoint keys: how many events each may still sign, and how it ended."""
    answer = app.query("agents.keys", agent=name)
    rows = []
    for row in answer["items"]:
        state = str(row["state"])
        state += "" if row["ended_index"] is None else f" at {row['ended_index']} by {row['ended_by']}"
        if row["events_left"] is not None and row["state"] in ("valid", "exhausted"):
            state += f", {row['events_left']} of {row['max_events']} events left"
        state += "" if row["compromised_since"] is None else f", compromised since {row['compromised_since']}"
        passphrase = {"passphrase": "yes", "none": "no"}.get(row["protection"], "")
        rows.append((row["agent"], row["type"], short_key(row["key"]), state, passphrase, row["expires_at"] or ""))
    columns = ("agent", "type", "key", "state", "passphrase", "expires")
    app.show("agents.keys", answer, lambda: print_table(columns, rows))


def _key_of(app: App, wanted: str) -> dict[str, Any]:
    """Return the key that ``wanted`` names: an agent (its identity key), or the beginning of a public key in hex."""
    keys: list[dict[str, Any]] = app.query("agents.keys")["items"]
    current = {agent.name: agent.key for agent in app.client().agents()}
    matches = [row for row in keys if row["key"] == current.get(wanted)]
    matches = matches or [row for row in keys if row["key"].startswith(wanted.lower())]
    if not matches:
        alike = near(wanted, current)
        hint = did_you_mean(alike) or ": `deed key list` shows them"
        message = f"no key begins with {wanted}, and no agent has that name{hint}"
        raise Refused("NOT_FOUND", message, reference=wanted, near=alike, candidates=[])
    if len(matches) != 1:
        message = f"{len(matches)} keys begin with {wanted}, and no agent has that name: `deed key list` shows them"
        raise Refused("REF_AMBIGUOUS", message, candidates=[row["key"] for row in matches])
    return matches[0]
