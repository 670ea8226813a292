"""Procrastinate: an async worker with 20 jobs at once, LISTEN/NOTIFY, finished jobs kept."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import procrastinate

from bench.peer import answer

CONCURRENCY = 20


class Procrastinate:
    async def setup(self, url: str) -> None:
        app = made(url, print)
        async with app.open_async():
            await app.schema_manager.apply_schema_async()

    async def client(self, url: str) -> "Client":
        app = made(url, print)
        await app.open_async()
        return Client(app)

    def work(self, url: str, hit: Callable[[int], None]) -> None:
        asyncio.run(self._work(made(url, hit)))

    async def _work(self, app: procrastinate.App) -> None:
        async with app.open_async():
            await app.run_worker_async(
                queues=["work"], concurrency=CONCURRENCY, listen_notify=True, delete_jobs="never"
            )


class Client:
    def __init__(self, app: procrastinate.App) -> None:
        self.app = app
        self.task = app.tasks["noop"]

    async def one(self, number: int) -> None:
        await self.task.defer_async(i=number)

    async def many(self, numbers: Sequence[int]) -> None:
        await self.task.batch_defer_async(*({"i": number} for number in numbers))

    async def close(self) -> None:
        await self.app.close_async()


def made(url: str, hit: Callable[[int], Any]) -> procrastinate.App:
    connector = procrastinate.PsycopgConnector(conninfo=url, min_size=2, max_size=CONCURRENCY + 2)
    app = procrastinate.App(connector=connector)

    @app.task(name="noop", queue="work")
    async def noop(i: int) -> None:
        hit(i)

    return app


if __name__ == "__main__":
    answer(Procrastinate())
