"""A program that floods a server as an agent: over a bare socket, as fast as the socket takes it.

    flooding.py PORT SEED AGENT SUBJECT SIZE CONNECTIONS SECONDS PER_SECOND     (PER_SECOND 0: as fast as it goes)

It implements the protocol itself, because nats-py would be slower than the tested server. It reads the answers and
discards them. It prints "ready" once it is connected, begins at the first line of input, and ends after SECONDS or when
its input ends. Then it prints how much it sent.
"""

from __future__ import annotations

import base64
import json
import socket
import sys
import threading
import time
from contextlib import suppress

import nkeys

PIECE_BYTES = 512 * 1024


class Flood(threading.Thread):
    """One connection that floods."""

    def __init__(self, port: int, seed: str, agent: str, message: bytes, seconds: float, per_second: float) -> None:
        super().__init__(daemon=True)
        self.message, self.seconds, self.per_second = message, seconds, per_second
        self.sent = 0
        self.socket = connect(port, seed)
        self.socket.sendall(f"SUB _INBOX_{agent}.> 1\r\n".encode())

    def run(self) -> None:
        """Send until the time is up or the server ends the connection."""
        threading.Thread(target=self.read, daemon=True).start()
        count = 1 if self.per_second else max(1, PIECE_BYTES // len(self.message))
        piece, start = self.message * count, time.monotonic()
        with suppress(OSError):
            while (elapsed := time.monotonic() - start) < self.seconds:
                if self.per_second and self.sent > elapsed * self.per_second:
                    time.sleep(0.001)
                    continue
                self.socket.sendall(piece)
                self.sent += count

    def read(self) -> None:
        """Discard the answers."""
        with suppress(OSError):
            while self.socket.recv(1 << 20):
                pass


def connect(port: int, seed: str) -> socket.socket:
    """Return a socket on which the server has accepted a login with this key."""
    connection = socket.create_connection(("127.0.0.1", port))
    lines = connection.makefile("rb", buffering=0)
    key = nkeys.from_seed(bytearray(seed, "ascii"))
    nonce = json.loads(lines.readline()[len(b"INFO ") :])["nonce"]
    signature = base64.urlsafe_b64encode(key.sign(nonce.encode())).rstrip(b"=").decode()
    options = {"nkey": key.public_key.decode(), "sig": signature, "verbose": False, "pedantic": False}
    options |= {"headers": True, "no_responders": True, "protocol": 1, "lang": "flood", "version": "1"}
    connection.sendall(b"CONNECT " + json.dumps(options).encode() + b"\r\nPING\r\n")
    if (answer := lines.readline()) != b"PONG\r\n":
        connection.close()
        raise ConnectionError(answer.decode())
    return connection


def heard(connection: socket.socket, text: bytes) -> bool:
    """Read until the server sends these bytes or ends the connection; return whether it sent them."""
    answer = b""
    while text.lower() not in answer.lower():
        try:
            answer += (piece := connection.recv(1 << 16))
        except OSError:
            return False
        if not piece:
            return False
    return True


def message_of(subject: str, agent: str, payload: bytes, headers: bytes = b"") -> bytes:
    """Return the bytes of one message with a reply subject."""
    inbox = f"_INBOX_{agent}.x"
    if headers:
        return (
            f"HPUB {subject} {inbox} {len(headers)} {len(headers + payload)}\r\n".encode() + headers + payload + b"\r\n"
        )
    return f"PUB {subject} {inbox} {len(payload)}\r\n".encode() + payload + b"\r\n"


def stop_at_end(floods: list[Flood]) -> None:
    """Stop when standard input is closed."""
    sys.stdin.read()
    for flood in floods:
        flood.seconds = 0


def main() -> None:
    """Connect, wait for a line of input, flood, and print how much was sent."""
    port, seed, agent, subject, size, connections, seconds, per_second = sys.argv[1:]
    message = message_of(subject, agent, b"x" * int(size))
    floods = [
        Flood(int(port), seed, agent, message, float(seconds), float(per_second) / int(connections))
        for _ in range(int(connections))
    ]
    print("ready", flush=True)
    sys.stdin.readline()
    for flood in floods:
        flood.start()
    threading.Thread(target=stop_at_end, args=(floods,), daemon=True).start()
    for flood in floods:
        flood.join()
    print(sum(flood.sent for flood in floods))


if __name__ == "__main__":
    main()
