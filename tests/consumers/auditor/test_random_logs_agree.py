"""Random logs that are validly signed: both verifiers say the same of them, with the same codes at the same entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from faults import chances, metrics, times
from judges import alone, ours
from random_logs import STREAMS, RandomLog

if TYPE_CHECKING:
    from pathlib import Path

EVENTS: Final = 60


def test_random_logs_are_judged_alike(tmp_path: Path) -> None:
    codes: set[str] = set()
    for chance in chances("random logs", times(25, 200)):
        stage = RandomLog(chance, EVENTS).stage
        path = stage.export(tmp_path / "log.tar")
        mine, other = ours(path), alone(path)
        assert (mine.word, mine.codes) == (other.word, other.codes), f"{mine.text}\n{other.text}"
        codes |= set().union(*mine.codes.values())
        metrics(f"random logs: both say {mine.word}")
        streams = sorted(name for name in stage.streams if name.partition("/")[0] in STREAMS)
        path = stage.export(tmp_path / "stream.tar", chance.choice(streams))
        mine, other = ours(path), alone(path)
        assert (mine.word, mine.codes) == (other.word, other.codes), f"{mine.text}\n{other.text}"
        metrics(f"streams of random logs: both say {mine.word}")
    assert len(codes) > 15, codes
