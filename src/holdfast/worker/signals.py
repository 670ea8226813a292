"""Running a worker in the foreground until a signal ends it: the first asks it to stop, the second hurries it (C5)."""

import signal
import threading
from types import FrameType
from typing import Protocol


class Stoppable(Protocol):
    """A worker, as far as signals know it."""

    @property
    def stopping(self) -> bool: ...

    def start(self) -> None: ...

    def stop(self, hurry: bool = False) -> None: ...

    def stopped(self, timeout: float | None = None) -> bool: ...


STOPPING = (signal.SIGTERM, signal.SIGINT)


def run_until_signal(worker: Stoppable) -> None:
    """Blocks. Outside the main thread, where signals cannot be handled, until somebody calls `worker.stop()`."""
    if threading.current_thread() is not threading.main_thread():
        worker.start()
        worker.stopped()
        return

    def stop(_number: int, _frame: FrameType | None) -> None:
        threading.Thread(target=worker.stop, args=(worker.stopping,), name="holdfast-stop").start()

    before = {number: signal.signal(number, stop) for number in STOPPING}
    try:
        worker.start()
        while not worker.stopped(0.5):
            pass  # woken now and then, so that Python runs the signal handler also where waits cannot be interrupted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
