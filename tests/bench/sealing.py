"""Rows of sealing: a large blob sealed into a ledger and out of it, beside `cp` and the BLAKE3 of the same file.

Each side is a whole process with the same file. The baseline writes and syncs a copy, and hashes the file in one pass,
the least work that a content-addressed store can do. ``RssAnon`` is sampled while the verb runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.bench.pairs import Bench, Budget, Row, ratios, scaled, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZE: Final = scaled(1024**3, 4 * 1024**2)
ROUNDS: Final = 3
MEMORY_MAX_BYTES: Final = 200 * 1024**2
QUOTA: Final = 64 * 1024**3
_PIECE_BYTES: Final = 4 * 1024**2
_sample_s: Final = 0.01
_HASH: Final = """
import sys
from blake3 import blake3
hasher = blake3()
with open(sys.argv[1], "rb") as file:
    while chunk := file.read(262144):
        hasher.update(chunk)
"""


def rows(bench: Bench) -> Iterator[Row]:
    """Yield the rows of this group."""
    peaks: list[int] = []
    clear, copy, out = (bench.folder / name for name in ("clear", "copy", "out"))
    with clear.open("wb") as file:
        for _ in range(SIZE // _PIECE_BYTES):
            file.write(os.urandom(_PIECE_BYTES))
    deed = (str(Path(sys.executable).with_name("deed")), "--home", str(bench.folder / "ledger"), "--as", "kuro")
    for words in (("init", "--trial"), ("seal", "create", "carol")):
        subprocess.run((*deed, *words), check=True, stdout=subprocess.DEVNULL)
    quota = f"[quota]\nblob_bytes = {QUOTA}\nblob_bytes_unreferenced = {QUOTA}\n"  # every round stores a blob
    (bench.folder / "ledger/config.toml").write_text(quota)
    refs: list[str] = []

    def put(_number: int) -> float:
        return _timed((*deed, "blob", "put", str(clear), "--seal", "carol"), peaks, refs)

    def get(_number: int) -> float:
        out.unlink(missing_ok=True)
        return _timed((*deed, "blob", "get", refs[-1].strip(), "--unseal", "-o", str(out)), peaks, [])

    def copied(_number: int) -> float:
        copy.unlink(missing_ok=True)

        def work() -> None:
            subprocess.run(("cp", clear, copy), check=True)
            subprocess.run(("sync", copy), check=True)
            subprocess.run((sys.executable, "-c", _HASH, clear), check=True)

        return seconds(work)

    baseline = "`cp`, `sync` and the BLAKE3 of the same file"
    for name, verb in (("blob put --seal", put), ("blob get --unseal", get)):
        bench.say(f"{name}: {SIZE / 1024**2:,.0f} MiB")
        found = bench.paired(verb, copied, rounds=min(bench.rounds, ROUNDS))
        medians = [sorted(side)[len(found) // 2] for side in zip(*found, strict=True)]
        note = f"{SIZE / 1024**2:,.0f} MiB in {medians[0]:.1f} s, beside {medians[1]:.1f} s"
        yield Row(f"seal: {name}", ratios(found), baseline, None, note)
    note = f"{max(peaks) / 1024**2:.0f} MiB"
    yield Row("seal: RssAnon of these verbs", [max(peaks) / MEMORY_MAX_BYTES], "200 MiB", Budget("≤", 1.0), note)


def _timed(command: tuple[str, ...], peaks: list[int], answers: list[str]) -> float:
    """Run a verb; append its peak of anonymous memory and its answer to the lists; return its seconds."""
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        while process.poll() is None:
            peaks.append(_anonymous_bytes(process.pid))
            time.sleep(_sample_s)
        taken = time.perf_counter() - start
        assert process.stdout is not None
        answers.append(process.stdout.read())
    assert process.returncode == 0, command
    return taken


def _anonymous_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))
