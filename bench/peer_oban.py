"""Oban for Python: a queue with fifty jobs at once, fetched and acknowledged in batches."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import uvloop
from oban import Oban, worker
from oban.schema import install
from psycopg_pool import AsyncConnectionPool

from bench.peer import answer

CONCURRENCY = 50
hits: list[Callable[[int], None]] = []


@worker(queue="work")
class Noop:
    async def process(self, job: Any) -> None:
        hits[0](job.args["i"])


class ObanPeer:
    async def setup(self, url: str) -> None:
        async with pool(url) as connections:
            await install(connections)

    async def client(self, url: str) -> "Client":
        connections = pool(url)
        await connections.open()
        oban = Oban(pool=connections, name="client")
        await oban.__aenter__()
        return Client(oban, connections)

    def work(self, url: str, hit: Callable[[int], None]) -> None:
        hits.append(hit)
        uvloop.run(self._work(url))

    async def _work(self, url: str) -> None:
        async with pool(url) as connections, Oban(pool=connections, queues={"work": CONCURRENCY}):
            await asyncio.Event().wait()


class Client:
    def __init__(self, oban: Oban, connections: AsyncConnectionPool) -> None:
        self.oban, self.connections = oban, connections

    async def one(self, number: int) -> None:
        await self.oban.enqueue(Noop.new({"i": number}))

    async def many(self, numbers: Sequence[int]) -> None:
        await self.oban.enqueue_many([Noop.new({"i": number}) for number in numbers])

    async def close(self) -> None:
        await self.oban.__aexit__(None, None, None)
        await self.connections.close()


def pool(url: str) -> AsyncConnectionPool:
    return AsyncConnectionPool(url, min_size=1, max_size=10, open=False)


if __name__ == "__main__":
    answer(ObanPeer())
