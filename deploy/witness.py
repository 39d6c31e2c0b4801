"""A small witness for transparency logs (C2SP tlog-witness): it cosigns a checkpoint if the log only grew.

This one file needs Python 3.11 and PyNaCl, and nothing of Deedbook: a witness is useful only if neither the operator
nor the code of the log decides what it signs. Run it on another machine, as another user, by other people.

    python witness.py init STATE --name witness.example/one   make key and database; print the vkey for policies
    python witness.py add STATE VKEY…                         cosign these logs from now on
    python witness.py logs STATE                              list the logs and the sizes that were cosigned
    python witness.py serve STATE [--listen HOST:PORT]        answer add-checkpoint, and show cosigned checkpoints

For each origin, the witness stores the largest tree that it cosigned. It refuses another tree of that size, every
smaller tree, and a larger tree without a proof that it begins with the stored one (RFC 6962 §2.1.2). It compares and
stores in one transaction, which is synced before the answer, so after a crash it knows all that it signed. If a log
shows it two histories, it stores a signed checkpoint in the table `evidence`.

Never restore an older copy of STATE and never run two copies: the witness could then sign two histories. If STATE is
lost, retire the witness: make a new one with a new name and key. Left out: ML-DSA, sign-subtree, TLS (use a proxy).
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
from collections.abc import Callable, Iterator
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
    """The answer to a request: a status, a text and its type. It is raised unless it is a cosignature."""

    def __init__(self, status: int, text: str, type_: str = "text/plain; charset=utf-8") -> None:
        super().__init__(text)
        self.status, self.text, self.type = status, text, type_


class Checkpoint(NamedTuple):
    """A parsed note: its text and signatures as they arrived, and the claims of the text."""

    text: str
    signatures: list[tuple[str, bytes]]
    origin: str
    size: int
    root: bytes


def key_id(name: str, type_: int, key: bytes) -> bytes:
    """Return the 4 bytes that name a key in signature lines (C2SP signed-note)."""
    return hashlib.sha256(name.encode() + b"\n" + bytes([type_]) + key).digest()[:4]


def vkey_of(name: str, type_: int, key: bytes) -> str:
    """Return the one-line text of a public key (C2SP signed-note)."""
    return f"{name}+{key_id(name, type_, key).hex()}+{base64.b64encode(bytes([type_]) + key).decode()}"


def parse_vkey(vkey: str) -> tuple[str, bytes]:
    """Return the origin and key of a log's vkey. Raises ValueError: it is not the vkey of a log."""
    name, _, rest = vkey.partition("+")
    material = decode_base64(rest.partition("+")[2])
    if len(material) != 33 or vkey_of(name, material[0], material[1:]) != vkey or material[0] != LOG:
        raise ValueError("this is not the vkey of a log with an Ed25519 key: use keys/checkpoint.vkey of an export")
    return name, material[1:]


def decode_base64(text: str) -> bytes:
    """Return the bytes of standard base64. Raises ValueError: it is not in canonical form."""
    data = base64.b64decode(text, validate=True)
    if base64.b64encode(data).decode() != text:
        raise ValueError("base64 that is not canonical")
    return data


def parse_decimal(text: str) -> int:
    """Return a tree size in decimal digits. Raises ValueError: it has leading zeroes or is too large."""
    if re.fullmatch(r"0|[1-9][0-9]{0,18}", text) is None or int(text) > size_max:
        raise ValueError("an invalid tree size")
    return int(text)


def parse_request(body: bytes) -> tuple[int, list[bytes], Checkpoint]:
    """Return old size, proof and checkpoint of an add-checkpoint request. Raises ValueError: it is malformed."""
    head, _, note = body.decode().partition("\n\n")
    old, *lines = head.split("\n")
    if not old.startswith("old ") or len(lines) > proof_lines_max:
        raise ValueError("invalid lines before the checkpoint")
    proof = [decode_base64(line) for line in lines]
    text, separator, signed = note.rpartition("\n\n")
    if not separator or not signed.endswith("\n") or re.search(r"[\x00-\x09\x0b-\x1f]", note):
        raise ValueError("no valid note")
    signatures = [re.fullmatch(r"— (\S+) (\S+)", line) for line in signed[:-1].split("\n")]
    origin, size, root, *extensions = text.split("\n")
    hashes = [decode_base64(root), *proof]
    if not all((origin, *extensions)) or len(signatures) > signatures_max or any(len(hash_) != 32 for hash_ in hashes):
        raise ValueError("no valid checkpoint")
    parsed = [(match[1], decode_base64(match[2])) for match in signatures if match is not None]
    if len(parsed) != len(signatures) or any(len(blob) < 5 for _, blob in parsed):
        raise ValueError("an invalid signature line")
    return parse_decimal(old[4:]), proof, Checkpoint(text + "\n", parsed, origin, parse_decimal(size), hashes[0])


def is_grown(old_size: int, old_root: bytes, size: int, root: bytes, proof: list[bytes]) -> bool:
    """Return whether a proof shows that the tree of ``size`` begins with the old one (RFC 9162 §2.1.4.2)."""
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
    """A witness: its key and its database of cosigned trees. Several threads and processes may use one state."""

    def __init__(self, state: Path) -> None:
        """Open the state that ``init`` made. A missing database is an error: a new one would forget what was signed."""
        content = json.loads((state / "witness.key").read_text("ascii"))
        self.name: str = content["name"]
        self.key = SigningKey(bytes.fromhex(content["seed"]))
        self._database = f"{(state / 'witness.db').absolute().as_uri()}?mode=rw"
        self._buckets: dict[str, tuple[float, float]] = {}
        self._lock = threading.Lock()
        with self.connect() as database:
            database.execute("SELECT count(*) FROM heads")

    @property
    def vkey(self) -> str:
        """The vkey of the witness, for policies."""
        return vkey_of(self.name, WITNESS, bytes(self.key.verify_key))

    @contextlib.contextmanager
    def connect(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection whose writes are synced when they commit."""
        with contextlib.closing(
            sqlite3.connect(self._database, uri=True, timeout=10, isolation_level=None)
        ) as database:
            database.execute("PRAGMA synchronous = EXTRA")  # FULL leaves the journal's folder unsynced
            yield database

    def add_checkpoint(self, body: bytes) -> str:
        """Return the cosignature line for a request (C2SP tlog-witness). Raises Answer: the request is refused."""
        try:
            old_size, proof, checkpoint = parse_request(body)
        except ValueError as error:
            raise Answer(400, f"this is not an add-checkpoint request: {error}\n") from error
        with self.connect() as database:
            self._check_log(database, checkpoint)
            if old_size > checkpoint.size:
                raise Answer(400, "the old size is larger than the checkpoint's\n")
            self._check_rate(checkpoint.origin)
            # If the process dies before the commit, nobody got a signature. After it, the client asks again.
            database.execute("BEGIN IMMEDIATE")
            try:
                return self._cosign(database, old_size, proof, checkpoint)
            except Answer as answer:
                (stored,) = database.execute("SELECT count(*) FROM evidence").fetchone()
                if answer.status == 422 and stored < evidence_max:
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
            raise Answer(404, "this witness does not know the log: its operator must add it\n")
        ours = [(known[name, blob[:4]], blob[4:]) for name, blob in checkpoint.signatures if (name, blob[:4]) in known]
        if not ours:
            raise Answer(403, "no signature by a key that this witness knows for the log\n")
        try:
            for key, signature in ours:
                VerifyKey(key).verify(checkpoint.text.encode(), signature)
        except (BadSignatureError, ValueError) as error:
            raise Answer(403, "a signature of the log is not valid\n") from error

    def _check_rate(self, origin: str) -> None:
        """Limit the answers a second for each log. Signatures were verified before, so only the log uses its limit."""
        with self._lock:
            now, (last, tokens) = time.monotonic(), self._buckets.get(origin, (0.0, float(cosignatures_per_s_max)))
            tokens = min(cosignatures_per_s_max, tokens + (now - last) * cosignatures_per_s_max)
            if tokens < 1:
                raise Answer(429, "too many checkpoints: ask again in a second\n")
            self._buckets[origin] = now, tokens - 1

    def _cosign(self, database: sqlite3.Connection, old_size: int, proof: list[bytes], checkpoint: Checkpoint) -> str:
        row = database.execute("SELECT size, root, time_s FROM heads WHERE origin = ?", (checkpoint.origin,)).fetchone()
        size, root, last_s = row or (0, EMPTY_ROOT, 0)
        if old_size != size:
            raise Answer(409, f"{size}\n", "text/x.tlog.size")
        if checkpoint.size == 0 and checkpoint.root != EMPTY_ROOT:
            raise Answer(422, "the root of an empty tree is wrong\n")
        if not is_grown(old_size, root, checkpoint.size, checkpoint.root, proof):
            raise Answer(422, "the proof does not show that the log has only grown\n")
        time_s = max(int(time.time()), last_s)  # never earlier than the last time, even if the clock went back
        signed = f"cosignature/v1\ntime {time_s}\n{checkpoint.text}".encode()
        id_, signature = key_id(self.name, WITNESS, bytes(self.key.verify_key)), self.key.sign(signed).signature
        line = f"— {self.name} {base64.b64encode(id_ + time_s.to_bytes(8, 'big') + signature).decode()}\n"
        lines = [
            f"— {name} {base64.b64encode(blob).decode()}\n"
            for name, blob in checkpoint.signatures
            if name == checkpoint.origin
        ]
        note = checkpoint.text + "\n" + "".join(lines)
        values = (checkpoint.origin, checkpoint.size, checkpoint.root, time_s, note + line)
        database.execute("INSERT OR REPLACE INTO heads VALUES (?, ?, ?, ?, ?)", values)
        return line

    def checkpoint(self, origin_hash: str) -> str:
        """Return the last cosigned note of the log whose origin has this SHA-256. Raises Answer: there is none."""
        with self.connect() as database:
            for origin, note in database.execute("SELECT origin, note FROM heads"):
                if hashlib.sha256(origin.encode()).hexdigest() == origin_hash:
                    return str(note)
        raise Answer(404, "this witness has not cosigned a checkpoint of this log\n")


class Handler(BaseHTTPRequestHandler):
    """The handler of one HTTP connection."""

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
            raise Answer(404, "not found: use /add-checkpoint\n")
        if not re.fullmatch(r"[0-9]{1,9}", length) or "transfer-encoding" in self.headers:
            raise Answer(411, "the request needs a Content-Length\n")
        if int(length) > body_size_max_bytes:
            raise Answer(413, f"the request has more than {body_size_max_bytes} bytes\n")
        body = self.rfile.read(int(length))
        self.close_connection = self.close_connection or len(body) < int(length)
        return self.witness.add_checkpoint(body)

    def _show(self) -> str:
        if (match := re.fullmatch(r"/([0-9a-f]{64})/checkpoint", self.path)) is None:
            raise Answer(404, "not found: use /ORIGIN-HASH/checkpoint\n")
        return self.witness.checkpoint(match[1])

    def _answer(self, respond: Callable[[], str]) -> None:
        try:
            answer = Answer(200, respond())
        except Answer as refusal:
            answer = refusal
            self.close_connection = self.close_connection or answer.status in {
                404,
                411,
                413,
            }  # otherwise the unread rest of the request would be taken for the next one
        except sqlite3.Error as error:
            self.log_error("database: %s", error)
            answer = Answer(503, "the witness cannot use its database now: ask again later\n")
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
    """A server with at most ``requests_max`` connections, each with a time limit. It drops further connections."""

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
        """Serve the connection, then free its thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log one line when a connection ends early. A slow or gone client needs no traceback."""
        sys.stderr.write(f"{client_address[0]}: the connection ended early\n")


def init(state: Path, name: str) -> str:
    """Make a witness in the folder ``state``; return its vkey. Raises ValueError: the name is not valid."""
    if not name or re.search(r"[\s+\x00-\x1f]", name):
        raise ValueError("a name must not contain spaces or a plus: use one like witness.example/one")
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The database is made first and never replaced. If the process dies before the key exists, ``serve`` refuses it.
    (state / "witness.db").touch(exist_ok=False)
    with contextlib.closing(sqlite3.connect(state / "witness.db")) as database:
        database.executescript(TABLES)
    with os.fdopen(os.open(state / "witness.key", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump({"name": name, "seed": bytes(SigningKey.generate()).hex()}, file)
        file.flush()
        os.fsync(file.fileno())
    return Witness(state).vkey


def main(arguments: list[str]) -> int:
    """Run a verb of the command line; return the exit code."""
    parser = argparse.ArgumentParser(description="A small witness for transparency logs (C2SP tlog-witness).")
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("init", "add", "logs", "serve"):
        verbs.add_parser(verb).add_argument("state", type=Path)
    verbs.choices["init"].add_argument(
        "--name", required=True, help="a URL without its scheme, such as witness.example/one"
    )
    verbs.choices["add"].add_argument("vkeys", nargs="+", help="vkeys of logs: keys/checkpoint.vkey of an export")
    verbs.choices["serve"].add_argument("--listen", default="127.0.0.1:8090", metavar="HOST:PORT")
    options = parser.parse_args(arguments)
    try:
        if options.verb == "init":
            sys.stdout.write(f"{init(options.state, options.name)}\n")
            return 0
        witness = Witness(options.state)
        if options.verb == "serve":
            serve(witness, options.listen)
            return 0
        with witness.connect() as database:
            if options.verb == "add":
                database.executemany("INSERT OR IGNORE INTO logs VALUES (?, ?)", [*map(parse_vkey, options.vkeys)])
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
    """Answer requests until the process ends. Killing it at any time is safe."""
    Handler.witness = witness
    host, _, port = listen.rpartition(":")
    with Server((host or "127.0.0.1", int(port)), Handler) as server:
        url = f"http://{host or '127.0.0.1'}:{server.server_address[1]}"
        print(witness.vkey, url, sep="\n", flush=True)  # noqa: T201
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
