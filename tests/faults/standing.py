"""A worker that stops in the middle of a claim, once: with the queue's lock, inside a transaction. `URL NAME … MARK`."""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast import ADMIT, App

LOST_AFTER = 2.0


def make_app(url: str, name: str, mark: Path | None = None) -> App:
    """With a mark: whoever is the first to look at the limited queue leaves it, and stands still."""
    app = App(url, name=name, heartbeat=0.2, lost_after=LOST_AFTER)

    def admit(running: Sequence[Any], candidates: Sequence[Any]) -> list[Any]:
        if mark is not None and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGSTOP)
        return [ADMIT] * len(candidates)

    @app.queue("limited", throttle_limit=3, throttler=admit).job
    async def slot(i: int) -> int:
        return i

    @app.queue("free").job
    async def send(i: int) -> int:
        return i

    return app


if __name__ == "__main__":
    with make_app(sys.argv[1], sys.argv[2], Path(sys.argv[-1])).worker() as running:
        running.stopped()
