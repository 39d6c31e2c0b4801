"""`deed doctor`: checks whether the installation and the ledger here are in order."""

from __future__ import annotations

import json
import sqlite3
import stat
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

import deedbook
from deedbook.consumers.interfaces.cli.app import App, Command
from deedbook.consumers.interfaces.cli.commands.clock import age_text, compare_clocks
from deedbook.consumers.interfaces.cli.commands.harness import mcp_advice, path_advice
from deedbook.consumers.interfaces.cli.commands.nodes import state_here
from deedbook.consumers.interfaces.cli.output import when
from deedbook.consumers.interfaces.cli.progress import progress
from deedbook.consumers.interfaces.cli.settings_page import settings_page
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.interfaces.cli.verbs import EXTRAS
from deedbook.consumers.interfaces.node.witnessed import configured_witnesses
from deedbook.consumers.sdk.git import Git
from deedbook.consumers.sdk.llm.model import named_client
from deedbook.consumers.sdk.llm.settings import Message
from deedbook.consumers.sdk.text import escape_text
from deedbook.consumers.sdk.version import version_text
from deedbook.ledger.client.addresses import KnownAddresses
from deedbook.ledger.client.client import Client, read_reset
from deedbook.ledger.client.factory import open_client
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.client.spool import spools
from deedbook.ledger.client.stream_reader import pinned_root
from deedbook.ledger.errors import DeedbookError, Exit, Refused, Unavailable, message_of
from deedbook.ledger.events.remnant import LACKS_FAMILY
from deedbook.ledger.families import installed, sources, unusable
from deedbook.ledger.format.identity import read_key_file
from deedbook.ledger.home import trust
from deedbook.ledger.home.config import Settings, parse_config
from deedbook.ledger.home.home import Home
from deedbook.ledger.home.location import (
    CHAINS_FILE,
    CONFIG_FILE,
    find_home,
    present_folder,
    project_path,
    read_file,
    resolved,
)
from deedbook.ledger.lifecycle.authority import AgentRecord
from deedbook.ledger.lifecycle.gate_state import TRUSTED_ROLES
from deedbook.ledger.limits import map_alarm_ratio
from deedbook.ledger.packages import install_command, part_of
from deedbook.ledger.service.server import find_server
from deedbook.ledger.trust.history import head_text
from deedbook.projections.answers.reader import Reader
from deedbook.projections.catalog.queries import needed_blobs

skipped_shown_max = 5


class Check(NamedTuple):
    """The result of one check: whether it passed, what it saw, and what to do if it failed."""

    name: str
    ok: bool
    found: str
    fix: str = ""


@click.command(cls=Command, only_looks=True)
@click.option(
    "--llm", is_flag=True, help="Also send one question to the model of config.toml, if the folder is trusted."
)
@click.option("--settings", "is_page", is_flag=True, help="Print every setting of config.toml, commented, instead.")
def doctor(app: App, *, llm: bool, is_page: bool) -> None:
    """Check the installation and the ledger here, and say how to fix what is wrong.

    Runs no program that the settings in the ledger's folder name. With --server it asks the server, with this agent's
    keys.
    """
    if is_page:
        page = "\n".join(settings_page())
        app.show("settings", {"page": page}, page)
        return
    home = app.home or find_home(present_folder())
    with progress("checking", is_shown=not app.as_json):
        checks = [*_installation_checks(home), *(_ledger_checks(app, Home(home)) if home else [])]
        checks += [_model_check(app)] if llm else []
    bad = [check for check in checks if not check.ok]
    data = {"checks": [check._asdict() for check in checks], "ok": not bad}

    def text() -> None:
        for check in checks:
            echo("ok    " if check.ok else "WRONG ", fg="green" if check.ok else "red", nl=False)
            echo(f"{check.name}: {check.found}" + ("" if check.ok else f"\n      {check.fix}"))
        if home is None:
            echo("There is no ledger in this folder or above it: `deed init` makes one.")

    if bad and app.as_json:
        raise Unavailable("STORE_UNAVAILABLE", f"{len(bad)} checks failed: {bad[0].fix}", **data)
    app.show("doctor", data, text, exit_code=Exit.UNAVAILABLE if bad else Exit.OK)


def _installation_checks(home: Path | None) -> Iterator[Check]:
    python = ".".join(map(str, sys.version_info[:3]))
    yield Check("python", sys.version_info >= (3, 11), python, "install Python 3.11 or newer")
    yield Check("package", ok=True, found=f"deedbook {version_text()} in {Path(deedbook.__file__).parent}")
    yield _checked("nats-server", partial(_server_check, home))
    has_tokens = find_spec("rs_bpe") is not None
    yield Check(
        "tokens", ok=True, found="exact (rs-bpe)" if has_tokens else f"estimates: run {install_command('tokens')}"
    )
    yield Check("mcp", ok=True, found=mcp_advice() or "deed mcp can serve")  # a ledger works without it
    yield Check("shell", ok=True, found=path_advice() or "it finds this `deed`")
    yield _families_check()
    yield Check("sqlite", sqlite3.sqlite_version_info >= (3, 35), sqlite3.sqlite_version, "use a newer Python build")


def _families_check() -> Check:
    """Return the state of the families, after an import of every part that they name."""
    faults = {str(family): family.why for family in unusable()}
    for family in installed():
        for part in family.parts():
            try:
                part_of(family, part)
            except Refused as refusal:
                if not _lacks_extra(refusal.__cause__):
                    faults[refusal.message] = f"{family.name} ({sources()[family.name]}) has no {part}"
    names = ", ".join(f"{family.name} ({sources()[family.name]})" for family in installed()) or "none"
    return Check("families", not faults, "; ".join(faults.values()) or names, "; ".join(faults))


def _lacks_extra(error: BaseException | None) -> bool:
    """Return whether a module needs an extra of Deedbook that is not installed here."""
    return isinstance(error, ModuleNotFoundError) and str(error.name).partition(".")[0] in EXTRAS


def _ledger_checks(app: App, home: Home) -> Iterator[Check]:
    try:
        settings = app.settings()
    except DeedbookError as error:
        yield Check("folder", ok=False, found=error.code, fix=error.message)
        return
    if settings.server is not None:
        yield from _remote_checks(settings)
        yield from _spool_checks(settings)
        yield _trust_check(settings)
        yield from _key_checks(home)
    if settings.server is None or home.is_local():
        yield from _local_checks(app, home, msgspec.structs.replace(settings, server=None))


def _local_checks(app: App, home: Home, settings: Settings) -> Iterator[Check]:
    try:
        client = LocalClient(settings)
    except DeedbookError as error:
        yield Check("ledger", ok=False, found=error.code, fix=error.message)
        return
    with client:
        head = client.head()
        yield Check("ledger", ok=True, found=f"{head.ledger}, {head.size} entries, in {home.path}")
        yield _checked("trust store", partial(_trust_store_check, client))
        map_size, blobs = client.settings.config.map_size_bytes, client.log.blobs
        for name, setting, size, used in (
            ("map", "map_size_bytes", map_size, client.log.tables.used_ratio()),
            ("blobs", "blobs_size_max_bytes", blobs.size_max, blobs.used_bytes() / blobs.size_max),
        ):
            fix = f"raise {setting} in config.toml, with every process of this ledger stopped"
            yield Check(name, used < map_alarm_ratio, f"{used:.1%} of {size / 1024**3:.3g} GiB used", fix)
        clocks = compare_clocks(client)
        finding = f"last entry {clocks['last']}, {age_text(clocks['difference_s'])}"
        yield Check("clock", clocks["ok"], finding, clocks["fix"])
        yield from _skipped_checks(client)
        yield _checked("blobs needed", partial(_needed_blobs_check, client))
        yield _erasures_check(client)
        if app.settings().server is None:
            yield _trust_check(settings, client)
            yield from _witness_check(settings, client)
            yield from _key_checks(home)
        yield _checked("gate", partial(_gate_check, home, client))
        yield _views_check(client, settings)
    url = home.bus / "url"
    served = url.read_text("ascii").strip() if url.exists() else "not running (local verbs need none)"
    yield Check("serve", ok=True, found=served)
    if parse_config(settings.text, home.path / CONFIG_FILE)[1].cluster is not None:
        yield Check("nodes", *state_here(home))


def _checked(name: str, check: Callable[[], Check]) -> Check:
    """Return the result of a check; an error of the check becomes its result."""
    try:
        return check()
    except DeedbookError as error:
        return Check(name, ok=False, found=error.code, fix=error.message)


def _skipped_checks(client: LocalClient) -> Iterator[Check]:
    try:
        with Reader(client, client.settings) as reader:
            skipped = reader.answer("catalog.skipped")["items"]
    except DeedbookError as error:
        yield Check("entries", ok=False, found=error.code, fix=error.message)
        return
    unread = [entry for entry in skipped if entry["code"] in LACKS_FAMILY]
    bad = [entry for entry in skipped if entry["code"] not in LACKS_FAMILY]
    finding = (
        f"{len(bad)} skipped, which no gate admits: {_listed(bad)}" if bad else "each follows from those before it"
    )
    fix = "somebody wrote past the gate: `deed verify` says more, `deed fsck --repair` puts derived records right"
    yield Check("entries", not bad, finding, fix)
    if unread:
        why = "; ".join(dict.fromkeys(entry["message"] for entry in unread))
        finding = f"{len(unread)} entries are shown without their texts: {_listed(unread)}"
        fix = f"{why}; after that, `deed project --rebuild catalog` adds the texts"
        yield Check("packages", ok=False, found=finding, fix=fix)


def _listed(entries: list[dict[str, Any]]) -> str:
    return ", ".join(f"{entry['index']} ({entry['code']})" for entry in entries[:skipped_shown_max])


def _needed_blobs_check(client: LocalClient) -> Check:
    with Reader(client, client.settings) as reader:
        missing = [ref for ref in reader.ask(needed_blobs) if not client.log.blobs.is_whole(ref)]
    if not missing:
        return Check("blobs needed", ok=True, found="all that entries need are here")
    fix = "store the same file again with `deed blob put`, or `deed restore --replace FILE` of a backup that has them"
    return Check("blobs needed", ok=False, found=f"{len(missing)} are missing, first {missing[0]}", fix=fix)


def _erasures_check(client: LocalClient) -> Check:
    with client.log.snapshot() as snapshot:
        done = sum(record.done is not None for record in snapshot.redactions().values())
        is_finished = not snapshot.needs_rewriting()
    finding = f"{done} entries erased" if is_finished else "the file of the log still holds an erased text"
    fix = "free disk space for a second copy of the log: the next command that writes finishes the erasure"
    return Check("redactions", is_finished, finding, fix)


def _trust_store_check(client: LocalClient) -> Check:
    store = client.trust_store
    remembered = store.load()
    store.compare(remembered, client.consistency, partial(read_reset, client))
    store.probe()
    if store.problem is not None:
        fix = "make it writable, or set XDG_STATE_HOME: until then nobody notices here when a log is put back"
        return Check("trust store", ok=False, found=store.problem, fix=fix)
    if rivals := store.rivals(client.consistency):
        fix = "write to only one of these folders: if both get new events, they become two ledgers"
        return Check("trust store", ok=False, found="; ".join(rivals), fix=fix)
    if remembered is None:
        return Check("trust store", ok=True, found="no head of this ledger is stored yet: the next command stores one")
    head = head_text(remembered.trusted.size, remembered.trusted.root)
    begun = f"{when(remembered.created_ms)}, at {remembered.created_size} entries"
    return Check("trust store", ok=True, found=f"{head}; since {begun}, in {store.path}")


def _witness_check(settings: Settings, client: LocalClient) -> Iterator[Check]:
    try:
        witnesses = configured_witnesses(trust.actions_of(settings, client).witness)
        if witnesses is not None:
            policy, fail_closed = witnesses
            witnessed = policy.judge(client.prove(0).checkpoint_text, time.time())
            finding = f"{witnessed}; without them it fails {'closed' if fail_closed else 'open'}"
            fix = "`deed serve` asks them, and its log says what they answered"
            yield Check("witnesses", witnessed.is_met, finding, fix)
    except DeedbookError as error:
        if error.code != "NOT_TRUSTED":  # a separate line reports this code
            yield Check("witnesses", ok=False, found=error.code, fix=error.message)


def _model_check(app: App) -> Check:
    result, client = "nobody was asked", None
    try:
        client = named_client(trust.actions_of(app.settings()))
        result = f"{client.model} at {client.endpoint.url} ({client.endpoint.family})"
        question = 'Answer with this JSON object and nothing else: {"ready": true}'
        answer = client.ask([Message("system", "Answer with JSON."), Message("user", question)], dict[str, Any])
        result, fix = f"{result} answered {escape_text(json.dumps(answer))}", ""
    except DeedbookError as error:
        result, fix = f"{result}: {error.code}", error.message
    if client is not None:
        result += f"; sent with it: {json.dumps(client.fields)}"
    return Check("model", not fix, result, fix)


def _gate_check(home: Home, client: Client) -> Check:
    """Return the state of the gate.

    An open gate is a choice; an identity key here that differs from the registered one is wrong.
    """
    state, agents = client.streams.gate_state(), client.agents()
    sealed = [agent.name for agent in agents if _is_trusted(agent) and agent.name not in state.unprotected]
    if laid_open := [name for name in sealed if _is_unsealed(home.key_file(name))]:
        finding = f"{state}, but the key file of {', '.join(laid_open)} has no passphrase here"
        fix = f"any program of this user can sign with it: `deed key rotate --as {laid_open[0]}` makes a sealed key"
        return Check("gate", ok=False, found=finding, fix=fix)
    advice = "" if state.state == "closed" else ": `deed key rotate --as NAME` makes a sealed key"
    if state.trial:
        advice = ": it stays open, so for real work begin another ledger with `deed init` in another folder"
    return Check("gate", ok=True, found=f"{state}{advice}")


def _is_trusted(agent: AgentRecord) -> bool:
    return not TRUSTED_ROLES.isdisjoint(agent.roles)


def _is_unsealed(key_file: Path) -> bool:
    return key_file.exists() and read_key_file(key_file).sealed is None


def _remote_checks(settings: Settings) -> Iterator[Check]:
    asking = f"{settings.server} as {settings.agent or 'nobody'}"
    try:
        with open_client(settings) as client:
            head = client.head()
            root = pinned_root(settings.home, head.ledger)
            gate = _checked("gate", partial(_gate_check, Home(settings.home), client))
    except DeedbookError as error:
        yield Check("server", ok=False, found=f"{asking}: {error.code}", fix=error.message)
        return
    yield Check("server", ok=True, found=f"{asking}: ledger {head.ledger}, {head.size} entries")
    if others := KnownAddresses(head.ledger, settings.server or "").others:
        found = f"if no server answers there: {', '.join(others)}, which nodes announced"
        yield Check("addresses", ok=True, found=found)
    none = "none is pinned here, so this ledger vouches for itself: `deed trust --root FINGERPRINT` pins it"
    yield Check("root", ok=True, found=none if root is None else f"pinned: {root}")
    yield gate


def _spool_checks(settings: Settings) -> Iterator[Check]:
    for name, spool in spools(settings.home):
        if any(counts := spool.counts()):
            finding = f"of {name} {counts.waiting} wait to be recorded, {counts.rejected} were refused"
            lists = "`deed spool list` shows them, `deed spool send` sends what waits"
            yield Check("spool", ok=False, found=finding, fix=f"{lists}, `deed spool drop` gives up others")


def _trust_check(settings: Settings, client: Client | None = None) -> Check:
    try:
        trust.actions_of(settings, client)
        trust.check_chains(settings.home, read_file(settings.home, CHAINS_FILE))
    except DeedbookError as error:
        advice = "; trusted or not, this runs none of it" if settings.text else ""
        return Check("trust", ok=False, found=error.code, fix=error.message + advice)
    return Check("trust", ok=True, found="you trust this folder, and what it says")


def _views_check(client: LocalClient, settings: Settings) -> Check:
    fix = "run `deed project --rebuild`"
    try:
        with Reader(client, settings) as reader:
            reader.answer("sessions.list", {"limit": 1})
            finding = reader.store.check()
    except DeedbookError as error:
        return Check("views", ok=False, found=message_of(error), fix=fix)
    return Check("views", finding == "ok", "whole, and up to date" if finding == "ok" else finding, fix)


def _key_checks(home: Home) -> Iterator[Check]:
    if tracked := tracked_keys(home):
        advice = "do not use them, and make none of them private now: whoever has the repository has them too"
        finding = f"git tracks {', '.join(tracked)}: these keys came with the repository, they are the stranger's"
        yield Check(
            "keys", ok=False, found=escape_text(finding), fix=f"{advice}; an agent of yours needs keys of its own"
        )
        return
    files = sorted([*home.keys.glob("*.key"), *home.keys.glob("*.nkey"), *home.keys.glob("*.session")])
    wide = [path.name for path in files if stat.S_IMODE(path.stat().st_mode) & 0o077]
    finding = f"{len(files)} files" if not wide else f"others can read {', '.join(wide)}"
    fix = f"run `chmod 600 {trust.quoted_path(home.keys)}/*`"
    if not trust.is_trusted(home.path):
        fix = "you have not trusted this folder: unless you made these keys they are a stranger's, do not use them"
    yield Check("keys", not wide, escape_text(finding), fix)


def tracked_keys(home: Home) -> list[str]:
    """Return the files below keys/ that the repository around the ledger tracks.

    The repository is not trusted, so git runs no program that its settings name.
    """
    try:
        # Even a ledger's folder that is itself a repository is not trusted.
        answer = Git(home.path.resolve(), is_own=False).call("ls-tree", "-r", "-z", "--name-only", "HEAD", "keys/")
    except DeedbookError:
        return []
    return [name.removeprefix("keys/") for name in answer.out.decode("utf-8", "replace").split("\0") if name]


def _server_check(home: Path | None) -> Check:
    configured = trust.read_folder(home).actions.nats_server if home else None
    if home is not None and configured:
        program = escape_text(str(project_path(resolved(home), configured)))
        return Check("nats-server", ok=True, found=f"config.toml names {program}; not run by this check")
    return Check("nats-server", ok=True, found=str(find_server()))
