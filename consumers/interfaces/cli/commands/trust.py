"""`deed trust`: shows what the settings in a ledger's folder would run, send and write, and lets this user allow it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import msgspec

from deedbook.consumers.interfaces.cli.app import App, Command
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.sdk.git import RUNS, Git
from deedbook.consumers.sdk.text import escape_text
from deedbook.ledger.errors import Corrupted, Refused, Unavailable
from deedbook.ledger.home import trust as trusting
from deedbook.ledger.home.absence import no_ledger
from deedbook.ledger.home.home import Home
from deedbook.ledger.home.location import find_home, named_home, present_folder, project_path, resolved
from deedbook.ledger.home.trust import FolderContent, TrustedFolder
from deedbook.ledger.log.log import Log
from deedbook.ledger.system.files import find_ownership_risk

fingerprint_digits: Final = 64


class Act(NamedTuple):
    """A setting that causes an action: its name, its effect, its value, and its state (new, trusted or changed)."""

    setting: str
    does: str
    value: str
    state: str


@click.command(cls=Command)
@click.option("--yes", is_flag=True, help="Trust it without asking.")
@click.option("--show", "action", flag_value="show", help="Only show it, and the trusted folders.")
@click.option("--remove", "action", flag_value="remove", help="Do not trust it any more; the folder may be gone.")
@click.option(
    "--root", "pinned", metavar="FINGERPRINT", help="Pin the root key of a ledger by its 64 digits; here, 32 do."
)
def trust(app: App, action: str | None, pinned: str | None, *, yes: bool) -> None:
    """Trust the ledger's folder here. The command shows what its settings would run, send and sign, and asks.

    An untrusted folder is only read: verbs that sign, serve, watch or push are refused. A folder that you made with
    `deed init` is trusted. You are asked again when config.toml, chains.toml or client.toml changes. `deed trust
    --show` prints the root's fingerprint beside the ledger: compare it with the one that the ledger's operator tells
    you. It also prints the programs that git would run by the configuration of this repository.
    """
    named = app.home or named_home()
    if pinned is not None and (action is not None or re.fullmatch("[0-9a-f]{32,64}", pinned) is None):
        takes = "--root takes the 64 hex digits of a root's fingerprint, or its first 32"
        raise Refused("USAGE", f"{takes}, and no other option but --yes")
    if yes and action is not None:
        raise Refused("USAGE", "--yes has no effect with --show and --remove: omit it")
    home = _folder(named)
    if action == "remove":
        _remove(app, home)
        return
    if not home.is_dir():
        raise Unavailable("NO_LEDGER", f"there is no folder {trusting.quoted_path(home)}", folder=str(home))
    folder, here = trusting.read_folder(home), root_in(home)
    if here and not here.startswith(pinned or ""):
        message = f"the ledger in {trusting.quoted_path(home)} has the root {here}, and not {pinned}: do not use it"
        raise Corrupted("VERIFICATION_FAILED", message, root=here)
    if pinned is not None and not here and len(pinned) < fingerprint_digits:
        raise Refused(
            "USAGE", "to pin a remote ledger, give all 64 digits of its root fingerprint: the first 32 are only its id"
        )
    record = _record(folder, here or pinned or "", is_shown=action == "show")
    root = here or pinned or ("" if record is None else record.root)
    data = _described(folder, root, record)
    if action == "show":
        homes = [known.path for known in trusting.read_records()]
        data["homes"] = [path for path in homes if Path(path).is_dir()]
        data["gone"] = [path for path in homes if path not in data["homes"]]
        app.show("trust", data, lambda: _print(data))
        return
    reason = find_ownership_risk(home)
    if reason is not None and named is None:
        raise trusting.refusal(home, f"must be named to be trusted: {reason}")
    if not yes:
        _ask(app, home, data, pinned)
    at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    trusting.remember(trusting.record_of(folder, root, at))
    data |= {"state": "trusted", "reason": ""}
    app.show("trust", data, lambda: _print_trusted(data, is_shown=yes))


def _folder(named: Path | None) -> Path:
    home = named or find_home(present_folder(), {})
    if home is None:
        raise no_ledger(present_folder())
    return resolved(home)


def _remove(app: App, home: Path) -> None:
    if not trusting.forget(home):
        raise Refused("NOT_FOUND", f"{trusting.quoted_path(home)} is not trusted", home=str(home))
    app.show("trust", {"home": str(home), "state": "unknown"}, "It is trusted no longer.")


def root_in(home: Path) -> str:
    """Return the fingerprint of the root key of the ledger in a folder; empty where there is no log."""
    if not Home(home).is_local():
        return ""
    with Log(home) as log, log.snapshot() as snapshot:
        return "" if snapshot.size == 0 else trusting.root_in(snapshot.entry(0))


def _record(folder: FolderContent, root: str, *, is_shown: bool) -> TrustedFolder | None:
    """Return the stored trust of a folder; None if there is none, or if it is for a ledger with another root."""
    try:
        record = trusting.find_record(folder.path)
    except Refused as refusal:
        if is_shown:
            raise
        raise refusal.with_details(home=str(folder.path)) from None
    return None if record is not None and not trusting.is_same_root(record.root, root) else record


def _described(folder: FolderContent, root: str, record: TrustedFolder | None) -> dict[str, Any]:
    trusted = trusting.setting_digests(record)
    now = trusting.setting_digests(trusting.record_of(folder, root, ""))
    acts = [
        Act(name, "; ".join(_does(folder, name, value)), _text(value), _state(trusted, now, name))
        for name, value in folder.settings.items()
    ]
    is_whole = record is not None and trusting.is_unchanged(record, folder)
    state = "unknown" if record is None else "trusted" if is_whole else "changed"
    return {
        "home": escape_text(str(folder.path)),
        "root_fingerprint": root,
        "state": state,
        "reason": find_ownership_risk(folder.path) or "",
        "settings": [act._asdict() for act in acts],
        "git": [{"setting": escape_text(name), "value": escape_text(value)} for name, value in _git_runs(folder.path)],
    }


def _git_runs(home: Path) -> list[tuple[str, str]]:
    """Return the programs that the repository around a folder lets git run.

    Trust in the folder does not change them.
    """
    try:
        return Git(project_path(home, "."), is_own=False).own_settings(RUNS)
    except (Refused, Unavailable):  # there is no git to run anything, or its settings are too large
        return []


def _state(trusted: dict[str, str], now: dict[str, str], name: str) -> str:
    return "new" if name not in trusted else "trusted" if trusted[name] == now[name] else "changed"


def _text(value: Any) -> str:
    return escape_text(value if isinstance(value, str) else msgspec.json.encode(value).decode())


def _does(folder: FolderContent, name: str, value: Any) -> Iterator[str]:
    """Yield the effects of one setting; further fields of its table are shown as its value."""
    home = folder.path
    match name:
        case "nats_server":
            yield f"`deed serve` runs the program {_inside(home, value)}"
        case "llm":
            key = value.get("api_key_variable"), value.get("api_key_file")
            secret = f" with the environment's {key[0]}" if key[0] else f" with the key in {key[1]}" if key[1] else ""
            address = value.get("base_url") or f"the own address of {value.get('family')}"
            yield f"problems, reasoning and evidence are sent to {address}{secret}"
        case "validator_tree":
            yield f"`deed serve` reads files of {_inside(home, value)} and publishes its results"
        case "notify":
            yield from map(_tells, value)
        case "reports":
            places = [f"{target} {_inside(home, value[target])}" for target in value if isinstance(value[target], str)]
            yield f"reports are written, and git is run, in {', '.join(places) or 'no place'}"
        case "witness":
            urls = re.findall(r"\S+://\S+", str(value.get("policy")))
            yield f"checkpoints (sizes and hashes, no events) are sent to {', '.join(urls) or 'nobody'}"
        case "views" | "seal":
            rows = f"the rows of the views are stored in {value.get('store')}, and read from there"
            yield rows if name == "views" else _seals(home, value)
        case "cluster":
            yield f"servers at {', '.join(value['routes'])} share the log: this one listens at {value['listen']}"
        case "client" | "chains":
            router = "the router signs and creates handoffs as chains.toml says (`deed router check` explains it)"
            yield router if name == "chains" else "every command asks these servers, as this agent"
        case _:  # a new setting: a test requires a text for it
            yield "has no description: read its value"


def _seals(home: Path, value: dict[str, Any]) -> str:
    if value.get("keys") != "token":
        return "the keys of sealed content are files of this user"
    module, pin_file = _inside(home, str(value.get("module"))), value.get("pin_file")
    return f"`--seal` and `--unseal` load the library {module}, and give it the PIN in {pin_file}"


def _tells(channel: dict[str, Any]) -> str:
    command, webhook = channel.get("command"), channel.get("webhook")
    return f"sh runs: {command}" if command else f"is sent to {webhook}: what waits, and for whom"


def _inside(home: Path, value: str) -> str:
    path = project_path(home, value)
    if path.resolve().is_relative_to(project_path(home, ".").resolve()):
        return f"{path}, inside this project: anybody who can change the project can change it"
    return str(path)


def _ask(app: App, home: Path, data: dict[str, Any], pinned: str | None) -> None:
    """Show a folder and ask whether to trust it; only a person at a terminal can answer."""
    if app.as_json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        flags = ("show", "yes" if pinned is None else f"yes --root {pinned}")
        show, yes = (f"`deed trust --{word} --home {trusting.quoted_path(home)}`" for word in flags)
        raise Refused("USAGE", f"there is no terminal to ask on: read {show}, then run {yes}")
    _print(data)
    if not click.confirm("Trust this folder?", default=False, err=True):
        raise click.Abort


def _print(data: dict[str, Any]) -> None:
    labels = {
        "unknown": "NOT trusted",
        "changed": "trusted, but not its settings as they are now",
        "trusted": "trusted",
    }
    echo(f"{data['home']}\n  ledger  {data['root_fingerprint'] or 'no log here'}")
    echo(f"  state   {labels[data['state']]}")
    if data["reason"]:
        echo(f"  beware  {escape_text(data['reason'])}")
    for act in data["settings"]:
        echo(f"  {act['setting']} ({act['state']}): {escape_text(act['does'])}")
        for line in act["value"].split("\n"):
            echo(f"      | {line}")
    if not data["settings"]:
        echo("  no setting of it runs or sends anything; trusting it lets its keys sign")
    if data["git"]:
        echo("  git runs these in this repository, by its own configuration (`deed notes` too, once it is trusted):")
    for setting in data["git"]:
        echo(f"      | {setting['setting']}={setting['value']}")
    for path in data.get("homes", []):
        echo(f"trusted  {escape_text(path)}")
    for path in data.get("gone", []):
        echo(
            f"gone     {escape_text(path)} (`deed trust --remove --home {trusting.quoted_path(Path(path))}` forgets it)"
        )


def _print_trusted(data: dict[str, Any], *, is_shown: bool) -> None:
    if is_shown:
        _print(data)
    echo("It is trusted from now on, as it is now: `deed trust --remove` takes that back.")
