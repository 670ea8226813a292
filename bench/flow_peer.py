"""What every engine of workflows answers, in an environment of its own: how long a fan-out and a chain take.

    python -m bench.peer_NAME URL --width 998 --length 200 --runs 3

- Only the standard library is imported here: a peer's environment has nothing of ours.
- A peer's file gives two functions, each runs one workflow to its end. They may be coroutines, on one event loop.
- The first run of each is not counted.
"""

import argparse
import asyncio
import inspect
import json
import time
from collections.abc import Callable
from typing import Any


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--width", type=int, required=True)
    parser.add_argument("--length", type=int, required=True)
    parser.add_argument("--runs", type=int, required=True)
    return parser.parse_args()


def answer(given: argparse.Namespace, fan: Callable[[int], Any], chain: Callable[[int], Any]) -> None:
    """Print the seconds of each run."""
    loop = asyncio.new_event_loop()
    found: dict[str, list[float]] = {"fan": [], "chain": []}
    for counted in [False] + [True] * given.runs:
        for name, run, size in (("fan", fan, given.width), ("chain", chain, given.length)):
            began = time.monotonic()
            wanted = size if counted else min(size, 20)
            if inspect.iscoroutinefunction(run):
                loop.run_until_complete(run(wanted))
            else:
                run(wanted)
            if counted:
                found[name].append(time.monotonic() - began)
    print(json.dumps(found), flush=True)
