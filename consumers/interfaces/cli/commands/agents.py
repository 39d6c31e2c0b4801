"""`deed agent`: registers, invites and removes the agents that may write to the ledger."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Collection
from datetime import timedelta
from pathlib import Path
from shlex import quote
from typing import Any, Final, get_args

import click
import msgspec

from deedbook.consumers.interfaces.cli.app import App, Group
from deedbook.consumers.interfaces.cli.durations import parse_ttl
from deedbook.consumers.interfaces.cli.output import (
    print_fields,
    print_lines,
    print_table,
    reason_option,
    short_key,
    warn,
)
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.interfaces.cli.verbs import ListOption, load
from deedbook.consumers.sdk.service import register_agent
from deedbook.consumers.sdk.text import counted
from deedbook.ledger.client.author import Author, Draft
from deedbook.ledger.client.factory import open_client
from deedbook.ledger.client.invitation import Invitation, new_token
from deedbook.ledger.client.local import now_ms
from deedbook.ledger.errors import Refused, Unavailable, did_you_mean, near
from deedbook.ledger.events.authority import AgentInvitationRevoked, AgentRemoved, Role, RoleGranted, RoleRevoked
from deedbook.ledger.format.identity import read_key_file
from deedbook.ledger.home.config import check_name, check_server
from deedbook.ledger.home.home import Home
from deedbook.ledger.home.trust import root_in
from deedbook.ledger.lifecycle.authority import NODE, NODE_ROLE, RESERVED_NAMES, ROOT
from deedbook.ledger.lifecycle.clock import clock_text
from deedbook.ledger.lifecycle.gate_state import TRUSTED_ROLES

left_open_max: Final = 5
dynamic_ports: Final = (49152, 65535)
"""RFC 6335, section 6; used where the system does not say which ports it chooses."""
UNPROTECTED_HELP: Final = (
    "Store the key without a passphrase. Any process of this user can then sign with it. If it is the key of root, an "
    "admin, a reviewer or a human, every verdict says `gate: open`."
)
_TO_REACH: Final = "make an SSH tunnel, or a TCP proxy and name it by --address URL (see deploy/README.md)"
_ROLES: Final = click.Choice([role for role in get_args(Role) if role != NODE_ROLE])
_RIGHTS: Final[dict[Role, str]] = {
    "agent": "writes and receives work",
    "reviewer": "approves and verifies work of others",
    "human": "approves work, also its own, and answers reviews",
    "service": "announces and forwards work",
    "admin": "registers agents and grants roles",
}
let_in_wait_max_s: Final = 30.0
let_in_poll_s: Final = 0.05


@click.group(cls=Group)
def agent() -> None:
    """Register, invite and remove agents; change roles."""


@agent.command()
@click.argument("name")
@click.option(
    "--role",
    "roles",
    cls=ListOption,
    help="A role of the agent (default: agent). May be given more than once.",
    type=_ROLES,
)
@click.option("--ai-id", default="", help="A label, such as claude-sonnet-4.5. It grants no rights.")
@click.option(
    "--unprotected",
    is_flag=True,
    help=UNPROTECTED_HELP,
)
def add(app: App, name: str, roles: tuple[Role, ...], ai_id: str, *, unprotected: bool) -> None:
    """Make keys for a new agent and register it, as root or as the admin that --as or DEEDBOOK_AGENT names.

    The key of a human, reviewer or admin is sealed with a passphrase, which you type on the terminal. A script gives it
    with --passphrase-fd, and the key of any agent is sealed then. Each line is a passphrase: first that of the new key,
    then that of the signer's key, if that is sealed; one line is both. With --unprotected, the new key has none.
    """
    check_name(name)
    roles = roles or ("agent",)
    home = app.ledger_home()
    author = admin_author(app)
    check_is_free(app, name)
    passphrase = new_passphrase(app, name, roles, unprotected=unprotected)
    registered, accepted = register_agent(author, home, name, roles, ai_id=ai_id, passphrase=passphrase)
    wait_until_let_in(app, home, name)
    data = {"name": name, "roles": list(roles), "key": registered.key, "nkey": registered.nkey, "index": accepted.index}
    file = f"  key file  {home.key_file(name)}{'  (sealed)' if passphrase else ''}"
    opens = passphrase is None and not TRUSTED_ROLES.isdisjoint(roles)
    gate = [f"  gate: {app.client().streams.gate_state()}"] if opens else []
    if passphrase and TRUSTED_ROLES.isdisjoint(roles):
        gate = ["  sealed with the passphrase that you gave. An agent that works alone needs a key without one:"]
        gate.append(f"  deed key rotate --as {name} --lost --unprotected")
    text = f"{name} is registered at entry {accepted.index} as {', '.join(roles)}"
    app.show("agent", data, [text, file, *gate])


@agent.command()
@click.argument("name")
@click.option(
    "--role",
    "roles",
    cls=ListOption,
    type=click.Choice(get_args(Role)),
    help="A role of the agent (default: agent). May be given more than once.",
)
@click.option(
    "--expires",
    metavar="TIME",
    default="24h",
    show_default=True,
    help="How long the invitation is valid: 30m, 12h, 7d.",
)
@click.option(
    "--address",
    metavar="URL[,URL]",
    help="The server's address as the other machine reaches it (default: its address on this machine).",
)
@click.option("--revoke", is_flag=True, help="Revoke the open invitation of NAME instead.")
@click.option("--reason", default="no reason given", help="With --revoke: the reason.")
def invite(
    app: App, name: str, roles: tuple[Role, ...], *, expires: str, address: str | None, reason: str, revoke: bool
) -> None:
    """Print an invitation code. One agent on another machine joins as NAME with it, by `deed join`.

    The code works once. Keep it secret until it is used. The agent's private key is made on the other machine and
    stays there. Root signs the invitation, or the admin that --as or DEEDBOOK_AGENT names. Only root can invite a node.
    """
    check_name(name)
    author = admin_author(app)
    if revoke:
        taken = author.emit(Draft(stream=f"agent/{name}", data=AgentInvitationRevoked(name=name, reason=reason)))[0]
        data: dict[str, Any] = {"name": name, "index": taken.index, "reason": reason}
        app.show("invitation", data, f"the invitation of {name} was taken back at entry {taken.index}")
        return
    check_is_free(app, name)
    expires_ms = now_ms() + parse_ttl(expires) // timedelta(milliseconds=1)
    server = address or _server_here(app)
    servers = check_server(server).split(",") if server else []
    root = root_in(app.client().entry(0))
    invitation = Invitation(root, name, list(roles or ("agent",)), new_token(), servers, expires_ms)
    accepted = author.emit(Draft(stream=f"agent/{name}", data=invitation.make_invited()))[0]
    if (url := _server_here(app)) is not None:
        connect = load("...ledger.bus.loop_thread:Connection")
        _wait_until(lambda: connect(url, name, invitation.bus_seed).close())
    until = clock_text(expires_ms)
    data = {
        "name": name,
        "roles": invitation.roles,
        "code": invitation.code,
        "servers": servers,
        "expires_at": until,
        "index": accepted.index,
    }
    app.show(
        "invitation",
        data,
        [
            f"{name} is invited at entry {accepted.index} as {', '.join(invitation.roles)}, once, until {until}",
            f"  server  {', '.join(servers) or '-  (the joining agent names one with --server)'}",
            "Send this only to the person you invite. They run it in a separate folder:",
            f"  deed join{' --node' if NODE_ROLE in roles else ''} {invitation.code}",
        ],
    )
    if not app.as_json:
        _advise(app, servers, is_chosen=address is not None)


def _advise(app: App, servers: list[str], *, is_chosen: bool) -> None:
    """Print on standard error why another machine may not reach the servers that an invitation names."""
    if not is_chosen and any(map(may_be_taken, servers)):
        echo(
            "The system chose that port, and may give it to another program while the server is stopped: start "
            "`deed serve --port N` with a port of your own, and invite again.",
            err=True,
        )
    own = served_at(app.ledger_home())
    if own is None and app.settings().server is None:
        echo("No server runs here now, so nobody can join: start `deed serve`.", err=True)
    elif any(map(_is_loopback, servers)):
        echo(f"That server is reached from this machine alone: for another one, {_TO_REACH}.", err=True)
    elif own is not None and _is_loopback(own):
        echo(f"The server here listens on {own} only: for {', '.join(servers)}, {_TO_REACH}.", err=True)


def _is_loopback(server: str) -> bool:
    return "//127." in server or "//localhost" in server


@agent.command("list", looks_back=True)
@click.option("--all", "is_all", is_flag=True, help="Include services and removed agents.")
def list_(app: App, *, is_all: bool) -> None:
    """List the registered agents, without services."""
    answer = app.query("agents.list", all=is_all)
    every: list[dict[str, Any]] = answer["agents"]
    agents = [agent for agent in every if is_all or not {*agent["roles"]} <= {"service"}]

    def text() -> None:
        rows = [
            (
                agent["name"],
                ", ".join(agent["roles"])
                or ("-" if agent["removed_index"] is None else f"removed at {agent['removed_index']}"),
                short_key(agent["key"]),
                agent["ai_id"],
            )
            for agent in agents
        ]
        print_table(("name", "roles", "key", "ai_id"), rows)
        for invitation in answer["invitations"]:
            until = f"{'until' if invitation['state'] == 'open' else 'expired'} {invitation['expires_at']}"
            print_lines(
                f"invited: {invitation['name']} as {', '.join(invitation['roles'])}, "
                f"by {invitation['invited_by']}, {until}"
            )
        if services := len(every) - len(agents):
            print_lines(f"not shown: {counted(services, 'service')} (--all)")

    data = {"agents": agents, "invitations": answer["invitations"], "total": len(agents)}
    app.show("agents.list", data, text)


@agent.command()
@click.argument("name")
@reason_option
def remove(app: App, name: str, reason: str) -> None:
    """Remove an agent: its keys end, the server refuses it, and lists leave it out. Root or an admin signs.

    Its events stay in the ledger. Its name cannot be used again.
    """
    check_name(name)
    author = admin_author(app)
    agents = {agent.name: agent for agent in app.client().agents()}
    if name not in agents:
        present = {other for other, agent in agents.items() if agent.removed_index is None} - RESERVED_NAMES
        alike = near(name, present)
        message = f"there is no agent {name}{did_you_mean(alike) or ': `deed agent list` shows them'}"
        raise Refused("AGENT_UNKNOWN", message, name=name, near=alike)
    warnings = _left_open(app, name)
    warn(() if app.as_json else warnings)
    accepted = author.emit(Draft(stream=f"agent/{name}", data=AgentRemoved(agent=name, reason=reason)))[0]
    data = {"name": name, "index": accepted.index, "reason": reason} | ({"warnings": warnings} if warnings else {})
    app.show("agent", data, f"{name} was removed at entry {accepted.index}: its keys sign nothing any more")


def _left_open(app: App, name: str) -> list[str]:
    """Return warnings about sessions that nobody can end after the removal of their agent, and about its work."""
    warnings = []
    sessions = app.query("sessions.list", author=name, status="open", limit=left_open_max)
    if sessions["items"]:
        ids, first = ", ".join(row["id"] for row in sessions["items"]), sessions["items"][0]["id"]
        more = f" and {left} more" if (left := sessions["total"] - len(sessions["items"])) else ""
        resumes = f"`deed session start --resumes {quote(first)} --as NAME` continues one as another agent"
        warnings.append(f"open sessions of {name}, which nobody can end now: {ids}{more}; {resumes}")
    if handoffs := app.query("handoffs.next", agent=name)["items"][:left_open_max]:
        ids = ", ".join(row["id"] for row in handoffs)
        warnings.append(f"work that waits for {name}: {ids}; `deed handoff why ID` says who can do what")
    return warnings


@agent.command("grant-role")
@click.argument("name")
@click.argument("role", type=_ROLES, metavar="ROLE")
@click.option("--unprotected", is_flag=True, help="Grant a trusted role to an agent whose key has no passphrase.")
def grant_role(app: App, name: str, role: Role, *, unprotected: bool) -> None:
    """Grant an agent a role: agent, reviewer, human, service or admin. Root or an admin signs.

    A reviewer approves and verifies work of others. A human also approves their own handoffs and answers reviews. An
    admin registers agents and grants roles. The key of such an agent should have a passphrase: `deed key rotate`
    replaces one that has none. A role that rests on a stolen key counts again once somebody else grants it.
    """
    check_name(name)
    author = admin_author(app)
    shown = _shown(app, name)
    protection = next((row["protection"] for row in shown["keys"] if row["key"] == shown["key"]), None)
    if role in TRUSTED_ROLES and protection != "passphrase" and not unprotected:
        raise Refused(
            "USAGE",
            f"as {role}, {name} {_RIGHTS[role]}, but the key of {name} has no passphrase, so every program of its user "
            f"can do that: replace it first (`deed key rotate --as {name}`). With --unprotected it gets the role, and "
            "each verdict says so",
        )
    accepted = author.emit(Draft(stream=f"agent/{name}", data=RoleGranted(agent=name, role=role)))[0]
    data = {"name": name, "role": role, "roles": _shown(app, name)["roles"], "protection": protection}
    text = [f"{name} has the role {role} since entry {accepted.index}, and {_RIGHTS[role]}"]
    if role in TRUSTED_ROLES:
        sealed = "has a passphrase" if protection == "passphrase" else "has no passphrase: the gate is open"
        text.append(f"  its key {sealed}")
    app.show("agent", data | {"index": accepted.index}, text)


@agent.command("revoke-role")
@click.argument("name")
@click.argument("role", type=_ROLES, metavar="ROLE")
@reason_option
def revoke_role(app: App, name: str, role: Role, reason: str) -> None:
    """Revoke a role of an agent. Root or an admin signs. What the agent decided before still counts."""
    check_name(name)
    author = admin_author(app)
    if role not in (roles := _shown(app, name)["roles"]):
        has = f"it has {', '.join(roles)}" if roles else "it has no role"
        raise Refused("NOTHING_CHANGED", f"{name} does not have the role {role}: {has}", name=name, roles=roles)
    revoked = RoleRevoked(agent=name, role=role, reason=reason)
    accepted = author.emit(Draft(stream=f"agent/{name}", data=revoked))[0]
    roles = _shown(app, name)["roles"]
    left = f"it is still {', '.join(roles)}" if roles else "it has no role now"
    data = {"name": name, "role": role, "roles": roles, "index": accepted.index, "reason": reason}
    app.show("agent", data, f"{name} lost the role {role} at entry {accepted.index}: {left}")


def _shown(app: App, name: str) -> dict[str, Any]:
    """Return an agent and its keys.

    Raises Refused: ``AGENT_UNKNOWN``, with the gate's message about an author or receiver.
    """
    try:
        answer: dict[str, Any] = app.query("agents.show", id=name)
    except Refused as refusal:
        if refusal.code != "NOT_FOUND":
            raise
        raise Refused("AGENT_UNKNOWN", refusal.message, **refusal.details) from None
    return answer


@agent.command(looks_back=True)
@click.argument("name")
def show(app: App, name: str) -> None:
    """Show one agent and its keys."""
    answer: dict[str, Any] = app.query("agents.show", id=name)
    app.show("agents.show", answer, lambda: print_fields(answer))


def admin_author(app: App) -> Author:
    """Return the author of an event that only root or an admin may sign.

    That is the agent that --as names; else the agent of DEEDBOOK_AGENT if it is an admin; else root. The check comes
    before any question for a passphrase; the ledger checks again.
    """
    has_root_key = app.ledger_home().key_file(ROOT).exists()
    if app.settings().agent is None:
        app.act_as(ROOT)
    if not _is_admin(app) and app.agent is None and has_root_key:
        app.act_as(ROOT)  # DEEDBOOK_AGENT names the usual agent of a shell, which was not chosen for this command
    name = app.acting()
    if name != NODE and not _is_admin(app):  # the node registers services: the ledger decides whether this is a service
        message = f"only an admin may do this, and {name} is not an admin: who holds {ROOT}'s key adds `--as {ROOT}`"
        raise Refused("NOT_AUTHORIZED", message, name=name, role="admin")
    return app.author(name)


def _is_admin(app: App) -> bool:
    return any(agent.name == app.acting() and "admin" in agent.roles for agent in app.client().agents())


def check_is_free(app: App, name: str) -> None:
    """Refuse a name that an agent has or had, before a passphrase for it is asked for."""
    if (namesake := next((agent for agent in app.client().agents() if agent.name == name), None)) is not None:
        was = "" if namesake.removed_index is None else f", which was removed at entry {namesake.removed_index}"
        advice = "choose another name"
        file = app.ledger_home().key_file(name)
        is_sealed = file.exists() and read_key_file(file).sealed is not None
        if not was and is_sealed and TRUSTED_ROLES.isdisjoint(namesake.roles):
            command = f"deed key rotate --as {name} --lost --unprotected"
            advice += f", or replace its key by one without a passphrase: `{command}`"
        raise Refused("AGENT_EXISTS", f"there is an agent {name} already{was}: {advice}", name=name)


def wait_until_let_in(app: App, home: Home, name: str) -> None:
    """Wait until the ledger's server, if one runs, lets a new agent in, so that the next command can be the agent's."""
    if (url := _server_here(app)) is not None:
        newcomer = msgspec.structs.replace(app.settings(), home=home.path, server=url, agent=name)
        _wait_until(lambda: open_client(newcomer).close())


def _server_here(app: App) -> str | None:
    """Return the server that this run uses, else the one that serves this folder's ledger; None if there is none."""
    return app.settings().server or served_at(app.ledger_home())


def served_at(home: Home) -> str | None:
    """Return the address of the server that serves a folder's ledger now; None if there is none."""
    with contextlib.suppress(OSError):
        return (home.bus / "url").read_text("ascii").strip()
    return None


def may_be_taken(server: str) -> bool:
    """Return whether the system may give a server's port to a program that asks for any free port."""
    try:
        first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text("ascii").split())
    except (OSError, ValueError):
        first, last = dynamic_ports
    port = server.rpartition(":")[2]
    return port.isdecimal() and first <= int(port) <= last


def _wait_until(connects: Callable[[], None]) -> None:
    deadline = time.monotonic() + let_in_wait_max_s
    while time.monotonic() < deadline:
        try:
            connects()
        except Refused:
            time.sleep(let_in_poll_s)
        except Unavailable:
            return  # the server has ended: the next one knows the agent from its start
        else:
            return


def new_passphrase(
    app: App, name: str, roles: Collection[str], *, unprotected: bool, beside: str | None = None
) -> str | None:
    """Return the passphrase for a new key; None for a key that may be stored unsealed.

    The passphrase may also seal a second key, ``beside``. A key that can approve, or register somebody who can, needs a
    passphrase, unless ``unprotected``.
    """
    wants_seal = app.passphrase_fd is not None or not TRUSTED_ROLES.isdisjoint(roles)
    if unprotected or not wants_seal:
        return None
    passphrase = app.read_passphrase(f"New passphrase for {' and '.join(filter(None, [name, beside]))}: ", confirm=True)
    if not passphrase:
        where = "at the prompt" if sys.stdin.isatty() else "with --passphrase-fd"
        first_try = ". For a first try: deed init --trial" if name == ROOT else ""
        raise Refused(
            "USAGE",
            f"the key of {name} can approve, or register who approves, so it needs a passphrase: give one {where}. "
            "With --unprotected it has none, every program of this user can sign with it, and each verdict says so"
            f"{first_try}",
        )
    return passphrase
