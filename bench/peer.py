"""The commands every peer in Python answers, in an environment of its own: setup, worker, one, many, latency.

    python -m bench.peer_NAME setup|worker|one|many|latency URL [--marks FILE] [--count N]

- Only the standard library and `bench.marks` are imported here: a peer's environment has nothing of ours.
- A peer's file gives an object with `setup`, `work` and `client`; a client has `one`, `many` and `close`. All may be coroutines.
"""

import argparse
import asyncio
import inspect
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

from bench.marks import Marks

LOT, GAP = 1000, 0.02


def answer(peer: Any) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["setup", "worker", "one", "many", "latency"])
    parser.add_argument("url")
    parser.add_argument("--marks", type=Path)
    parser.add_argument("--count", type=int, default=0)
    given = parser.parse_args()
    if given.command == "worker":
        threading.Thread(target=_die_with_driver, daemon=True).start()
        peer.work(given.url, Marks(given.marks, given.count).hit)
        return
    asyncio.run(_client(peer, given.command, given.url, given.count))


def _die_with_driver() -> None:
    os.read(0, 1)
    os._exit(1)


async def _client(peer: Any, command: str, url: str, count: int) -> None:
    if command == "setup":
        await _had(peer.setup(url))
        return
    client = await _had(peer.client(url))
    if command == "many":
        began = time.monotonic()
        for start in range(0, count, LOT):
            await _had(client.many(range(start, min(count, start + LOT))))
        print(json.dumps(time.monotonic() - began))
    elif command == "one":
        await _had(client.one(count))
        began = time.monotonic()
        for number in range(count):
            await _had(client.one(number))
        print(json.dumps(time.monotonic() - began))
    else:
        print(json.dumps(await _steadily(client, count)))
    await _had(client.close())


async def _steadily(client: Any, count: int) -> list[float]:
    await _had(client.one(count))
    await asyncio.sleep(2)
    moments, next_time = [], time.monotonic()
    for number in range(count):
        await asyncio.sleep(max(0.0, next_time - time.monotonic()))
        next_time += GAP
        moments.append(time.monotonic())
        await _had(client.one(number))
    return moments


async def _had(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
