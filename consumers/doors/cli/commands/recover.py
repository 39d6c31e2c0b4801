"""`baton recover`: a log that lacks acknowledged entries gets them back from its stream, or goes on without them."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import click

from consumers.doors.cli.app import App
from consumers.doors.cli.output import progress
from consumers.doors.cli.program import Command
from ledger.errors import Corrupted, Refused
from ledger.history import shown

if TYPE_CHECKING:
    from consumers.doors.node.recovery import Head, Recovery
    from ledger.bus.history import LostHistory

default_reason = "acknowledged entries are lost"


@click.command(cls=Command)
@click.option("--from-stream", is_flag=True, help="Bring the entries back that the log stream holds and the log lacks.")
@click.option(
    "--accept-loss", is_flag=True, help="Go on without them: root signs an epoch that names what is given up."
)
@click.option("--check", "is_dry", is_flag=True, help="Only say what would be done.")
@click.option("--reason", default=default_reason, show_default=True, help="With --accept-loss: why, for every reader.")
@click.option("--yes", is_flag=True, help="With --accept-loss: do not ask.")
def recover(app: App, reason: str, *, from_stream: bool, accept_loss: bool, is_dry: bool, yes: bool) -> None:
    """Mend a log that was put back to an earlier state, while nothing serves it.

    Every entry from the stream is verified and replayed before it is appended; killed at any point, it goes on when it
    is called again.
    """
    if from_stream == accept_loss:
        raise Refused("USAGE", "say which: --from-stream brings lost entries back, --accept-loss goes on without them")
    settings = app.settings()
    if settings.server is not None:
        raise Refused("USAGE", "recover works on the ledger's own folder: call it there, without --server")
    from consumers.doors.node.recovery import Recovery  # noqa: PLC0415 - loads the bus

    async def run() -> None:
        async with Recovery(settings, is_dry=is_dry) as recovery:
            if from_stream:
                await _bring_back(app, recovery, is_dry=is_dry)
            else:
                await _accept_loss(app, recovery, reason, is_dry=is_dry, yes=yes)

    asyncio.run(run())


async def _bring_back(app: App, recovery: Recovery, *, is_dry: bool) -> None:
    history = await recovery.lost()
    data: dict[str, Any] = {"brought_back": 0, "missing": 0, "strangers": recovery.strangers}
    if history is None:
        head = recovery.head()
        others = f" (those there are of other ledgers: {', '.join(recovery.strangers)})" if recovery.strangers else ""
        none = f"there is no log stream of this ledger here{others}"
        _require_agreement(recovery, "the stream holds nothing that the log lacks" if recovery.has_stream else none)
        what = "nothing is missing" if recovery.has_stream else f"{none}, and nobody here remembers more"
        _show(app, data, head, f"{what}: the log has {head.size} entries, tree head {head.tree_head}", None)
        return
    data |= {"missing": history.missing, "stream": history.incarnation.name}
    if is_dry:
        if history.is_fork:
            raise history.error()
        head = await recovery.stream_head(history)
        count = head.size - history.shared
        sound = f"{count} of {history.missing} missing entries are sound"
        text = f"{sound}; with them the log has {head.size} entries, tree head {head.tree_head}"
        _show(app, data | {"sound": count}, head, text, "baton recover --from-stream")
        return
    with progress("bringing entries back", shown=not app.as_json) as step:
        data["brought_back"] = await recovery.bring_back(history, step)
    text = f"{data['brought_back']} entries brought back"
    _require_agreement(recovery, text)
    head = recovery.head()
    _show(
        app, data, head, f"{text}: the log has {head.size} entries, tree head {head.tree_head}", "baton verify --views"
    )


def _require_agreement(recovery: Recovery, done: str) -> None:
    """Refuse to call a log whole that readers of this machine remember otherwise."""
    for one in recovery.contradicted():
        remembered = one.trusted
        head = recovery.head()
        message = (
            f"{done}, but what was read at {one.place} was {shown(remembered.size, remembered.root)}, and the log has "
            f"{shown(head.size, head.tree_head)}: put a later copy back with `baton restore`, or go on without those "
            "entries with `baton recover --accept-loss`"
        )
        details = {"trusted_size": remembered.size, "trusted_tree_head": remembered.root, **head._asdict()}
        raise Corrupted("HISTORY_CHANGED", message, **details)


async def _accept_loss(app: App, recovery: Recovery, reason: str, *, is_dry: bool, yes: bool) -> None:
    history, abandoned = await recovery.lost(), await recovery.abandoned()
    data: dict[str, Any] = {"abandoned": [head._asdict() for head in abandoned]}
    head = recovery.head()
    if not abandoned:
        _show(app, data, head, f"nothing is lost: the log has {head.size} entries, tree head {head.tree_head}", None)
        return
    if is_dry:
        _show(app, data, head, _loss(head, abandoned, history), "baton recover --accept-loss")
        return
    if not yes:
        _ask(_loss(head, abandoned, history))
    root = _root_key(app)
    for one in abandoned:
        recovery.start_epoch(one, reason, root)
    head = recovery.head()
    where = f"{head.size} entries, tree head {head.tree_head}"
    text = f"a new epoch: the log goes on from {where}, and every reader is told once"
    _show(app, data, head, text, "baton serve")


def _loss(head: Head, abandoned: list[Head], history: LostHistory | None) -> str:
    given_up = " and that of ".join(f"{one.size} entries with tree head {one.tree_head}" for one in abandoned)
    text = f"the log has {head.size} entries; given up would be the head of {given_up}"
    if history is not None and not history.is_fork:
        text += f". The stream still holds {history.missing} of them: `baton recover --from-stream` brings them back"
    return text


def _ask(text: str) -> None:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Refused("USAGE", f"{text}. Off a terminal say --yes to give them up for good")
    click.echo(text, err=True)
    click.confirm("Give them up for good?", abort=True, err=True)


def _root_key(app: App) -> Any:
    from ledger.identity import read_key_file  # noqa: PLC0415 - only this way needs keys
    from ledger.lifecycle.authority import ROOT  # noqa: PLC0415 - as above

    home = app.ledger_home()
    is_sealed = read_key_file(home.key_file(ROOT)).sealed is not None
    return home.open(ROOT, app.ask_passphrase(ROOT) if is_sealed else None)


def _show(app: App, data: dict[str, Any], head: Head, text: str, following: str | None) -> None:
    following = following and app.here(following)

    def print_text() -> None:
        click.echo(text)
        if following is not None:
            click.echo(f"Next: {following}")

    app.show("recovery", data | head._asdict(), print_text, following=following)
