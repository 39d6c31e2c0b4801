"""What a node tells its witnesses: each new checkpoint, with the proof that the log has only grown (C2SP tlog-witness).

``[witness]`` in config.toml, which counts when the folder is trusted, names them and what follows without them::

    [witness]
    fail = "open"        # or "closed": outsiders and receipts get witnessed checkpoints only
    policy = '''
    witness one witness.example/one+…+… https://witness.example
    quorum one
    '''

Once the policy's quorum is met, the note with its cosignatures takes the place of the last one, in the file
``witnessed`` of the ledger's folder; witnesses that were late are added. A witness says its size when it and we
disagree, so nothing else is kept. One that is away or answers nonsense is asked less and less often, and the others are
not kept waiting for longer than its answer may take.

A cosignature is believed after the same check that any reader makes, and only if it was made now: a witness that signs
another text, with another key or at another time is told of in the log, and its line is dropped. A witness that has
seen more than the log holds tells that something was lost or put back; only root can go on from that, with others.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

import msgspec
import structlog

from deedbook.consumers.sdk.http import NoAnswer, request
from deedbook.ledger import limits
from deedbook.ledger.client.local import LocalClient
from deedbook.ledger.errors import Corrupted, DeedbookError, Unavailable
from deedbook.ledger.format.codec import decode_decimal, encode_base64
from deedbook.ledger.home.location import WITNESSED_FILE
from deedbook.ledger.proof.checkpoint import Checkpoint, note_size_max_bytes, parse_checkpoint
from deedbook.ledger.proof.policy import Policy, Witness
from deedbook.ledger.system.files import write_whole
from deedbook.ledger.system.metrics import Metrics

log = structlog.get_logger("deedbook.witness")

interval_s: Final = 1.0
threads_max: Final = 8
_OK: Final = 200
_CONFLICT: Final = 409


class _Asked(msgspec.Struct):
    """What is known of a witness: the size it cosigned last, its line on the present note, when to ask it again."""

    name: str
    witness: Witness
    size: int = 0
    line: str = ""
    again_s: float = 0.0
    pause_s: float = interval_s
    problem: str = ""


class Witnessing:
    """Has checkpoints of one log cosigned, for as long as ``run`` is not stopped."""

    def __init__(
        self, client: LocalClient, policy: Policy, *, fail_closed: bool, metrics: Metrics | None = None
    ) -> None:
        client.needs_witnesses = fail_closed
        self._client = client
        self._policy = policy
        self._tally = metrics or Metrics()
        self._asked = [_Asked(name, witness) for name, witness in policy.witnesses.items()]
        self._note, self._kept = "", ""

    def run(self, stop: threading.Event) -> None:
        """Submit the log's head to whoever has not cosigned it, at most once a second, until ``stop`` is set.

        Raises Corrupted: ``HISTORY_CHANGED``: it is not the log that was served.
        """
        with ThreadPoolExecutor(threads_max, thread_name_prefix="deedbook-witness") as threads:
            while not stop.is_set():
                self.ask_once(threads)
                stop.wait(interval_s)

    def ask_once(self, threads: ThreadPoolExecutor) -> None:
        """Submit the log's head to each witness that has not cosigned it and whose pause is over."""
        note = self._client.signed_consistency(0).checkpoint
        if note != self._note:
            self._client.remember()  # before anybody is told: from this head the log must go on
            self._note, kept = note, self._client.checkpoint()
            for asked in self._asked:
                asked.line = ""
                with suppress(
                    DeedbookError
                ):  # of an earlier run, if it was of this head; damaged, it is asked for again
                    asked.line = _line_of(asked.witness, note, kept)[0]
        due = [asked for asked in self._asked if not asked.line and asked.again_s <= time.monotonic()]
        list(threads.map(self._ask, due))
        self._keep()

    def _ask(self, asked: _Asked) -> None:
        try:
            asked.line = self._cosignature(asked)
        except (DeedbookError, NoAnswer) as error:
            problem = str(error)
            self._tally.count("witness_failures", asked.name)
            if problem != asked.problem:
                log.warning("not witnessed", witness=asked.name, error=problem)
            asked.problem, asked.size = problem, 0  # whatever it said of its size may have been wrong, too
            asked.again_s = time.monotonic() + asked.pause_s
            asked.pause_s = min(2 * asked.pause_s, limits.witness_retry_max_s)
            return
        self._tally.put("witness_entries", asked.size, asked.name)
        if asked.problem:
            log.info("witnessed again", witness=asked.name)
        asked.problem, asked.pause_s = "", interval_s

    def _cosignature(self, asked: _Asked) -> str:
        checkpoint = parse_checkpoint(self._note)
        for _ in range(2):
            if asked.size > checkpoint.size:
                sizes = f"it has cosigned {asked.size} entries, and the log has {checkpoint.size}"
                message = f"{sizes}: some were lost, or an older copy was put back (`deed recover --from-stream`)"
                raise Corrupted("HISTORY_CHANGED", message, witness=asked.name, size=asked.size)
            status, body = self._submit(asked, checkpoint)
            if status != _CONFLICT:
                break
            asked.size = decode_decimal(body.decode("ascii", "replace").removesuffix("\n"), "witness' size")
        if status != _OK:
            raise Unavailable("STORE_UNAVAILABLE", f"it refused the checkpoint with status {status}", status=status)
        line = self._believed(asked, body.decode("utf-8", "replace"))
        asked.size = checkpoint.size
        return line

    def _submit(self, asked: _Asked, checkpoint: Checkpoint) -> tuple[int, bytes]:
        path = self._client.consistency(asked.size, checkpoint.size).path
        body = f"old {asked.size}\n" + "".join(f"{encode_base64(one)}\n" for one in path) + "\n" + self._note
        url, read = asked.witness.url.rstrip("/") + "/add-checkpoint", frozenset({_OK, _CONFLICT})
        limit_s, limit_bytes = limits.witness_answer_max_s, note_size_max_bytes
        answer = request("POST", url, body.encode(), limit_s=limit_s, answer_max_bytes=limit_bytes, read=read)
        return answer.status, answer.body

    def _believed(self, asked: _Asked, answer: str) -> str:
        line, time_s = _line_of(asked.witness, self._note, answer)
        if not line:
            message = "its answer holds no cosignature of the key that the policy names"
            raise Corrupted("VERIFICATION_FAILED", message, witness=asked.name)
        if abs(time_s - time.time()) > limits.witness_clock_ahead_max_s:
            message = f"it says that it cosigned at {time_s}, which is not now: its clock is wrong, or it repeats"
            raise Corrupted("VERIFICATION_FAILED", message, witness=asked.name, time_s=time_s)
        return line

    def _keep(self) -> None:
        """Put the note with what was cosigned in the place of the last one, once that is enough.

        If we crash before it, it is asked for again; after it, whoever was late is asked again.
        """
        note = self._note + "".join(asked.line for asked in self._asked)
        if note == self._kept or not self._policy.judge(note, time.time()).is_met:
            return
        write_whole(self._client.settings.home / WITNESSED_FILE, note.encode())
        self._kept = note


def _line_of(witness: Witness, note: str, lines: str) -> tuple[str, int]:
    """Return the first of these lines that is the witness' word on a note, and its time; empty if none is.

    Raises Corrupted: a line claims to be, and does not fit. Refused: there is a line that is none.
    """
    text, _, _ = note.rpartition("\n\n")
    for line in filter(None, lines.rpartition("\n\n")[2].split("\n")):
        if times := witness.times(f"{text}\n\n{line}\n"):
            return f"{line}\n", times[0]
    return "", 0
