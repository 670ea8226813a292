"""The workflows that are measured: one step of many tasks between two others, steps in a row, and a step of items.

A worker and whoever submits to it declare the same. Every task leaves a mark at its own number: the run's trigger is
where its numbers begin.
"""

from collections.abc import Callable, Iterator
from typing import Any

from holdfast import App

MOST_UNDONE = 1000


def declare(app: App, hit: Callable[[int], Any], width: int, length: int, items: int) -> None:
    declare_fan(app, hit, width)
    declare_chain(app, hit, length)
    declare_items(app, hit, items)


def declare_fan(app: App, hit: Callable[[int], Any], width: int) -> None:
    """1 → width → 1."""
    fan = app.workflow("fan")

    @fan.step()
    async def first(task: Any) -> None:
        hit(int(task.trigger))

    @fan.step(after=["first"], shards=width, max_undone=MOST_UNDONE)
    async def each(task: Any) -> None:
        hit(int(task.trigger) + 1 + task.index)

    @fan.step(after=["each"])
    async def last(task: Any) -> None:
        hit(int(task.trigger) + 1 + width)


def declare_chain(app: App, hit: Callable[[int], Any], length: int) -> None:
    """Each step waits for the one before it."""
    chain = app.workflow("chain")
    for number in range(length):

        async def link(task: Any, number: int = number) -> None:
            hit(int(task.trigger) + number)

        chain.step(name=f"link-{number}", after=[f"link-{number - 1}"] if number else [])(link)


def declare_items(app: App, hit: Callable[[int], Any], count: int) -> None:
    """One step whose tasks a generator gives."""
    listed = app.workflow("items")

    def numbers(task: Any, cursor: int | None) -> Iterator[tuple[int, int]]:
        for number in range(0 if cursor is None else cursor + 1, count):
            yield number, number

    @listed.step(items=numbers, max_undone=MOST_UNDONE)
    async def each(task: Any) -> None:
        hit(task.item)
