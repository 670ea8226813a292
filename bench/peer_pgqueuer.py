"""PgQueuer: asyncpg, uvloop, batches of 100, LISTEN/NOTIFY."""

import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import asyncpg
import uvloop
from pgqueuer.db import AsyncpgDriver
from pgqueuer.qm import QueueManager
from pgqueuer.queries import Queries

from bench.peer import answer

BATCH = 100


class PgQueuer:
    async def setup(self, url: str) -> None:
        connection = await asyncpg.connect(url)
        await Queries(AsyncpgDriver(connection)).install()
        await connection.close()

    async def client(self, url: str) -> "Client":
        return Client(await asyncpg.connect(url))

    def work(self, url: str, hit: Callable[[int], None]) -> None:
        uvloop.run(self._work(url, hit))

    async def _work(self, url: str, hit: Callable[[int], None]) -> None:
        manager = QueueManager(Queries(AsyncpgDriver(await asyncpg.connect(url))))

        @manager.entrypoint("noop")
        async def noop(job: Any) -> None:
            hit(json.loads(job.payload)["i"])

        await manager.run(batch_size=BATCH, dequeue_timeout=timedelta(seconds=30))


class Client:
    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.queries = Queries(AsyncpgDriver(connection))

    async def one(self, number: int) -> None:
        await self.queries.enqueue("noop", payload(number))

    async def many(self, numbers: Sequence[int]) -> None:
        count = len(numbers)
        await self.queries.enqueue(["noop"] * count, [payload(number) for number in numbers], [0] * count)

    async def close(self) -> None:
        await self.connection.close()


def payload(number: int) -> bytes:
    return json.dumps({"i": number}).encode()


if __name__ == "__main__":
    answer(PgQueuer())
