"""A program that dies at its n-th statement, for every n: `python -m tests.faults.dying_jobs URL NAME EVERY LEDGER`.

Each round enqueues one job of every kind, runs them, and is gone in the middle of its n-th statement, as by kill -9; among
those statements are the ones between the return of a handler and the commit of what it returned. Another process then
takes over: everything accepted comes to the end it should have. The last round is the one that nobody dies in.
"""

import itertools
import string
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast import WAIT, App, Failed, Fixed, Job, Snooze, current_job
from tests.faults.dying import DIED, DONE, die_at, forked
from tests.invariants import check_invariants

ENDS = {
    "plain": "success",
    "flaky": "success",
    "failing": "failed",
    "broken": "error",
    "sleepy": "success",
    "asking": "success",
    "narrow": "success",
    "chatty": "success",
}
AT_A_TIME = 25  # rounds in an instance


def make_app(url: str, name: str, ledger: Path) -> App:
    """One type of job for everything that can come of one."""
    app = App(url, name=name)
    queue, limited = app.queue("work"), app.queue("limited", throttle_limit=1)

    def kind(place: Any, **options: Any) -> Callable[[Callable[[], Any]], Any]:
        def declare(does: Callable[[], Any]) -> Any:
            def handler(key: str) -> Any:
                with ledger.open("a") as file:
                    file.write(f"{current_job().id}\n")
                return does()

            handler.__name__ = handler.__qualname__ = does.__name__
            return place.job(**options)(handler)

        return declare

    @kind(queue)
    def plain() -> int:
        return 7

    @kind(queue, retry=Fixed(0))
    def flaky() -> None:
        if current_job().attempt == 1:
            raise ValueError("the first time")

    @kind(queue)
    def failing() -> None:
        raise Failed("as it should")

    @kind(queue, retries=0)
    def broken() -> None:
        raise ValueError("always")

    @kind(queue)
    def sleepy() -> None:
        if current_job().checkpoint is None:
            current_job().checkpoint = "slept"
            raise Snooze(0)

    @kind(queue)
    def asking() -> Any:
        return WAIT(timeout=3600)

    @kind(limited)
    def narrow() -> None: ...

    @kind(queue)
    def chatty() -> None:
        current_job().progress(0.5, "half")
        current_job().log("a line")

    return app


def main(url: str, name: str, every: int, ledger: Path) -> int:
    """How often it died. Now and then it goes on in an instance of its own, so that there is less to check."""
    for rounds, last in enumerate(itertools.count(1, every)):
        letter = string.ascii_lowercase[rounds // AT_A_TIME]
        place, book = f"{name}_{letter}", Path(f"{ledger}-{letter}")
        code = forked(lambda last=last, place=place, book=book: live(url, place, last, book))
        assert code in (DIED, DONE), f"a life ended with {code}"
        assert forked(lambda place=place, book=book: take_over(url, place, book)) == DONE
        if code == DONE:
            return rounds
    raise AssertionError("there is always a last round")


def live(url: str, name: str, last: int, ledger: Path) -> int:
    """Enqueue and run, until the last statement."""
    with make_app(url, name, ledger) as app:
        app.find(limit=1)
        die_at(last, app.store)
        for job_type in ENDS:
            job = app.job_types[job_type].using(job_key=f"round {last}").enqueue(key=str(last))
            with Path(f"{ledger}.accepted").open("a") as file:
                file.write(f"{job.id}\n")
        work(app)
    return DONE


def work(app: App) -> None:
    app.run_until_idle()
    for job in app.find(state="running", job_type="asking", limit=1000):
        if job.situation == "waiting":
            app.complete(job_id=job.id, result="answer")
    app.run_until_idle()


def take_over(url: str, name: str, ledger: Path) -> int:
    noted = Path(f"{ledger}.accepted")
    accepted = [int(line) for line in noted.read_text().split()] if noted.exists() else []
    check_invariants(url, name, accepted)
    with make_app(url, name, ledger) as app:
        for worker in app.store.workers():
            app.store.lose(worker.id)  # as its sweeper would when it was missed
        check_invariants(url, name, accepted)
        app.store.restore(0, 10_000, 0)
        work(app)
        called = Counter(int(line) for line in ledger.read_text().split()) if ledger.exists() else Counter()
        for job in map(app.get, accepted[-len(ENDS) :]):
            check_end(job, called[job.id])
    check_invariants(url, name, accepted)
    return DONE


def check_end(job: Job, calls: int) -> None:
    assert job.outcome == ENDS[job.job_type], f"job {job.id} ({job.job_type}) ended {job.outcome}: {job.error}"
    assert 0 < calls <= job.attempt, f"job {job.id} ({job.job_type}) was called {calls} times in {job.attempt} attempts"


if __name__ == "__main__":
    url, name, every, ledger = sys.argv[1:]
    print(main(url, name, int(every), Path(ledger)))
