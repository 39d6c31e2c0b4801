"""Reading a log that was published as C2SP tlog-tiles, in a folder or over HTTP: nothing of it is believed unproven."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from consumers.sdk.http import NoAnswer, request
from ledger.bundle.layout import tile_name
from ledger.checkpoint import CheckpointVerifier, note_size_max_bytes, verify_checkpoint
from ledger.errors import Corrupted, Refused, Unavailable
from ledger.files import read_regular
from ledger.history import Growth, GrowthSince
from ledger.log.tiles import HASH_SIZE, TILE_HEIGHT, TILE_WIDTH, tiled
from ledger.merkle import consistency_proof

wait_max_s: Final = 20.0
_OK: Final = 200


class PublishedLog:
    """A log by the prefix of its URLs, or the folder that holds the same files."""

    def __init__(self, place: str) -> None:
        self._place = place.rstrip("/")
        self._is_url = place.startswith(("http://", "https://"))

    def growth_since(self, verifier: CheckpointVerifier) -> GrowthSince:
        """Return what tells how the log grew up to its checkpoint as it is now, by proofs made of its tiles.

        Raises:
            Corrupted: the checkpoint is not signed by this key; ``HISTORY_CHANGED``, from what is returned, for a log
                that is shorter than the tree it is asked about. Refused: it is no checkpoint, or no log is there.
            Unavailable: it cannot be read.
        """
        note = self._read("checkpoint", note_size_max_bytes).decode("utf-8", "replace")
        checkpoint = verify_checkpoint(note, verifier)
        tiles: dict[tuple[int, int], list[bytes]] = {}

        def read(level: int, number: int) -> list[bytes]:
            if (level, number) not in tiles:
                width = min((checkpoint.size >> TILE_HEIGHT * level) - number * TILE_WIDTH, TILE_WIDTH)
                content = self._read(tile_name(level, number, width), width * HASH_SIZE)
                tiles[level, number] = [content[at : at + HASH_SIZE] for at in range(0, len(content), HASH_SIZE)]
            return tiles[level, number]

        def growth(old_size: int) -> Growth:
            if old_size > checkpoint.size:
                message = f"{self._place} holds {checkpoint.size} entries, and {old_size} were signed for: it was \
published earlier, or entries were taken from it. Ask whoever publishes it for the log as it is now"
                raise Corrupted("HISTORY_CHANGED", message, size=checkpoint.size, trusted_size=old_size)
            path = consistency_proof(old_size, checkpoint.size, tiled(read))
            return Growth(checkpoint.size, checkpoint.root.hex(), path, checkpoint=note)

        return growth

    def _read(self, name: str, size_max_bytes: int) -> bytes:
        where = f"{self._place}/{name}"
        if not self._is_url:
            if not Path(self._place).is_dir():
                message = f"there is no folder {self._place}: `baton export DIR/` makes one; a bundle that is one file \
has to be unpacked"
                raise Refused("NOT_FOUND", message, path=self._place)
            content = read_regular(Path(where), size_max_bytes=size_max_bytes, follow=True)
            if content is None:
                raise Refused("NOT_FOUND", f"there is no {where}", path=where)
            return content
        try:
            answer = request("GET", where, limit_s=wait_max_s, answer_max_bytes=size_max_bytes)
        except NoAnswer as error:
            raise Unavailable("STORE_UNAVAILABLE", f"{where} cannot be read: {error.problem}", url=where) from error
        if answer.status != _OK:
            raise Corrupted("VERIFICATION_FAILED", f"{where} is not there: the answer is {answer.status}", url=where)
        return answer.body
