"""`deed receipt`: proves to anybody, offline, that an event is in the log, and checks such a proof."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from deedbook.consumers.auditor.report import Outcome, fingerprint_in
from deedbook.consumers.interfaces.cli.app import App, Command, Group, read_up_to
from deedbook.consumers.interfaces.cli.named_file import check_free, force_option, write_named
from deedbook.consumers.interfaces.cli.output import print_fields, when
from deedbook.consumers.interfaces.cli.terminal import echo, echo_exact
from deedbook.consumers.sdk.events import describe
from deedbook.consumers.sdk.receipts import Anchors, Checked, check, evidence_in, hold, take
from deedbook.ledger.errors import Refused, Unavailable
from deedbook.ledger.limits import policy_size_max_bytes, request_size_max_bytes
from deedbook.ledger.proof.policy import Policy
from deedbook.ledger.proof.receipt import Receipt, receipt_size_max_bytes
from deedbook.ledger.system.files import absent, read_regular
from deedbook.projections.kinds.words import line_of

vkey_size_max_bytes: Final = 4096
_FILE: Final = click.Path(path_type=Path, dir_okay=False)


class _Receipts(Group):
    """The group `deed receipt`. If its first word is no verb, it names the event whose receipt is printed."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in self.commands:
            return super().resolve_command(ctx, args)
        return "", take_, args


@click.group("receipt", cls=_Receipts, context_settings={"ignore_unknown_options": True})
def receipt_() -> None:
    """Print a proof that an event is in the log. Anybody can check it offline.

    `deed receipt INDEX|REF [-o FILE [--force]] [--policy FILE]` checks the receipt of an event and prints it as a C2SP
    tlog-proof. With --policy, it waits for the witnesses that the policy requires.
    """


@click.command(cls=Command)
@click.argument("ref", metavar="INDEX|REF")
@click.option("-o", "--output", type=_FILE, help="Write it to this file.")
@force_option
@click.option("--policy", "policy_file", type=_FILE, help="Wait until the witnesses of this policy have cosigned.")
def take_(app: App, ref: str, output: Path | None, policy_file: Path | None, *, force: bool) -> None:
    """Print the receipt of an event."""
    if output is not None:
        check_free(output, force=force)
    index = app.ledger().index_of(ref)
    policy = None if policy_file is None else read_policy(policy_file)
    if output is not None:
        write_receipt(app, index, output, policy=policy, force=force)
        app.show("receipt", {"index": index, "file": str(output)}, f"entry {index} in {output}")
        return
    text = take(app.client(), index, policy=policy).to_text()
    app.show("receipt", {"index": index, "receipt": text}, lambda: echo_exact(text, nl=False))


@receipt_.command("verify", only_looks=True)
@click.argument("file", metavar="FILE|-", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--root", help="The fingerprint of the ledger's root key.")
@click.option("--vkey", metavar="VKEY|@FILE", help="The key that signs the log's checkpoints.")
@click.option("--policy", "policy_file", type=_FILE, help="The logs and witnesses that count (C2SP tlog-policy).")
@click.option("--fail-open", is_flag=True, help="Pass with a warning if the policy's quorum is missing.")
@click.option("--event", type=_FILE, help="The event it must prove: an entry's bytes, or a DSSE envelope.")
def verify(app: App, /, file: Path, *, fail_open: bool, **anchor_options: Any) -> None:
    """Check a receipt offline, and say what it proves.

    Without --root, --vkey or a policy that names the log, the verdict is 'self-asserted': only the receipt itself names
    the log's key. In a folder of that ledger, the receipt is also compared with the ledger and with the trusted head
    that this machine stores.
    """
    if fail_open and anchor_options["policy_file"] is None:
        raise Refused("USAGE", "--fail-open needs --policy")
    receipt = Receipt.parse(_read(file, receipt_size_max_bytes).decode("utf-8", "replace"))
    checked = check(receipt, _anchors(**anchor_options), fail_open=fail_open)
    ledgers = []
    if evidence_in(receipt) is not None and _hold_here(app, checked):
        ledgers.append("the ledger here")
        if checked.trust == "self-asserted":  # this ledger's id is the digest of the root key in the receipt
            checked = msgspec.structs.replace(checked, trust="ledger")
    data = _data(checked) | {"held_against": ledgers}
    app.show("receipt", data, lambda: _print(checked, data))


def _anchors(root: str | None, vkey: str | None, policy_file: Path | None, event: Path | None) -> Anchors:
    if vkey is not None and vkey.startswith("@"):
        vkey = _read(Path(vkey[1:]), vkey_size_max_bytes).decode("utf-8", "replace").strip()
    return Anchors(
        vkey=vkey,
        root=None if root is None else fingerprint_in(root),
        policy=None if policy_file is None else read_policy(policy_file),
        event=None if event is None else _read(event, request_size_max_bytes),
    )


def _hold_here(app: App, checked: Checked) -> bool:
    try:
        if app.settings().server is None and not app.ledger_home().is_local():
            return False
        client = app.client()
    except (Refused, Unavailable):
        if app.home is not None or app.server is not None:
            raise
        return False  # the check is offline: a broken or absent ledger in this folder must not prevent it
    if client.ledger == checked.ledger:
        hold(checked.checkpoint, client)
    return client.ledger == checked.ledger


def write_receipt(app: App, index: int, path: Path, *, force: bool, policy: Policy | None = None) -> None:
    """Write the receipt of an entry to a file that the user named."""
    write_named(path, take(app.client(), index, policy=policy).to_text().encode(), force=force)


def read_policy(path: Path) -> Policy:
    """Return the policy in a file."""
    return Policy.parse(_read(path, policy_size_max_bytes))


def _read(path: Path, size_max_bytes: int) -> bytes:
    if str(path) == "-":
        return read_up_to(sys.stdin.buffer, size_max_bytes, "the receipt")
    content = read_regular(path, size_max_bytes=size_max_bytes, follow=True)
    if content is None:
        raise absent(path)
    return content


def _data(checked: Checked) -> dict[str, Any]:
    names = ("index", "id", "accepted_ms")
    checkpoint = checked.checkpoint
    # No other verdict can occur here, because everything wrong was refused before.
    return {name: getattr(checked.event, name) for name in names} | {
        **{name: _proven(checked, name) for name in ("kind", "stream", "author")},
        "data": None if checked.event.erased is not None else describe(checked.event)["data"],
        "author_verified": checked.is_signed and checked.event.erased is None,
        "ledger": checked.ledger,
        "origin": checkpoint.origin,
        "size": checkpoint.size,
        "tree_head": checkpoint.root.hex(),
        "vkey": checked.vkey,
        "outcome": _outcome(checked),
        "trust": checked.trust,
        "witnessed": msgspec.to_builtins(checked.witnessed),
    }


def _proven(checked: Checked, name: str) -> str | None:
    """Return a field of the event; None if the body was erased.

    A receipt then has only the fields that the erasure left. Anybody could put those of another event there, and only
    the redaction in the log confirms them.
    """
    return None if checked.event.erased is not None else str(getattr(checked.event, name))


def _outcome(checked: Checked) -> Outcome:
    return "VALID" if checked.event.erased is None else "VALID_WITH_ERASURES"


def _print(checked: Checked, data: dict[str, Any]) -> None:
    event, origin = checked.event, checked.checkpoint.origin
    trust = checked.trust if checked.trust == "self-asserted" else f"anchored by the {checked.trust}"
    echo(f"entry {event.index} of {checked.checkpoint.size} in the log {origin}: {_outcome(checked)} ({trust})")
    print_fields(
        {
            "event": event.id,
            **{name: proven for name in ("kind", "stream", "author") if (proven := _proven(checked, name)) is not None},
            "accepted": when(event.accepted_ms),
            "content": None if event.erased is not None else line_of(data["data"]),
            "log key": checked.vkey,
        }
    )
    if event.erased is not None:
        echo("note: the body of the event was erased: a receipt does not prove its kind, author and stream")
    if not checked.is_signed:
        echo("note: the author's signature covers a batch, whose other events are not here: it was not checked")
    rules = "whose key that is, whether it was reported stolen, and whether the gate was closed"
    echo(f"note: a receipt proves that this key signed the entry, and that the log has it. `deed verify` says {rules}")
    if checked.witnessed is not None:
        echo(str(checked.witnessed))
    for ledger in data["held_against"]:
        echo(f"it is in the history of {ledger}")
    if checked.trust == "self-asserted":
        echo("The receipt names its own key: pass --root or --vkey, which you got from somewhere else.")
