"""Two machines whose clocks are 30 s apart and jump by an hour: no start outside its window, no time fired twice, no lease stolen."""

import itertools
from collections import Counter
from datetime import UTC, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from holdfast import App
from holdfast.clock import MovableClock
from holdfast.stores.contract import Claimed, Store
from holdfast.worker.sweeper import Vigil
from tests.by_hand import WorkerByHand
from tests.faults.results import Fault, sizes
from tests.invariants import Invariants
from tests.raw_sql import RawSql

NIGHTS = {
    "spring": datetime(2026, 3, 28, 22, tzinfo=UTC),
    "autumn": datetime(2026, 10, 24, 22, tzinfo=UTC),
}  # 3 hours before the clocks change
HERE = ZoneInfo("Europe/Amsterdam")
WINDOWS = ([], ["22:00-06:00 Europe/Amsterdam"], ["01:30-02:30 Europe/Amsterdam"], ["00:00-12:00", "13:00-14:00"])
APART, JUMP, STEP = 30.0, 3600.0, 600.0
SET_BACK = 30 * 86400.0  # seconds: more than all jumps together


class Machine:
    """A program with a clock, a worker and a sweeper's eye of its own."""

    def __init__(self, url: str, name: str, begins: datetime, ahead: float) -> None:
        self.clock = MovableClock(begins + timedelta(seconds=ahead))
        self.app = App(url, name=name, clock=self.clock)
        queue = self.app.queue("work")
        queue.job(name="send")(nothing)
        self.app.schedule("hourly", cron="0 * * * *", zone="Europe/Amsterdam", job="send", payload={}, misfire="all")
        self.app.schedule("daily", cron="30 2 * * *", zone="Europe/Amsterdam", job="send", payload={}, misfire="all")
        self.app.find(limit=1)
        self.store: Store = self.app.store
        self.worker = WorkerByHand(self.store, ("send",), ("work",))
        self.vigil = Vigil(self.clock, 30)
        self.beats = 0

    def live(self, seconds: float) -> None:
        """The hands of its clock go on, a second of what it measures passes, and its heart beats."""
        self.clock.set(self.clock.now() + timedelta(seconds=seconds))
        self.clock.advance(1)
        self.beats += 1
        assert self.store.beat(self.worker.id, False), "a live worker was called lost"

    def sweep(self) -> None:
        rows = [row for row in self.store.workers() if row.id != self.worker.id]
        assert self.vigil.look(rows, 0, self.beats) == [], "a live worker would be called lost"
        self.store.shut()
        self.store.fire_due()

    def claim(self) -> list[Claimed]:
        """What starts now, by this machine's clock in time."""
        calls, now = self.worker.claim(3, "work"), self.clock.now()
        for call in calls:
            job = self.store.get(call.id)
            assert job.scheduled_run_time <= now, f"{job} began before its time, at {now}"
            assert not job.time_windows or any(is_open(each, now) for each in job.time_windows), f"{job} began at {now}"
        return calls


def is_open(window: str, now: datetime) -> bool:
    span, _, zone = window.partition(" ")
    begin, end = (time.fromisoformat(each) for each in span.split("-"))
    local = now.astimezone(ZoneInfo(zone or "UTC")).time()
    return begin <= local < end if begin < end else local >= begin or local < end


def nothing() -> None: ...


@pytest.mark.fault(4)
@pytest.mark.claim("C2", "C6", "W1", "W5", "W6")
@pytest.mark.parametrize("night", NIGHTS)
@pytest.mark.parametrize("steps", sizes(60, 2500))
def test_whatever_the_clocks_say_nothing_starts_at_a_wrong_time_or_fires_twice(
    url: str, instance: str, fault: Fault, steps: int, night: str
) -> None:
    luck = fault.luck(20261116)
    fault.injected("two machines 30 s apart")
    fault.injected(f"the night in which clocks change in {night}")
    machines = [Machine(url, instance, NIGHTS[night], ahead) for ahead in (0.0, APART)]
    sql = RawSql(url, instance)
    for number in range(steps):
        here = luck.choice(machines)
        passing = luck.uniform(1, STEP)
        for machine in machines:
            machine.live(passing)
        if luck.random() < 0.1:
            jump = luck.choice((JUMP, -JUMP))
            here.clock.set(here.clock.now() + timedelta(seconds=jump))
            fault.injected(f"a clock jumps by {jump / 3600:+.0f} h")
        options = {"time_windows": luck.choice(WINDOWS), "delay": luck.choice((0, 60, 7200))}
        here.app.job_types["send"].using(**options).enqueue()
        here.sweep()
        calls = here.claim()
        here.worker.succeed(*calls[: luck.randrange(4)])
        if number % 10 == 0:
            Invariants(sql, SET_BACK).check([], {})
            fault.told.checks += 1
    fired = check_firings(sql, NIGHTS[night])
    fault.measured(starts=sql.value("select count(*) as starts from {job} where attempt > 0"), firings=len(fired))
    Invariants(sql, SET_BACK).check([], {})
    sql.close()
    for machine in machines:
        machine.app.close()


def check_firings(sql: RawSql, begins: datetime) -> Counter[tuple[str, datetime]]:
    """Every hour was fired once, and every night once, also the one that has no half past two or has it twice."""
    fired = Counter((row["schedule"], moment(row["time"])) for row in sql("select schedule, time from {firing}"))
    assert max(fired.values()) == 1
    hours = sorted(at for name, at in fired if name == "hourly")
    nights = sorted(at.astimezone(HERE).date() for name, at in fired if name == "daily")
    assert hours[0] == begins + timedelta(hours=1) or hours[0] == begins
    assert {later - at for at, later in itertools.pairwise(hours)} == {timedelta(hours=1)}
    assert nights == [nights[0] + timedelta(days=number) for number in range(len(nights))]
    assert nights[0] == (begins + timedelta(days=1)).date()
    return fired


def moment(value: Any) -> datetime:
    """As either store keeps it."""
    return value.astimezone(UTC) if isinstance(value, datetime) else datetime.fromtimestamp(value / 1_000_000, UTC)
