"""`make sim SEEDS=20000 FROM=0`: plays seeds on all cores and tells the story of the first that breaks a promise."""

import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.playing import first_fault, story_of

AT_A_TIME = 100


def main() -> int:
    count, first = int(os.environ.get("SEEDS", "20000")), int(os.environ.get("FROM", "0"))
    began, played = time.monotonic(), 0
    with ProcessPoolExecutor() as pool:
        for fault in pool.map(
            piece, [(start, min(AT_A_TIME, first + count - start)) for start in range(first, first + count, AT_A_TIME)]
        ):
            played += AT_A_TIME
            if fault is not None:
                pool.shutdown(wait=False, cancel_futures=True)
                print(f"\n{fault}")
                return 1
            print(f"\r{min(played, count):,} of {count:,} seeds, {time.monotonic() - began:.0f} s", end="", flush=True)
    print("\nNo promise was broken.")
    return 0


def piece(seeds: tuple[int, int]) -> str | None:
    start, count = seeds
    found = first_fault(range(start, start + count))
    return None if found is None else story_of(found[0])


if __name__ == "__main__":
    sys.exit(main())
