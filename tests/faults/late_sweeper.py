"""A sweeper that is stopped between its look at a worker and what it does about it, once: `URL NAME … MARK`.

It leaves the mark, stops itself, and when it goes on writes into the mark what came of it and ends.
"""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from holdfast.clock import Clock
from tests.faults.dying_sweeper import lone_sweeper
from tests.faults.fleet import make_app


def stop_before_losing(store: Any, mark: Path) -> None:
    lose = store.lose

    def late(*asked: Any) -> Any:
        mark.touch()
        os.kill(os.getpid(), signal.SIGSTOP)
        mark.write_text(repr(lose(*asked)))
        os._exit(0)  # what it sees later is another matter

    store.lose = late


if __name__ == "__main__":
    with make_app(sys.argv[1], sys.argv[2]) as app:
        stop_before_losing(app.store, Path(sys.argv[-1]))
        sweeper = lone_sweeper(app, Clock())
        while True:
            time.sleep(min(0.2, sweeper.sweep()))
