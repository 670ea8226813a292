"""`holdfast move` that is killed on its way: `python -m tests.faults.mover POINTS ARGUMENTS…`.

It forks a child for each point, so that no death costs the start of an interpreter. The child calls the command and kills
itself with SIGKILL when it comes to its point; a child without a point goes to the end. A point is a verb of the move or of
a side, before or after it, or the n-th time that rows are written.
"""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import holdfast.cli.moving  # noqa: F401  once, before there are children
from holdfast.cli import main
from holdfast.stores.moving import Move
from holdfast.stores.postgres.moving import PostgresSide
from holdfast.stores.sqlite.moving import SqliteSide

STEPS = ("begin", "arrive", "copy", "drain", "finish", "close")
VERBS = ("seal", "open", "remove", "unseal", "continue_after", "make_queues")
POINTS = (
    *(f"{when} {step}" for step in STEPS for when in ("before", "after")),
    *(f"{when} {verb}" for verb in ("seal", "open", "continue_after", "make_queues") for when in ("before", "after")),
    *(f"write {number}" for number in (1, 2, 3)),
)
END = "end"


def die_at(point: str) -> None:
    """From now on whoever comes to the point is gone, as by kill -9."""
    when, _, name = point.partition(" ")
    if when == "write":
        left = [int(name)]
        for kind in (SqliteSide, PostgresSide):
            replace(kind, "write", lambda write, left=left: counted(write, left))
    elif name in STEPS:
        replace(Move, name, lambda verb: dying(verb, when))
    else:
        for kind in (SqliteSide, PostgresSide):
            replace(kind, name, lambda verb: dying(verb, when))


def replace(kind: Any, name: str, change: Callable[[Any], Any]) -> None:
    setattr(kind, name, change(getattr(kind, name)))


def counted(write: Callable[..., Any], left: list[int]) -> Callable[..., Any]:
    def written(*arguments: Any) -> None:
        left[0] -= 1
        if not left[0]:
            kill()
        write(*arguments)

    return written


def dying(verb: Callable[..., Any], when: str) -> Callable[..., Any]:
    def done(*arguments: Any) -> Any:
        if when == "before":
            kill()
        verb(*arguments)
        kill()

    return done


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def call(point: str, arguments: list[str]) -> int:
    """How the command ended: its exit code, or minus the signal that killed it."""
    child = os.fork()
    if not child:
        if point != END:
            die_at(point)
        main(arguments)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    points, *arguments = sys.argv[1:]
    for point in points.split(","):
        print(f"{point}: {call(point, arguments)}", flush=True)
