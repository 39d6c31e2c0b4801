"""The witnesses of a node: they get each new checkpoint with a proof that the log only grew (C2SP tlog-witness).

``[witness]`` in the config.toml of a trusted folder names the witnesses, and what happens without them::

    [witness]
    fail = "open"        # or "closed": outsiders and receipts get only witnessed checkpoints
    policy = '''
    witness one witness.example/one+…+… https://witness.example
    quorum one
    '''

Once the policy's quorum is met, the note with its cosignatures replaces the last one in the file ``witnessed`` of the
ledger's folder; late witnesses are added. A witness that disagrees answers with its size, so nothing else is stored. A
witness that is unavailable or sends an invalid answer is asked again after growing pauses. It delays the others at most
by the timeout of one answer. The node checks a cosignature like any reader, and accepts only a present one. If a
witness signs another text, with another key or at another time, the node logs it and drops the line. A witness that has
seen more entries than the log holds proves a loss or an older copy; then only root can continue, with other witnesses.
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


class _WitnessState(msgspec.Struct):
    """The state of a witness: its last cosigned size, its line for the present note, and when to ask it again."""

    name: str
    witness: Witness
    size: int = 0
    line: str = ""
    again_s: float = 0.0
    pause_s: float = interval_s
    problem: str = ""


class Witnessing:
    """Gets cosignatures for the checkpoints of one log until ``run`` is stopped."""

    def __init__(
        self, client: LocalClient, policy: Policy, *, fail_closed: bool, metrics: Metrics | None = None
    ) -> None:
        client.needs_witnesses = fail_closed
        self._client = client
        self._policy = policy
        self._metrics = metrics or Metrics()
        self._states = [_WitnessState(name, witness) for name, witness in policy.witnesses.items()]
        self._note, self._stored = "", ""

    def run(self, stop: threading.Event) -> None:
        """Submit the log's head to witnesses that have not cosigned it, at most once a second, until ``stop`` is set.

        Raises Corrupted: ``HISTORY_CHANGED``: the log does not continue the one that was served.
        """
        with ThreadPoolExecutor(threads_max, thread_name_prefix="deedbook-witness") as threads:
            while not stop.is_set():
                self.ask_once(threads)
                stop.wait(interval_s)

    def ask_once(self, threads: ThreadPoolExecutor) -> None:
        """Submit the log's head to each witness that has not cosigned it and whose pause is over."""
        note = self._client.signed_consistency(0).checkpoint
        if note != self._note:
            self._client.remember()  # store the head before anybody else has it: the log must continue from it
            self._note, stored = note, self._client.checkpoint()
            for state in self._states:
                state.line = ""
                # Reuse an earlier run's cosignature of this head. If it is damaged, the node asks the witness again.
                with suppress(DeedbookError):
                    state.line = _line_of(state.witness, note, stored)[0]
        due = [state for state in self._states if not state.line and state.again_s <= time.monotonic()]
        list(threads.map(self._ask, due))
        self._store()

    def _ask(self, state: _WitnessState) -> None:
        try:
            state.line = self._cosignature(state)
        except (DeedbookError, NoAnswer) as error:
            problem = str(error)
            self._metrics.count("witness_failures", state.name)
            if problem != state.problem:
                log.warning("not witnessed", witness=state.name, error=problem)
            state.problem, state.size = problem, 0  # the size that it named may be wrong, too
            state.again_s = time.monotonic() + state.pause_s
            state.pause_s = min(2 * state.pause_s, limits.witness_retry_max_s)
            return
        self._metrics.put("witness_entries", state.size, state.name)
        if state.problem:
            log.info("witnessed again", witness=state.name)
        state.problem, state.pause_s = "", interval_s

    def _cosignature(self, state: _WitnessState) -> str:
        checkpoint = parse_checkpoint(self._note)
        for _ in range(2):
            if state.size > checkpoint.size:
                sizes = f"it has cosigned {state.size} entries, but the log has {checkpoint.size}"
                message = (
                    f"{sizes}. Entries were lost, or an older copy was put back: run `deed recover --from-stream`."
                )
                raise Corrupted("HISTORY_CHANGED", message, witness=state.name, size=state.size)
            status, body = self._submit(state, checkpoint)
            if status != _CONFLICT:
                break
            state.size = decode_decimal(body.decode("ascii", "replace").removesuffix("\n"), "witness' size")
        if status != _OK:
            raise Unavailable("STORE_UNAVAILABLE", f"it refused the checkpoint with status {status}", status=status)
        line = self._checked_line(state, body.decode("utf-8", "replace"))
        state.size = checkpoint.size
        return line

    def _submit(self, state: _WitnessState, checkpoint: Checkpoint) -> tuple[int, bytes]:
        path = self._client.consistency(state.size, checkpoint.size).path
        body = f"old {state.size}\n" + "".join(f"{encode_base64(sibling)}\n" for sibling in path) + "\n" + self._note
        url, read = state.witness.url.rstrip("/") + "/add-checkpoint", frozenset({_OK, _CONFLICT})
        limit_s, limit_bytes = limits.witness_answer_max_s, note_size_max_bytes
        answer = request("POST", url, body.encode(), limit_s=limit_s, answer_max_bytes=limit_bytes, read=read)
        return answer.status, answer.body

    def _checked_line(self, state: _WitnessState, answer: str) -> str:
        line, time_s = _line_of(state.witness, self._note, answer)
        if not line:
            message = "its answer has no cosignature of the key in the policy"
            raise Corrupted("VERIFICATION_FAILED", message, witness=state.name)
        if abs(time_s - time.time()) > limits.witness_clock_ahead_max_s:
            message = f"its cosignature is from {time_s}, not from now: its clock is wrong, or it repeats an old one"
            raise Corrupted("VERIFICATION_FAILED", message, witness=state.name, time_s=time_s)
        return line

    def _store(self) -> None:
        """Replace the stored note with the cosigned one once the quorum is met.

        If we crash before the write, the next start asks all witnesses again; after it, only the late ones.
        """
        note = self._note + "".join(state.line for state in self._states)
        if note == self._stored or not self._policy.judge(note, time.time()).is_met:
            return
        write_whole(self._client.settings.home / WITNESSED_FILE, note.encode())
        self._stored = note


def _line_of(witness: Witness, note: str, lines: str) -> tuple[str, int]:
    """Return the first of these lines that is the witness's cosignature of a note, and its time; empty if none is.

    Raises Corrupted: a line claims to be one and does not verify. Refused: a line is not a signature.
    """
    text, _, _ = note.rpartition("\n\n")
    for line in filter(None, lines.rpartition("\n\n")[2].split("\n")):
        if times := witness.times(f"{text}\n\n{line}\n"):
            return f"{line}\n", times[0]
    return "", 0
