"""How far a long command has come, told on a terminal's standard error and nowhere else."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console


@contextmanager
def counting(done: str) -> Iterator[Callable[[int], None]]:
    """Gives what is to be called with the number of jobs so far; `done` is what happened to them."""
    out = Console(stderr=True, highlight=False)
    if not out.is_terminal:
        yield lambda count: None
        return
    with out.status("Begins …") as status:
        yield lambda count: status.update(f"{count:,} jobs {done}")


@contextmanager
def passing() -> Iterator[Callable[[float, int], None]]:
    """Gives what is to be called with the share of the simulated time that is over and the jobs so far."""
    out = Console(stderr=True, highlight=False)
    if not out.is_terminal:
        yield lambda share, count: None
        return
    with out.status("Begins …") as status:
        yield lambda share, count: status.update(f"{share:.0%} of the time is over, {count:,} jobs so far")
