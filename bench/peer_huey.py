"""huey on SQLite: four threads, no results kept, and without fsync, which is its fastest and not durable."""

from collections.abc import Callable, Sequence
from typing import Any

from huey import SqliteHuey

from bench.peer import answer

THREADS = 4


class Huey:
    def setup(self, url: str) -> None:
        made(url, print)

    def client(self, url: str) -> "Client":
        return Client(*made(url, print))

    def work(self, url: str, hit: Callable[[int], None]) -> None:
        huey, _ = made(url, hit)
        consumer = huey.create_consumer(
            workers=THREADS, worker_type="thread", periodic=False, initial_delay=0.1, max_delay=10.0
        )
        consumer.run()


class Client:
    def __init__(self, huey: SqliteHuey, noop: Callable[[dict[str, int]], Any]) -> None:
        self.huey, self.noop = huey, noop

    def one(self, number: int) -> None:
        self.noop({"i": number})

    def many(self, numbers: Sequence[int]) -> None:
        for number in numbers:  # it has no way to enqueue many
            self.noop({"i": number})

    def close(self) -> None:
        self.huey.storage.close()


def made(url: str, hit: Callable[[int], Any]) -> tuple[SqliteHuey, Any]:
    huey = SqliteHuey("work", filename=url.removeprefix("sqlite:///"), results=False, fsync=False)

    @huey.task(name="noop")
    def noop(payload: dict[str, int]) -> None:
        hit(payload["i"])

    return huey, noop


if __name__ == "__main__":
    answer(Huey())
