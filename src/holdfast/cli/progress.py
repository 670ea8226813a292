"""How far a long command has come, told on a terminal's standard error."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from rich.console import Console

from holdfast.clock import monotonic
from holdfast.jobs.wording import span

EVERY = 0.2  # seconds between two tellings
EARLY = 5.0  # seconds after which the rest can be guessed
LONG = 120.0  # seconds, of which a person would like to hear early


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
def passing(which: str = "") -> Iterator[Callable[[float, int], None]]:
    """Gives what is to be called, often, with the share of the simulated time that is over and the jobs so far.

    Who would wait for long is told so early, in a line that also stands where there is no terminal."""
    out, began = Console(stderr=True, highlight=False), monotonic()
    with out.status(f"{which}Begins …") if out.is_terminal else nullcontext() as status:
        told = began
        warned = False

        def tell(share: float, count: int) -> None:
            nonlocal told, warned
            now = monotonic()
            if now < told + EVERY:
                return
            told = now
            left = (now - began) * (1 - share) / share if share else None
            if status is not None:
                rest = "" if left is None else f", about {span(left)} left"
                status.update(f"{which}{share:.1%} of the time is over, {count:,} jobs so far{rest}")
            if not warned and left is not None and now - began >= EARLY and left > LONG:
                warned = True
                out.print(
                    f"{which}As it goes this takes about {span(left)} more. Ctrl-C ends it; fewer --hours, or a smaller fleet, take less.",
                    soft_wrap=True,
                )

        yield tell
