"""Runs simulated worlds, or one of them again with its trace.

python -m tests.simulation                     the worlds of the first 200 seeds
python -m tests.simulation --seeds 0 10000     the worlds of the seeds from 0 to 9,999
python -m tests.simulation --seed 17 --trace   one world, with everything that happened in it
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.simulation.fate import run_seed


def main() -> int:
    """Run the requested seeds; return 1 if any invariant was violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, help="run this one alone")
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 200), metavar=("FIRST", "END"), help="run these")
    parser.add_argument("--trace", action="store_true", help="print all that happened")
    arguments = parser.parse_args()
    seeds = range(*arguments.seeds) if arguments.seed is None else [arguments.seed]
    begun_s, violated = time.process_time(), 0
    for seed in seeds:
        outcome = run_seed(seed, is_traced=arguments.trace)
        print(*outcome.trace, sep="\n", end="\n" if outcome.trace else "")
        if outcome.violation is not None:
            violated += 1
            print(f"seed {seed}: {outcome.violation}")
            print(f"  python -m tests.simulation --seed {seed} --trace")
    print(f"{len(seeds):,} worlds in {time.process_time() - begun_s:.1f} s of processor: {violated} violated")
    return int(violated > 0)


if __name__ == "__main__":
    sys.exit(main())
