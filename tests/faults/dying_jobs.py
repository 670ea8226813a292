"""A worker that is killed at its n-th statement, for every n: `python -m tests.faults.dying_jobs URL NAME EVERY LEDGER`.

First a few lives to their end tell how many statements one has. Then each round enqueues jobs of every kind, starts a whole
worker, with its pumps, pulse, scribe, scheduler and sweeper, and is killed at the n-th statement of all their threads; among
those are the ones between the return of a handler and the commit of what it returned. The invariants hold, another worker
is started, and everything accepted comes to the end it should have.
"""

import string
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast import WAIT, App, Failed, Fixed, Job, Snooze, current_job
from tests.faults.dying import BEAT, DIED, DONE, LOST_AFTER, NEVER, die_at, forked, note, noted, wait_while
from tests.invariants import check_invariants, final_rows
from tests.raw_sql import RawSql

ENDS = {
    "plain": "success",
    "flaky": "success",
    "failing": "failed",
    "broken": "error",
    "sleepy": "success",
    "asking": "success",
    "narrow": "success",
    "chatty": "success",
    "parent": "success",
    "apart": "success",
}
NEEDED = {"flaky": 2, "sleepy": 2}  # attempts, where one is not enough
AT_A_TIME = 25  # rounds in an instance
LIVES = 3  # to their end, to count statements: no two have as many


def make_app(url: str, name: str, ledger: Path) -> App:
    """One type of job for everything that can come of one."""
    app = App(url, name=name, heartbeat=BEAT, lost_after=LOST_AFTER)
    queue, limited = app.queue("work"), app.queue("limited", throttle_limit=1)

    def kind(place: Any, **options: Any) -> Callable[[Callable[[], Any]], Any]:
        def declare(does: Callable[[], Any]) -> Any:
            def handler() -> Any:
                note(ledger, current_job().id)
                try:
                    return does()
                finally:
                    note(Path(f"{ledger}.ended"), current_job().id, current_job().attempt)

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

    @kind(queue, isolation="process")
    def apart() -> None:
        current_job().log("another line")

    @kind(queue)
    def parent() -> None:
        app.job_types["plain"].using(job_key="child").enqueue()

    return app


def main(url: str, name: str, every: int, ledger: Path) -> tuple[int, int]:
    """How often it died, and how often between a handler's return and its commit.

    Now and then it goes on in an instance of its own, so that there is less to check.
    """
    count = max(statements_of_a_life(url, f"{name}_life", Path(f"{ledger}-life")) for _ in range(LIVES))
    deaths = between = 0
    for rounds, last in enumerate(range(1, count + 1, every)):
        part = rounds // AT_A_TIME
        place, book = f"{name}_{string.ascii_lowercase[part]}", Path(f"{ledger}-{part}")
        code = forked(lambda last=last, place=place, book=book: live(url, place, last, book))
        assert code in (DIED, DONE), f"a life ended with {code}"
        deaths += code == DIED
        between += returned_and_not_settled(url, place, book)
        assert forked(lambda place=place, book=book: take_over(url, place, book)) == DONE, f"after a death at {last}"
    return deaths, between


def statements_of_a_life(url: str, name: str, ledger: Path) -> int:
    assert forked(lambda: live(url, name, NEVER, ledger)) == DONE
    return int(noted(Path(f"{ledger}.statements"))[-1])


def live(url: str, name: str, last: int, ledger: Path) -> int:
    """Enqueue and work, until the last statement."""
    with make_app(url, name, ledger) as app:
        app.find(limit=1)
        statements = die_at(last, app.store)
        for number, job_type in enumerate((*ENDS, "narrow")):
            job = app.job_types[job_type].using(job_key=str(number)).enqueue()  # free again, whoever had it
            note(accepted_in(ledger), job.id)
        work(app, url, name)
    note(Path(f"{ledger}.statements"), statements())
    return DONE


def work(app: App, url: str, name: str) -> None:
    """A worker, until nothing is left; whoever asks is answered from outside."""
    with app.worker_for_ever(concurrency=4):
        wait_while(url, name, "select * from {job} where state <> 'final' and situation is distinct from 'waiting'")
        for job in app.find(state="running", job_type="asking", limit=1000):
            app.complete(job_id=job.id, result="answer")
        wait_while(url, name, "select * from {job} where state <> 'final'")


def returned_and_not_settled(url: str, name: str, ledger: Path) -> bool:
    """Whether a handler had returned and nobody knows of it."""
    sql = RawSql(url, name)
    held = sql("select id, attempt from {job} where situation = 'held'")
    sql.close()
    return any(f"{row['id']} {row['attempt']}" in noted(Path(f"{ledger}.ended")) for row in held)


def take_over(url: str, name: str, ledger: Path) -> int:
    accepted = [int(line) for line in noted(accepted_in(ledger))]
    assert len(set(accepted)) == len(accepted), "a job that was at its end still had its key"
    check_invariants(url, name, accepted)
    before = final_rows(url, name)
    with make_app(url, name, ledger) as app:
        work(app, url, name)
        check_invariants(url, name, accepted, before)
        called = Counter(int(line) for line in noted(ledger))
        for job in app.find(limit=10_000):
            check_end(job, called[job.id])
    check_invariants(url, name, accepted, before)
    return DONE


def check_end(job: Job, calls: int) -> None:
    """As it should be, and one death costs one attempt."""
    assert job.outcome == ENDS[job.job_type], f"job {job.id} ({job.job_type}) ended {job.outcome}: {job.error}"
    ends = [end.outcome for end in job.attempts()]
    told = f"job {job.id} ({job.job_type}) was called {calls} times in {job.attempt} attempts: {ends}"
    assert 0 < calls <= job.attempt <= NEEDED.get(job.job_type, 1) + 1, told
    assert ends.count("lost") <= 1, told


def accepted_in(ledger: Path) -> Path:
    return Path(f"{ledger}.accepted")


if __name__ == "__main__":
    url, name, every, ledger = sys.argv[1:]
    print(*main(url, name, int(every), Path(ledger)))
