"""Routines on live workers: every kind of handler, many workers, and one that is killed in the middle of a turn."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import App
from holdfast.clock import Clock
from tests.faults.fleet import make_app, until, worker

pytestmark = pytest.mark.claim("F19")
Make = Callable[..., App]


def turns(app: App, name: str) -> list[int]:
    return [part.turns for row in app.routines() if row.name == name for part in row.parts]


def process_turn(turn: Any) -> int:
    turn.checkpoint = (turn.checkpoint or 0) + 1
    return turn.number


def test_a_worker_takes_turns_for_ever_with_every_kind_of_handler(app: Make) -> None:
    holdfast = app(clock=Clock())

    @holdfast.routine(every=0.01, scale=2)
    async def on_the_loop(turn: Any) -> None:
        await asyncio.sleep(0)
        turn.checkpoint = (turn.checkpoint or 0) + 1

    @holdfast.routine(every=0.01)
    def in_a_thread(turn: Any) -> None:
        turn.checkpoint = (turn.checkpoint or 0) + 1

    holdfast.routine(every=0.01, name="in_a_process", isolation="process")(process_turn)
    names = ("on_the_loop", "in_a_thread", "in_a_process")
    with holdfast.worker(concurrency=4):
        until(lambda: all(min(turns(holdfast, name)) >= 5 for name in names), what="five turns of each part")
        for name in names:
            holdfast.pause_routine(name)
        until(lambda: all(part.turn is None for row in holdfast.routines() for part in row.parts), what="rest")
    for row in holdfast.routines():
        assert [part.checkpoint for part in row.parts] == [part.turns for part in row.parts]


def test_several_workers_never_have_the_same_part_at_once(app: Make) -> None:
    holdfast = app(clock=Clock())
    inside: dict[int, int] = {0: 0, 1: 0}
    seen: list[int] = []

    @holdfast.routine(every=0, scale=2)
    async def guarded(turn: Any) -> None:
        inside[turn.index] += 1
        seen.append(inside[turn.index])
        await asyncio.sleep(0.005)
        inside[turn.index] -= 1

    with holdfast.worker(concurrency=4), holdfast.worker(concurrency=4), holdfast.worker(concurrency=4):
        until(lambda: min(turns(holdfast, "guarded")) >= 10, what="ten turns of each part")
    assert set(seen) == {1}


def test_a_turn_of_a_killed_worker_is_taken_over_with_its_checkpoint(url: str, instance: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with make_app(url, instance, routine=str(gate)) as app:
        with worker(url, tmp_path, name=instance, routine=str(gate)) as first:
            until(lambda: app.routines()[0].parts[0].checkpoint == {"turn": 1, "step": 1}, what="its first step")
            first.kill()
        gate.touch()
        with worker(url, tmp_path, name=instance, routine=str(gate)):
            until(lambda: turns(app, "walk")[0] >= 2, what="the turn after it")
        number = app.find(job_type="routine.walk", state="final", limit=1000)[-1]
        assert (number.result, number.attempt) == ({"found": {"turn": 1, "step": 1}}, 2)
