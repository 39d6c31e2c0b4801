"""The app that verbs work with: settings, a client, the acting agent's key, views, and printing."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from select import select
from typing import TYPE_CHECKING, Any, BinaryIO

import click
import msgspec

from deedbook.consumers.interfaces.cli.reader_app import SEALED, ReadingApp
from deedbook.consumers.interfaces.cli.terminal import echo
from deedbook.consumers.interfaces.cli.verbs import LazyGroup, Options, VerbBase, load
from deedbook.consumers.sdk.events import describe
from deedbook.consumers.sdk.ledger import Ledger
from deedbook.ledger import limits
from deedbook.ledger.errors import Refused, Unavailable
from deedbook.ledger.events.entries import read_event
from deedbook.ledger.format.codec import check_strict
from deedbook.ledger.format.forms import ROOT
from deedbook.ledger.home.home import Home
from deedbook.ledger.packages import install_command
from deedbook.ledger.system.files import absent, read_regular

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from deedbook.consumers.auditor.bundle_ledger import BundleLedger
    from deedbook.consumers.interfaces.cli.sealed_texts import SealedTexts
    from deedbook.consumers.interfaces.followed_redactions import FollowedRedactions
    from deedbook.consumers.sdk.sealer import Opener, Sealer
    from deedbook.ledger.client.author import Author
    from deedbook.ledger.client.client import Client
    from deedbook.ledger.client.local_reader import Views
    from deedbook.ledger.client.reads import LogReads
    from deedbook.ledger.format.identity import Key
    from deedbook.ledger.home.config import Settings
    from deedbook.ledger.seal.keys import KeyService

passphrase_max_bytes = 4096
passphrase_chars_min = 8  # NIST SP 800-63B, section 5.1.1.2, for new passphrases
passphrase_tries_max = 3  # on a terminal
argument_max_bytes = limits.content_size_max_bytes


class App(ReadingApp):
    """One run of a verb that may also sign, or ask a server."""

    def __init__(self, options: Options | None = None) -> None:
        super().__init__(options)
        self._ledger: Ledger | None = None
        self._was_open = False
        self._bundle: BundleLedger | None = None
        self._passphrases: dict[str, str] = {}
        self._opened: dict[str, Key] = {}
        self._line = ""
        self._sealed: SealedTexts | None = None
        self._is_root_chosen = self.agent == ROOT
        self._has_root_signed = False

    def finish(self) -> None:
        """Print that root signed, unless --as root was given. Remove redacted texts from the copies in this folder."""
        if self._has_root_signed and not self.as_json:
            echo(f"signed by {ROOT}", err=True)
        if self._ledger is not None and self.bundle is None and not self.only_looks:
            followed = self.follow_redactions()
            for line in () if self.as_json else followed.lines:
                echo(line, err=True)

    def follow_redactions(self) -> FollowedRedactions:
        """Remove texts that somebody redacted elsewhere from the copies of this folder."""
        followed: FollowedRedactions = load(".followed_redactions:follow_redactions")(self.client(), self.settings())
        return followed

    def close(self) -> None:
        """Close whatever was opened."""
        super().close()
        if self._ledger is not None:
            self._ledger.close()

    def ledger_home(self) -> Home:
        """Return the ledger's folder."""
        return Home(self.settings().home)

    def ledger(self) -> Ledger:
        """Return the ledger of this run, opened once: that of the settings, or the bundle that --bundle names."""
        if self._ledger is None:
            self._ledger = self._open_ledger() if self.bundle is None else self._open_bundle(self.bundle)
            self._was_open = True
        return self._ledger

    def _open_ledger(self) -> Ledger:
        try:
            return Ledger(settings=super().settings(), passphrase=self.unlock, views=self._fold_views)
        except Unavailable as error:
            if error.code == "BUS_UNAVAILABLE" and not self._was_open:
                moved = "" if self.server else ", or if it moved, `deed join --address URL`"
                error.message += f"{moved}. Nothing was done: repeat the call when it answers"
            raise

    def _fold_views(self, client: LogReads, settings: Settings) -> Views:
        views: Views = load("fold_views:fold_views")(client, settings, is_shown=not self.as_json)
        return views

    def settings(self) -> Settings:
        """Return the settings of this run. For a bundle they name a temporary folder and are read from no file."""
        return super().settings() if self.bundle is None else self.ledger().settings

    def _open_bundle(self, path: Path) -> BundleLedger:
        """Verify and open a bundle, and print its verdict before anything that is read from it."""
        with load("progress:progress")("verifying", is_shown=not self.as_json) as step:
            ledger: BundleLedger = load("..auditor.bundle_ledger:BundleLedger")(path, agent=self.agent, progress=step)
        self._bundle = ledger
        if not self.as_json:  # a JSON document has the verdict in ``source``
            echo(f"{path}: {ledger.report.verdict}", err=True, fg=None if ledger.report.ok else "red")
            echo(ledger.report.gate_line, err=True)
            echo(f"{ledger.left_out}\n" if ledger.left_out else "", err=True, nl=False)
        return ledger

    def source(self) -> dict[str, Any]:
        """Return the verdict on the bundle that gave the answer; nothing if a ledger gave it."""
        if self._bundle is None:
            return {}
        report = self._bundle.report
        described: dict[str, Any] = {
            "file": str(self.bundle),
            "outcome": report.outcome,
            "verdict": report.verdict,
            "ok": report.ok,
        }
        described |= {"stream": report.stream, "missing": report.missing_names, "left_out": self._bundle.left_out}
        return {"bundle": described}

    def whole(self) -> App:
        """Return this app."""
        return self

    def client(self) -> Client:
        """Return the client of this run, opened once."""
        return self.ledger().client

    def withheld(self) -> list[int]:
        """Return the indexes of entries whose texts are hidden.

        This log was restored to an earlier state, and the longer history, which this machine saw, erased these texts.
        """
        return self._erased_since(self.client())

    def local_client(self) -> Any:
        """Return the local client; refused where a server was named."""
        if self.settings().server is not None:
            raise Refused("USAGE", "this verb needs the ledger's own folder: run it there, without --server")
        return self.client()

    def query(self, query: str, **arguments: Any) -> dict[str, Any]:
        """Return the answer of a view query; arguments that are None are not sent."""
        self._has_asked = True
        return self.displayed(self._with_witnesses(self.ledger().ask(query, as_of=self.instant, **arguments)))

    def displayed(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Return an answer as this verb shows it: sealed texts are opened with --unseal, and else only named."""
        if not self.names_sealed or SEALED not in msgspec.json.encode(answer):
            return answer
        if self._sealed is None:
            texts = load("sealed_texts:SealedTexts")
            self._sealed = texts(self.opener(), unseals=self.unseals, as_json=self.as_json)
        return self._sealed.shown(answer)

    def subject_keys(self) -> KeyService:
        """Return the key service of subjects. A bundle has no settings, so the service reads the key files."""
        settings = self.settings() if self.bundle is None else None
        keys: KeyService = load("..sdk.sealer:open_keys")(settings, self.client())
        return keys

    def sealer(self, subject: str) -> Sealer:
        """Return a sealer that seals for a subject as the acting agent."""
        make, home = load("..sdk.sealer:Sealer"), self.settings().home
        sealer: Sealer = make(self.author(), self.subject_keys(), self.query_with, subject, home)
        return sealer

    def opener(self) -> Opener:
        """Return an opener of sealed content with the keys of this user."""
        opener: Opener = load("..sdk.sealer:Opener")(self.client(), self.subject_keys, self.ledger().query_with)
        return opener

    def _with_witnesses(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Add to an answer from signed entries up to which size the configured witnesses have cosigned the log."""
        settings, as_of = self.settings(), answer.get("as_of")
        if as_of is not None and b"witness" in settings.text:
            witnessed_of = load(".node.witnessed:witnessed_of")
            as_of["witnessed"] = witnessed_of(self.client(), settings, as_of["size"], as_of["root"])
        return answer

    def act_as(self, name: str | None) -> None:
        """Act as ``name`` (None: nobody) from now on, as --as does.

        Later requests to a server use the keys of that agent.
        """
        self.agent = name
        if self._ledger is not None:
            self._ledger.close()
            self._ledger = None

    def author(self, name: str | None = None) -> Author:
        """Return the author that signs as ``name`` (default: the acting agent)."""
        signer = name or self.acting()
        self._has_root_signed |= signer == ROOT and not self._is_root_chosen
        return self.ledger().author(signer, allow_secret=self.allow_secret)

    def ask_passphrase(self, name: str) -> str | None:
        """Return the passphrase of ``name``'s key from the descriptor or the terminal; None if neither exists.

        A person may mistype it twice. Raises Refused: ``KEY_LOCKED`` after the third wrong one.
        """
        tries_left = passphrase_tries_max
        while (
            name not in self._passphrases
            and (passphrase := self.read_passphrase(f"Passphrase of {name}: ")) is not None
        ):
            tries_left -= 1
            try:
                if self.passphrase_fd is None:
                    self._opened[name] = self.ledger_home().open(name, passphrase)
                self._passphrases[name] = passphrase
            except Refused as refusal:
                if refusal.code != "KEY_LOCKED" or not tries_left:
                    raise
                echo(f"{refusal.message}: try again", err=True)
        return self._passphrases.get(name)

    def unlock(self, name: str) -> Key | str | None:
        """Return ``name``'s key if asking for the passphrase has just opened it, else the result of ``ask_passphrase``.

        Opening takes about a second, so the key is not opened twice.
        """
        passphrase = self.ask_passphrase(name)
        return self._opened.pop(name, passphrase)

    def remember_passphrase(self, name: str, passphrase: str) -> None:
        """Open ``name``'s key with a passphrase that was just given for it, without asking again."""
        self._passphrases[name] = passphrase

    @property
    def has_terminal(self) -> bool:
        """Whether a person can be asked."""
        return sys.stdin.isatty() and sys.stderr.isatty()

    def read_passphrase(self, prompt: str, *, confirm: bool = False) -> str | None:
        """Return a passphrase from ``--passphrase-fd``, else from the terminal, else None.

        Each line of the descriptor is one passphrase; the last line answers all further questions, too. ``confirm``
        says that the passphrase is new: a person must type it twice, and is asked again if it is too short. Raises
        Refused: ``USAGE`` when the descriptor cannot be read, or has a new passphrase that is too short.
        """
        if self.passphrase_fd is not None:
            passphrase = self._line = read_line(self.passphrase_fd) or self._line
            if confirm and (problem := _too_short(passphrase)):
                raise Refused("USAGE", problem)
            return passphrase
        while self.has_terminal:
            passphrase = str(
                click.prompt(prompt, hide_input=True, err=True, prompt_suffix="", confirmation_prompt=confirm)
            )
            if not confirm or not (problem := _too_short(passphrase)):
                return passphrase
            echo(f"{problem}. Try again", err=True)
        return None

    def check_last_passphrase(self, advice: str) -> None:
        """Refuse a descriptor with a further line, which the verb would ignore. Raises Refused: ``USAGE``."""
        descriptor = self.passphrase_fd
        if descriptor is None or os.isatty(descriptor) or not select([descriptor], [], [], 0)[0]:
            return
        if read_line(descriptor):
            raise Refused("USAGE", f"--passphrase-fd has a line too many: {advice}")

    def described(self, rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the events of rows of ``catalog.find`` as documents, with the marks that views put on them."""
        client = self.client()
        return [
            describe(read_event(row["event_index"], client.entry(row["event_index"])))
            | {name: row[name] for name in ("skipped", "compromised", "redacted") if row.get(name) is not None}
            for row in rows
        ]

    def follow(self, kinds: tuple[str, ...], stream: str | None, author: str | None, start: int) -> None:
        """Print events from an index on, as they are accepted.

        Raises Corrupted: ``HISTORY_CHANGED`` if the log was restored to an earlier state and has texts that were erased
        after that state.
        """
        if self.withheld() and (disagreement := self.client().disagreement) is not None:
            raise disagreement
        line = self.line if self.as_json else None
        load("live_events:follow_events")(self.client(), self.plain, kinds, stream, author, start, line=line)

    def plain(self, query: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the answer of ``query``, without the names of compromised authors that ``query_with`` collects."""
        return self.query(query, **arguments)


class Command(VerbBase):
    """A verb whose function gets an ``App``."""

    def invoke(self, ctx: click.Context) -> Any:
        """Call the verb."""
        options = ctx.ensure_object(Options)
        self.check_reading(ctx, options)
        return self.call(ctx, App(options))


class Group(LazyGroup):
    """A group whose verbs get an ``App``."""

    command_class = Command


@contextlib.contextmanager
def extra(name: str, verb: str) -> Iterator[None]:
    """Within the block, import modules that need an extra. Raises Unavailable: ``EXTRA_MISSING``."""
    try:
        yield
    except ModuleNotFoundError as error:
        message = f"{verb} needs the package {error.name}: {install_command(name)}"
        raise Unavailable("EXTRA_MISSING", message, package=str(error.name), extra=name) from error


def _too_short(passphrase: str) -> str:
    """Return why a new passphrase is too short; empty if it is not, or if there is none."""
    if not 0 < len(passphrase) < passphrase_chars_min:
        return ""
    least = f"a new passphrase has at least {passphrase_chars_min} characters, not {len(passphrase)}"
    return f"{least}; several words are easy to remember"


def read_line(descriptor: int) -> str:
    """Return the next line of a descriptor. It is read byte by byte, so that the next reader gets the rest.

    Raises Refused: ``USAGE`` when it cannot be read, is too long or is not UTF-8.
    """
    line = bytearray()
    try:
        while len(line) <= passphrase_max_bytes and (byte := os.read(descriptor, 1)) not in (b"", b"\n"):
            line += byte
        if len(line) > passphrase_max_bytes:
            raise Refused("USAGE", f"a passphrase has at most {passphrase_max_bytes} bytes")
        return line.decode("utf-8").removesuffix("\r")
    except OSError as error:
        raise Refused("USAGE", f"--passphrase-fd: descriptor {descriptor} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Refused("USAGE", "the passphrase is not UTF-8") from error


def parse_json(text: str, what: str) -> dict[str, Any]:
    """Return the JSON object given on the command line: the text itself, ``@FILE`` or ``-`` for standard input.

    Raises Refused: the strict JSON codes, ``INVALID_FIELD`` when it is no object; ``NOT_FOUND`` for the file.
    """
    how = f"write {what} '{{\"NAME\": VALUE}}' in single quotes, or {what} @FILE"
    try:
        value = check_strict(read_argument(text, what))
    except Refused as refusal:
        if refusal.code == "INVALID_FORMAT":
            is_file = text.startswith("@")
            refusal.message = f"{text[1:]}: {refusal.message}" if is_file else f"{refusal.message}: {how}"
        raise
    if not isinstance(value, dict):
        raise Refused("INVALID_FIELD", f"{what} must be a JSON object: {how}")
    return value


def read_argument(text: str, what: str) -> bytes:
    """Return the bytes of an argument: the text itself, ``@FILE`` or ``-`` for standard input.

    Raises Refused: ``NOT_FOUND`` when the file cannot be read, ``TOO_LARGE`` when it exceeds the largest limit of any
    argument, ``USAGE`` for the bare name of a file, because the name would be signed instead of the content.
    """
    if text == "-":
        return read_up_to(sys.stdin.buffer, argument_max_bytes, what)
    if not text.startswith("@"):
        _refuse_name_of_file(text)
        return text.encode("utf-8", "surrogateescape")
    try:
        with Path(text[1:]).open("rb") as file:
            return read_up_to(file, argument_max_bytes, what)
    except FileNotFoundError as error:
        raise absent(Path(text[1:]), f"{what}: there is no file {text[1:]}") from error
    except OSError as error:
        raise Refused("NOT_FOUND", f"{what}: {text[1:]} cannot be read: {error.strerror}", path=text[1:]) from error


def _refuse_name_of_file(text: str) -> None:
    is_file = False
    if text.split() == [text]:
        with contextlib.suppress(OSError, ValueError):  # the text is too long for a name, or no file can have this name
            is_file = Path(text).is_file()
    if is_file:
        raise Refused("USAGE", f"{text} is a file: write @{text} for its content, or add words", path=text)


def store_artifact(app: App, path: str, sealer: Sealer | None = None) -> str:
    """Store the content of a file as a blob, and return a text that names the blob.

    A path alone becomes useless when its folder is deleted.
    """
    # Somebody else may have put a link to a file or folder here, so that this user publishes a private file.
    file = Path(path)
    below = (folder for folder in file.parents if not folder.is_absolute() or Path.cwd() in folder.parents)
    if any(part.is_symlink() for part in (file, *below)):
        raise Refused("INVALID_FORMAT", f"the artifact: {path} is a link: name the file that it leads to", path=path)
    if (content := read_regular(file, size_max_bytes=argument_max_bytes)) is None:
        raise Refused("NOT_FOUND", f"there is no file {path} to store as an artifact: check the path", path=path)
    return f"kept: {app.author().put_blob(content) if sealer is None else sealer.blob(BytesIO(content))}"


def with_contents(app: App, artifacts: tuple[str, ...] | list[str], sealer: Sealer | None = None) -> list[str]:
    """Return the artifacts as texts. Those that are files here are stored as blobs; commits and pages stay as named."""
    return [
        f"{artifact} ({store_artifact(app, artifact, sealer)})" if Path(artifact).is_file() else artifact
        for artifact in artifacts
    ]


def read_up_to(file: BinaryIO, size_max_bytes: int, what: str) -> bytes:
    """Return the content of a file. Read at most ``size_max_bytes`` and one more, because it may be an endless pipe."""
    content = file.read(size_max_bytes + 1)
    if len(content) > size_max_bytes:
        raise Refused("TOO_LARGE", f"{what} has more than {size_max_bytes} bytes", limit=size_max_bytes)
    return content


def read_text(text: str | None, what: str) -> str:
    """Return the text of an argument as ``read_argument`` reads it; empty when it was not given."""
    if text is None:
        return ""
    if text != "-" and not text.startswith("@"):
        _refuse_name_of_file(text)
        return text
    content = read_argument(text, what)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise Refused("INVALID_FORMAT", f"{what} is not UTF-8 (in line {line})") from error


def unavailable(error: OSError, what: str) -> Unavailable:
    """Return the error for a file that cannot be written."""
    return Unavailable("STORE_UNAVAILABLE", f"{what} cannot be written: {error.strerror or error}")
