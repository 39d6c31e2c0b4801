"""A small witness for transparency logs (C2SP tlog-witness): it cosigns a log's checkpoint if the log has only grown.

One file that needs Python 3.11 and PyNaCl, and nothing of Deedbook: a witness is worth something where neither the
log's operator nor the log's code decides what it signs. Run it on another machine, as another user, by other people.

    python witness.py init STATE --name witness.example/one   make key and database; prints the vkey for policies
    python witness.py add STATE VKEY…                         cosign these logs from now on
    python witness.py logs STATE                              say which logs there are, and how far they were cosigned
    python witness.py serve STATE [--listen HOST:PORT]        answer add-checkpoint, and show what was cosigned

What it keeps, for each origin: the largest tree it cosigned. It cosigns nothing else of that size, nothing smaller, and
nothing larger without a proof that it begins with that one (RFC 6962 §2.1.2). The comparison and the record are one
transaction, synced before the answer: after a crash it never knows less than it has signed. A log that shows it two
histories leaves a signed checkpoint in the table `evidence`.

Never put an older copy of STATE back, and never run two copies: that witness would sign what it must not. One whose
state was lost is retired: make a new one, with a new name and key. Left out: ML-DSA, sign-subtree, TLS (a proxy's).
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import hashlib
import json
import os
import re
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

body_size_max_bytes: Final = 256 * 1024
proof_lines_max: Final = 63
signatures_max: Final = 64
requests_max: Final = 32
request_wait_max_s: Final = 10
cosignatures_per_s_max: Final = 10
evidence_max: Final = 1000
size_max: Final = 2**63 - 1
LOG: Final = 1
WITNESS: Final = 4
EMPTY_ROOT: Final = hashlib.sha256(b"").digest()
TABLES: Final = """
CREATE TABLE logs (origin TEXT NOT NULL, key BLOB NOT NULL, PRIMARY KEY (origin, key)) STRICT;
CREATE TABLE heads (origin TEXT PRIMARY KEY, size INTEGER NOT NULL, root BLOB NOT NULL, time_s INTEGER NOT NULL,
                    note TEXT NOT NULL) STRICT;
CREATE TABLE evidence (at_s INTEGER NOT NULL, origin TEXT NOT NULL, reason TEXT NOT NULL, note TEXT NOT NULL) STRICT;
"""


class Answer(Exception):
    """What a request is answered with, other than a cosignature."""

    def __init__(self, status: int, text: str, type_: str = "text/plain; charset=utf-8") -> None:
        super().__init__(text)
        self.status, self.text, self.type = status, text, type_


class Checkpoint(NamedTuple):
    """A note as it arrived, and what its text claims."""

    text: str
    signatures: list[tuple[str, bytes]]
    origin: str
    size: int
    root: bytes


def key_id(name: str, type_: int, key: bytes) -> bytes:
    """Return the 4 bytes that name a key in signature lines (C2SP signed-note)."""
    return hashlib.sha256(name.encode() + b"\n" + bytes([type_]) + key).digest()[:4]


def vkey_of(name: str, type_: int, key: bytes) -> str:
    """Return the text of a public key."""
    return f"{name}+{key_id(name, type_, key).hex()}+{base64.b64encode(bytes([type_]) + key).decode()}"


def parse_vkey(vkey: str) -> tuple[str, bytes]:
    """Return a log's origin and key; a ValueError for anything else."""
    name, _, rest = vkey.partition("+")
    material = decode64(rest.partition("+")[2])
    if len(material) != 33 or vkey_of(name, material[0], material[1:]) != vkey or material[0] != LOG:
        raise ValueError("this is not the vkey of a log with an Ed25519 key")
    return name, material[1:]


def decode64(text: str) -> bytes:
    """Return the bytes of standard base64 in its one form."""
    data = base64.b64decode(text, validate=True)
    if base64.b64encode(data).decode() != text:
        raise ValueError("base64 of another form")
    return data


def decimal(text: str) -> int:
    """Return a number in its one form, that a tree can have."""
    if re.fullmatch(r"0|[1-9][0-9]{0,18}", text) is None or int(text) > size_max:
        raise ValueError("no size of a tree")
    return int(text)


def parse_request(body: bytes) -> tuple[int, list[bytes], Checkpoint]:
    """Return old size, proof and checkpoint of an add-checkpoint request; a ValueError for anything else."""
    head, _, note = body.decode().partition("\n\n")
    old, *lines = head.split("\n")
    if not old.startswith("old ") or len(lines) > proof_lines_max:
        raise ValueError("the lines before the checkpoint")
    proof = [decode64(line) for line in lines]
    text, separator, signed = note.rpartition("\n\n")
    if not separator or not signed.endswith("\n") or re.search(r"[\x00-\x09\x0b-\x1f]", note):
        raise ValueError("no note")
    signatures = [re.fullmatch(r"— (\S+) (\S+)", line) for line in signed[:-1].split("\n")]
    origin, size, root, *extensions = text.split("\n")
    hashes = [decode64(root), *proof]
    if not all((origin, *extensions)) or len(signatures) > signatures_max or any(len(one) != 32 for one in hashes):
        raise ValueError("no checkpoint")
    parsed = [(match[1], decode64(match[2])) for match in signatures if match is not None]
    if len(parsed) != len(signatures) or any(len(blob) < 5 for _, blob in parsed):
        raise ValueError("no signature")
    return decimal(old[4:]), proof, Checkpoint(text + "\n", parsed, origin, decimal(size), hashes[0])


def is_grown(old_size: int, old_root: bytes, size: int, root: bytes, proof: list[bytes]) -> bool:
    """Tell whether a proof shows that the tree of ``size`` begins with the old one (RFC 9162 §2.1.4.2)."""
    if not proof or old_size in {0, size}:
        return not proof and (old_size == 0 or (old_size, old_root) == (size, root))
    path = [old_root, *proof] if old_size & (old_size - 1) == 0 else proof
    first, last = old_size - 1, size - 1
    while first & 1:
        first, last = first >> 1, last >> 1
    old = new = path[0]
    for sibling in path[1:]:
        if last == 0:
            return False
        if first & 1 or first == last:
            old = hashlib.sha256(b"\x01" + sibling + old).digest()
            new = hashlib.sha256(b"\x01" + sibling + new).digest()
            while not first & 1 and first:
                first, last = first >> 1, last >> 1
        else:
            new = hashlib.sha256(b"\x01" + new + sibling).digest()
        first, last = first >> 1, last >> 1
    return last == 0 and (old, new) == (old_root, root)


class Witness:
    """The key and what was cosigned; any number of threads and processes may use one state."""

    def __init__(self, state: Path) -> None:
        """Open what ``init`` made; a missing database is an error, for a new one would sign everything again."""
        content = json.loads((state / "witness.key").read_text("ascii"))
        self.name: str = content["name"]
        self.key = SigningKey(bytes.fromhex(content["seed"]))
        self._database = f"{(state / 'witness.db').absolute().as_uri()}?mode=rw"
        self._spent: dict[str, tuple[float, float]] = {}
        self._lock = threading.Lock()
        with self.opened() as database:
            database.execute("SELECT count(*) FROM heads")

    @property
    def vkey(self) -> str:
        """The text for policies."""
        return vkey_of(self.name, WITNESS, bytes(self.key.verify_key))

    @contextlib.contextmanager
    def opened(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection whose writes are synced when they commit."""
        with contextlib.closing(
            sqlite3.connect(self._database, uri=True, timeout=10, isolation_level=None)
        ) as database:
            database.execute("PRAGMA synchronous = EXTRA")  # FULL leaves the journal's folder unsynced
            yield database

    def add_checkpoint(self, body: bytes) -> str:
        """Return the cosignature's line for a request, or raise what is answered instead (C2SP tlog-witness)."""
        try:
            old_size, proof, checkpoint = parse_request(body)
        except ValueError as error:
            raise Answer(400, f"no add-checkpoint request: {error}\n") from error
        with self.opened() as database:
            self._check_log(database, checkpoint)
            if old_size > checkpoint.size:
                raise Answer(400, "the old size is larger than the checkpoint's\n")
            self._check_rate(checkpoint.origin)
            # What if we crash: before the commit nothing was signed that anybody saw; after it the client asks again.
            database.execute("BEGIN IMMEDIATE")
            try:
                return self._cosign(database, old_size, proof, checkpoint)
            except Answer as answer:
                (kept,) = database.execute("SELECT count(*) FROM evidence").fetchone()
                if answer.status == 422 and kept < evidence_max:
                    values = (int(time.time()), checkpoint.origin, str(answer).strip(), body.decode())
                    database.execute("INSERT INTO evidence VALUES (?, ?, ?, ?)", values)
                raise
            finally:
                database.execute("COMMIT")

    def _check_log(self, database: sqlite3.Connection, checkpoint: Checkpoint) -> None:
        origin = checkpoint.origin
        rows = database.execute("SELECT key FROM logs WHERE origin = ?", (origin,))
        known = {(origin, key_id(origin, LOG, key)): key for (key,) in rows}
        if not known:
            raise Answer(404, "this witness does not know the log\n")
        ours = [(known[name, blob[:4]], blob[4:]) for name, blob in checkpoint.signatures if (name, blob[:4]) in known]
        if not ours:
            raise Answer(403, "no signature of a key that is trusted for this log\n")
        try:
            for key, signature in ours:
                VerifyKey(key).verify(checkpoint.text.encode(), signature)
        except (BadSignatureError, ValueError) as error:
            raise Answer(403, "a signature of the log does not fit\n") from error

    def _check_rate(self, origin: str) -> None:
        """Let each log have so many answers a second; what asks has passed its signature, so it is the log's own."""
        with self._lock:
            now, (at, tokens) = time.monotonic(), self._spent.get(origin, (0.0, float(cosignatures_per_s_max)))
            tokens = min(cosignatures_per_s_max, tokens + (now - at) * cosignatures_per_s_max)
            if tokens < 1:
                raise Answer(429, "too many checkpoints: ask again in a second\n")
            self._spent[origin] = now, tokens - 1

    def _cosign(self, database: sqlite3.Connection, old_size: int, proof: list[bytes], checkpoint: Checkpoint) -> str:
        row = database.execute("SELECT size, root, time_s FROM heads WHERE origin = ?", (checkpoint.origin,)).fetchone()
        size, root, last_s = row or (0, EMPTY_ROOT, 0)
        if old_size != size:
            raise Answer(409, f"{size}\n", "text/x.tlog.size")
        if checkpoint.size == 0 and checkpoint.root != EMPTY_ROOT:
            raise Answer(422, "an empty tree has another root\n")
        if not is_grown(old_size, root, checkpoint.size, checkpoint.root, proof):
            raise Answer(422, "the proof does not show that the log has only grown\n")
        time_s = max(int(time.time()), last_s)  # a clock that was put back does not take a word back
        signed = f"cosignature/v1\ntime {time_s}\n{checkpoint.text}".encode()
        id_, signature = key_id(self.name, WITNESS, bytes(self.key.verify_key)), self.key.sign(signed).signature
        line = f"— {self.name} {base64.b64encode(id_ + time_s.to_bytes(8, 'big') + signature).decode()}\n"
        ours = [one for one in checkpoint.signatures if one[0] == checkpoint.origin]
        note = checkpoint.text + "\n" + "".join(f"— {name} {base64.b64encode(one).decode()}\n" for name, one in ours)
        values = (checkpoint.origin, checkpoint.size, checkpoint.root, time_s, note + line)
        database.execute("INSERT OR REPLACE INTO heads VALUES (?, ?, ?, ?, ?)", values)
        return line

    def checkpoint(self, origin_hash: str) -> str:
        """Return the last note that was cosigned of the log whose origin has this SHA-256, or raise a 404."""
        with self.opened() as database:
            for origin, note in database.execute("SELECT origin, note FROM heads"):
                if hashlib.sha256(origin.encode()).hexdigest() == origin_hash:
                    return str(note)
        raise Answer(404, "nothing was cosigned of this log\n")


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    witness: ClassVar[Witness]
    protocol_version = "HTTP/1.1"
    timeout = request_wait_max_s
    server_version, sys_version = "witness", ""

    def do_POST(self) -> None:
        """Answer add-checkpoint."""
        self._answer(self._add)

    def do_GET(self) -> None:
        """Answer with the last checkpoint of a log."""
        self._answer(self._show)

    def _add(self) -> str:
        length = self.headers.get("content-length", "")
        if self.path != "/add-checkpoint":
            raise Answer(404, "there is /add-checkpoint\n")
        if not re.fullmatch(r"[0-9]{1,9}", length) or "transfer-encoding" in self.headers:
            raise Answer(411, "say how long the request is\n")
        if int(length) > body_size_max_bytes:
            raise Answer(413, f"a request has at most {body_size_max_bytes} bytes\n")
        body = self.rfile.read(int(length))
        self.close_connection = self.close_connection or len(body) < int(length)
        return self.witness.add_checkpoint(body)

    def _show(self) -> str:
        if (match := re.fullmatch(r"/([0-9a-f]{64})/checkpoint", self.path)) is None:
            raise Answer(404, "there is /ORIGIN-HASH/checkpoint\n")
        return self.witness.checkpoint(match[1])

    def _answer(self, work: Any) -> None:
        try:
            answer = Answer(200, work())
        except Answer as refused:
            answer = refused
            self.close_connection = self.close_connection or answer.status in {404, 411, 413}  # what follows is unread
        except sqlite3.Error as error:
            self.log_error("database: %s", error)
            answer = Answer(503, "the witness cannot keep its word now: ask again later\n")
        content = answer.text.encode()
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.type)
        self.send_header("Content-Length", str(len(content)))
        if answer.status in {429, 503}:
            self.send_header("Retry-After", "1")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)


class Server(ThreadingHTTPServer):
    """A server that takes so many connections and drops what comes beyond, each for a bounded time."""

    daemon_threads = True
    request_queue_size = requests_max
    _free = threading.BoundedSemaphore(requests_max)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread, if one is free."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve it, and free the thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say in one line that a connection ended: a client that is slow or gone is no traceback."""
        sys.stderr.write(f"{client_address[0]}: the connection ended early\n")


def init(state: Path, name: str) -> str:
    """Make a witness; return its vkey."""
    if not name or re.search(r"[\s+\x00-\x1f]", name):
        raise ValueError("a name has no spaces and no plus, as witness.example/one")
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The database first, and never over another: a key without it is no witness, and serve refuses it.
    (state / "witness.db").touch(exist_ok=False)
    with contextlib.closing(sqlite3.connect(state / "witness.db")) as database:
        database.executescript(TABLES)
    with os.fdopen(os.open(state / "witness.key", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump({"name": name, "seed": bytes(SigningKey.generate()).hex()}, file)
        file.flush()
        os.fsync(file.fileno())
    return Witness(state).vkey


def main(arguments: list[str]) -> int:
    """Run a verb; return the exit code."""
    parser = argparse.ArgumentParser(description="A small witness for transparency logs (C2SP tlog-witness).")
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("init", "add", "logs", "serve"):
        verbs.add_parser(verb).add_argument("state", type=Path)
    verbs.choices["init"].add_argument("--name", required=True, help="a URL without its scheme, as witness.example/one")
    verbs.choices["add"].add_argument("vkeys", nargs="+", help="a log's: keys/checkpoint.vkey of an export")
    verbs.choices["serve"].add_argument("--listen", default="127.0.0.1:8090", metavar="HOST:PORT")
    given = parser.parse_args(arguments)
    try:
        if given.verb == "init":
            sys.stdout.write(f"{init(given.state, given.name)}\n")
            return 0
        witness = Witness(given.state)
        if given.verb == "serve":
            serve(witness, given.listen)
            return 0
        with witness.opened() as database:
            if given.verb == "add":
                database.executemany("INSERT OR IGNORE INTO logs VALUES (?, ?)", [*map(parse_vkey, given.vkeys)])
            else:
                sizes = (
                    "SELECT DISTINCT coalesce(size, 0), origin FROM logs LEFT JOIN heads USING (origin) ORDER BY origin"
                )
                sys.stdout.writelines(f"{size}\t{origin}\n" for size, origin in database.execute(sizes))
    except (OSError, ValueError, KeyError, sqlite3.Error) as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1
    return 0


def serve(witness: Witness, listen: str) -> None:
    """Answer until the process is ended, which is safe at any moment."""
    Handler.witness = witness
    host, _, port = listen.rpartition(":")
    with Server((host or "127.0.0.1", int(port)), Handler) as server:
        place = f"http://{host or '127.0.0.1'}:{server.server_address[1]}"
        print(witness.vkey, place, sep="\n", flush=True)  # noqa: T201
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
