"""`make sim SEEDS=20000 FROM=0 STORE=sqlite`: plays seeds on all cores and tells the story of the first that breaks a promise."""

import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from typing import NoReturn

from tests.postgres_on_demand import SETTINGS, own_server
from tests.postgres_server import Server
from tests.simulation.playing import first_fault, story_of
from tests.simulation.stages import PostgresStage, Stage
from tests.simulation.world import setting

AT_A_TIME = 100
STORES = ("sqlite", "postgres")
stage: Stage | None = None  # of this process; None is in memory


def main() -> int:
    count, first = whole("SEEDS", "20000", least=1), whole("FROM", "0", least=0)
    store = os.environ.get("STORE") or STORES[0]
    if store not in STORES:
        refuse(f"STORE={store}: it may be {' or '.join(STORES)}.")
    if store == "sqlite":
        return play_all(count, first, None)
    server = own_server(*SETTINGS)
    try:
        server.start()
        return play_all(count, first, server)
    finally:
        server.remove()


def whole(name: str, default: str, least: int) -> int:
    given = os.environ.get(name) or default
    if not given.isdecimal() or int(given) < least:
        refuse(f"{name}={given}: give a whole number, {least} or more.")
    return int(given)


def refuse(text: str) -> NoReturn:
    print(text, file=sys.stderr)
    raise SystemExit(2)


def play_all(count: int, first: int, server: Server | None) -> int:
    began, played = time.monotonic(), 0
    with ProcessPoolExecutor(initializer=enter, initargs=(server,)) as pool:
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


def enter(server: Server | None) -> None:
    global stage
    if server is not None:
        stage = PostgresStage(setting(), server.create(f"sim_{os.getpid()}"))


def piece(seeds: tuple[int, int]) -> str | None:
    start, count = seeds
    found = first_fault(range(start, start + count), stage)
    return None if found is None else story_of(found[0], stage)


if __name__ == "__main__":
    sys.exit(main())
