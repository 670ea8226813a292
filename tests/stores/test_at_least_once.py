"""R1: a job that was accepted is never lost, and a handler runs only for a job that is `running`."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import App, DuplicateJob, current_job
from holdfast.clock import MovableClock
from holdfast.jobs.job import State
from holdfast.stores.contract import Claimed, NewJob, QueueDeclared, Turn, TypeRow, Want
from holdfast.stores.open import open_store
from tests.by_hand import WorkerByHand, add

pytestmark = pytest.mark.claim("R1")


def test_the_claim_is_committed_before_the_handler_is_called(app: Callable[..., App]) -> None:
    own, onlooker = app(), app()
    seen = []

    @own.queue("mail").job
    def send() -> None:
        job = onlooker.get(current_job().id)
        seen.append((job.state, job.situation, job.attempt == current_job().attempt))

    job = send.enqueue()
    own.run_until_idle()

    assert seen == [("running", "held", True)]
    assert job.refresh().outcome == "success"


def test_a_job_is_there_although_its_process_died_right_after_it_was_accepted(url: str, instance: str) -> None:
    code = (
        "import os, holdfast\n"
        f"app = holdfast.App({url!r}, name={instance!r})\n"
        "app.queue('mail')\n"
        "print(app.enqueue('mail', 'send', {'to': 'a'}).id, app.enqueue('mail', 'send', {'to': 'b'}, delay=60).id, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(holdfast.__file__).parent.parent)}
    died = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert died.returncode == -9, died.stderr

    with App(url, name=instance) as own:
        assert [job.id for job in own.find()] == [int(word) for word in reversed(died.stdout.split())]
        assert WorkerByHand(own.store, ["send"]).claim_one().id == int(died.stdout.split()[0])


def test_a_job_runs_again_until_somebody_says_how_it_ended(app: Callable[..., App], clock: MovableClock) -> None:
    own = app()
    own.queue("mail")
    store = own.store
    job = add(store, retries=None)
    for end in ("lose", "hand back", "snooze", "fail", "vanish", "lose"):
        worker = WorkerByHand(store)
        call = worker.claim_one()
        assert call.id == job.id
        if end == "lose":
            worker.die()
        elif end == "vanish":
            store.leave(worker.id)
            store.recover_strays()
        else:
            {"hand back": worker.hand_back, "snooze": worker.snooze, "fail": worker.fail}[end](call)
        assert not store.get(job.id).final
        clock.advance(600)

    worker = WorkerByHand(store)
    call = worker.claim_one()
    assert call.attempt == 7
    worker.succeed(call)
    assert store.get(job.id).state is State.FINAL
    assert worker.claim() == []


def test_closing_and_opening_again_loses_nothing(app: Callable[..., App]) -> None:
    own = app()

    @own.queue("mail").job
    def send(n: int) -> int:
        return n

    jobs = [send.enqueue(n) for n in range(5)]
    own.close()

    assert [job.refresh().state for job in jobs] == ["initial"] * 5  # it connects anew
    assert own.run_until_idle() == 5
    assert [job.refresh().result for job in jobs] == list(range(5))


class Beside:
    """An idle worker of the same process, as an enqueue knows it."""

    def __init__(self, worker: WorkerByHand, queue: str = "mail") -> None:
        self.worker, self.queue = worker, queue
        self.offering = threading.Lock()
        self.given: list[list[int]] = []
        self.ended = 0

    def may_offer(self, queue: str) -> bool:
        return queue == self.queue

    def offer(self, queue: str) -> Turn | None:
        assert self.offering.locked()
        return Turn(self.worker.id, wants=[Want(queue, 1)], types=self.worker.types)

    def give(self, claimed: Sequence[Claimed]) -> None:
        assert self.offering.locked()
        self.given.append([call.id for call in claimed])

    def let_go(self) -> None:
        assert not self.offering.locked()
        self.ended += 1

    def lend(self, queue: str, job_type: str, most: int, worker: int | None, ending: int) -> Turn | None:
        return None

    def take(self, turn: Turn, claimed: Sequence[Claimed] | None, told: Any) -> None:
        raise AssertionError("nothing was lent")


@pytest.mark.claim("R1", "W2")
def test_a_worker_beside_an_enqueue_claims_the_first_job_in_line_in_its_transaction(clock: MovableClock) -> None:
    """On SQLite, where each transaction waits for the disk."""
    store = open_store("sqlite://:memory:", "holdfast", clock)
    store.set_up()
    store.register([QueueDeclared("mail", "holdfast_mail")], [TypeRow("send", "mail")])
    beside = Beside(WorkerByHand(store, ("send",)))
    store.takers.append(beside)
    (first,) = store.add([NewJob("mail", "send", "{}", job_key="k")])
    assert (store.get(first.id).state, store.get(first.id).attempt) == ("running", 1)
    (later,) = store.add([NewJob("mail", "send", "{}", delay=60)])
    with pytest.raises(DuplicateJob):
        store.add([NewJob("mail", "send", "{}", job_key="k", on_duplicate="raise")])
    assert (store.get(later.id).state, beside.given, beside.ended) == ("initial", [[first.id], []], 3)
    store.close()
