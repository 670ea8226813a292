"""W3 under fire: what every claim transaction itself has seen is the proof, not a look now and then.

A trigger on the leases runs inside each transaction that claims from a limited queue. It writes down what the held and
waiting rows then use, how much of it was just taken, and the limit in force. The claim has the queue's lock until it
commits, so nobody can add to that sum before; whatever else happens meanwhile only takes from it.
"""

from pathlib import Path

import pytest

from tests.faults.fleet import Worker, make_app, until
from tests.faults.results import Fault, sizes
from tests.raw_sql import RawSql

WORKERS = 4
FACTORS = (0, 0.1, 0.25, 0.3, 1, 1, 1.5, 2, 3.7, 6)
LIMITS = (40, 100)
IN_USE = "situation in ('held', 'waiting')"
RECORD = f"""insert into {{witness}} (used, taken, throttle_limit)
select (select sum(throttle_factor) from {{queue:work}} where {IN_USE}), TAKEN, coalesce(set_limit, declared_limit)
from {{queue}} where name = 'work'"""


def bear_witness(sql: RawSql) -> None:
    """From now on every claim leaves a record of its own."""
    sql(f"create index {sql.instance}_in_use on {{queue:work}} (throttle_factor) where {IN_USE}")
    if not sql.postgres:
        sql("create table {witness} (used real, taken real, throttle_limit real)")
        record = RECORD.replace("TAKEN", "new.factor")
        sql(f"create trigger {{witness_lease}} after insert on {{lease}} begin {record}; end")
        return
    sql("create table {witness} (used float8, taken float8, throttle_limit float8)")
    record = RECORD.replace("TAKEN", "(select sum(factor) from taken)")
    body = f"begin {record}; return null; end"
    sql(f"create function {{witness_claim}}() returns trigger language plpgsql as $$ {body} $$")
    sql(
        "create trigger witness after insert on {lease} referencing new table as taken for each statement "
        "execute function {witness_claim}()"
    )


@pytest.mark.fault(10, "kill -9 of workers, limits changed under load")
@pytest.mark.claim("W3", "R1")
@pytest.mark.parametrize("size", sizes((4_000, 4), (20_000, 8)))
def test_no_claim_lifts_a_queue_above_its_limit_whoever_is_killed(
    url: str, instance: str, tmp_path: Path, fault: Fault, size: tuple[int, int]
) -> None:
    jobs, kills = size
    luck = fault.luck(20261115)
    with make_app(url, instance) as app:
        app.limit("work", LIMITS[-1])
        nap = app.job_types["nap"]
        app.enqueue_many(
            [
                nap.using(throttle_factor=luck.choice(FACTORS), priority=luck.randrange(3)).new(
                    seconds=luck.choice((0, 0, 0.01))
                )
                for _ in range(jobs)
            ]
        )
        sql = RawSql(url, instance)
        bear_witness(sql)
        fleet = [Worker(url, tmp_path / "worker.log", name=instance, concurrency=60) for _ in range(WORKERS)]
        try:
            for number in range(kills):
                stage = (number + 1) * jobs // (kills + 1)
                until(lambda stage=stage: started(sql) >= stage, what=f"{stage} jobs have started")
                found = until(lambda: busy(sql, fleet) or not left(sql), what="somebody has a job in hand")
                if found is True:
                    break  # they were quicker than we looked
                victim = luck.choice(found)
                victim.kill()
                fleet[fleet.index(victim)] = Worker(url, tmp_path / "worker.log", name=instance, concurrency=60)
                app.limit("work", LIMITS[number % 2])
                fault.injected("kill -9 of a worker and another limit")
            until(lambda: not left(sql), what="all jobs are final")
        finally:
            for worker in fleet:
                worker.process.kill()
                worker.process.wait(30)
        records = sql("select * from {witness}")
        ends = sql("select outcome, count(*) as count from {queue:work} group by outcome")
        lost = sql.value("select count(*) as count from {attempt} where outcome = 'lost'")
        sql.close()
    above = [row for row in records if row["taken"] and row["used"] > row["throttle_limit"] * (1 + 1e-9)]
    assert above == []
    assert ends == [{"outcome": "success", "count": jobs}]
    assert lost > 0, "nobody was killed with a job in hand"
    full = {limit: max(row["used"] for row in records if row["throttle_limit"] == limit) for limit in LIMITS}
    assert all(full[limit] > limit - 1 for limit in LIMITS), f"the limits were never reached: {full}"
    fault.measured(jobs=jobs, claims_seen=len(records), twice=int(lost))
    fault.check(url, instance)


def started(sql: RawSql) -> int:
    """Attempts."""
    found: int = sql.value("select coalesce(sum(attempt), 0) as started from {queue:work}")
    return found


def left(sql: RawSql) -> bool:
    return bool(sql("select 1 from {queue:work} where state <> 'final' limit 1"))


def busy(sql: RawSql, fleet: list[Worker]) -> list[Worker]:
    held = sql("select pid from {worker} where gone is null and id in (select worker from {lease})")
    return [worker for worker in fleet if {"pid": worker.process.pid} in held]
