"""litequeue: a bare queue without a worker; the loop is the one its documentation shows (pop, work, done).

Its commits do not fsync (`synchronous=NORMAL`).
"""

import json
import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import Any

from litequeue import LiteQueue

from bench.peer import answer

PAUSE = 0.001


class Lite:
    def setup(self, url: str) -> None:
        opened(url).close()

    def client(self, url: str) -> "Client":
        return Client(opened(url))

    def work(self, url: str, hit: Callable[[int], None]) -> None:
        queue = opened(url)
        while True:
            message = patiently(queue.pop)
            if message is None:
                time.sleep(PAUSE)
                continue
            hit(json.loads(message.data)["i"])
            patiently(finisher(queue, message))


class Client:
    def __init__(self, queue: LiteQueue) -> None:
        self.queue = queue

    def one(self, number: int) -> None:
        text = json.dumps({"i": number})
        patiently(lambda: self.queue.put(text))

    def many(self, numbers: Sequence[int]) -> None:
        for number in numbers:  # it has no way to put many
            self.one(number)

    def close(self) -> None:
        self.queue.close()


def opened(url: str) -> LiteQueue:
    return LiteQueue(url.removeprefix("sqlite:///"))


def finisher(queue: LiteQueue, message: Any) -> Callable[[], Any]:
    return lambda: queue.done(message.message_id, claim_id=message.claim_id)


def patiently(action: Callable[[], Any]) -> Any:
    """Again while the file is locked."""
    while True:
        try:
            return action()
        except sqlite3.OperationalError:
            time.sleep(PAUSE)


if __name__ == "__main__":
    answer(Lite())
