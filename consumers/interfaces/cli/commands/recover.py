"""`deed recover`: restores entries that a log lost from its stream, or lets the log continue without them."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import click

from deedbook.consumers.interfaces.cli.app import App, Command
from deedbook.consumers.interfaces.cli.progress import progress
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.interfaces.node.recovery import Recovery
from deedbook.ledger.errors import Corrupted, Refused
from deedbook.ledger.lifecycle.authority import ROOT
from deedbook.ledger.trust.history import head_text

if TYPE_CHECKING:
    from deedbook.consumers.interfaces.node.recovery import Head
    from deedbook.ledger.bus.history import LostHistory


@click.command(cls=Command)
@click.option("--from-stream", is_flag=True, help="Append the entries that the bus has and this log lacks.")
@click.option(
    "--accept-loss",
    is_flag=True,
    help="Continue without the lost entries. Root signs a history reset that names them.",
)
@click.option("--check", "is_dry", is_flag=True, help="Only print what would be done.")
@click.option(
    "--reason",
    default="acknowledged entries are lost",
    show_default=True,
    help="With --accept-loss: the reason, which every reader sees.",
)
@click.option("--yes", is_flag=True, help="With --accept-loss: do not ask for confirmation.")
def recover(app: App, reason: str, *, from_stream: bool, accept_loss: bool, is_dry: bool, yes: bool) -> None:
    """Repair a log that was set back to an earlier state. Stop `deed serve` first.

    Choose --from-stream or --accept-loss. Every entry from the log stream on the bus is verified and replayed before it
    is appended. If the command is killed, run it again: it continues where it stopped.
    """
    if from_stream == accept_loss:
        raise Refused("USAGE", "choose one: --from-stream recovers lost entries, --accept-loss continues without them")
    settings = app.settings()
    if settings.server is not None:
        raise Refused("USAGE", "recover needs the ledger's own folder: run it there, without --server")

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
    data |= {"missing": history.missing, "stream": history.generation.name}
    if is_dry:
        if history.is_fork:
            raise history.error()
        head = await recovery.stream_head(history)
        count = head.size - history.shared
        sound = f"{count} of {history.missing} missing entries are sound"
        text = f"{sound}; with them the log has {head.size} entries, tree head {head.tree_head}"
        _show(app, data | {"sound": count}, head, text, "deed recover --from-stream")
        return
    with progress("bringing entries back", is_shown=not app.as_json) as step:
        data["brought_back"] = await recovery.bring_back(history, step)
    done = f"{data['brought_back']} entries brought back"
    _require_agreement(recovery, done)
    head = recovery.head()
    text = f"{done}: the log has {head.size} entries, tree head {head.tree_head}"
    _show(app, data, head, text, "deed verify --views")


def _require_agreement(recovery: Recovery, done: str) -> None:
    """Refuse to call a log complete if trust stores of this machine contradict it."""
    for record in recovery.contradicted():
        remembered = record.trusted
        head = recovery.head()
        message = (
            f"{done}, but readers at {record.location} saw {head_text(remembered.size, remembered.root)}, "
            f"and the log has {head_text(head.size, head.tree_head)}: restore a later copy with `deed restore`, "
            "or continue without those entries with `deed recover --accept-loss`"
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
        _show(app, data, head, _loss(head, abandoned, history), "deed recover --accept-loss")
        return
    if not yes:
        loss = _loss(head, abandoned, history)
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise Refused("USAGE", f"{loss}. Without a terminal, add --yes to give them up for good")
        echo(loss, err=True)
        click.confirm("Give them up for good?", abort=True, err=True)

    home = app.ledger_home()
    root = home.signing_key(ROOT, [], app.unlock, is_identity=True)
    for lost_head in abandoned:
        recovery.reset_history(lost_head, reason, root)
    head = recovery.head()
    where = f"{head.size} entries, tree head {head.tree_head}"
    text = f"a new history reset: the log continues from {where}, and each reader is informed once"
    _show(app, data, head, text, "deed serve")


def _loss(head: Head, abandoned: list[Head], history: LostHistory | None) -> str:
    given_up = " and that of ".join(
        f"{lost_head.size} entries with tree head {lost_head.tree_head}" for lost_head in abandoned
    )
    text = f"the log has {head.size} entries; given up would be the head of {given_up}"
    if history is not None and not history.is_fork:
        text += f". The stream still holds {history.missing} of them: `deed recover --from-stream` brings them back"
    return text


def _show(app: App, data: dict[str, Any], head: Head, text: str, following: str | None) -> None:
    following = following and app.here(following)
    lines = [text] if following is None else [text, f"Next: {following}"]
    app.show("recovery", data | head._asdict(), lines, following=following)
