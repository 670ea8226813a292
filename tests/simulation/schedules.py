"""Schedules in stories: every worker looks at them, some die or are late at it, operators change them, clocks jump.

One firing for each time, over all of them (W6): a job for every firing and a firing for every job, none before its time,
none at a time that is nobody's, and with `all` none left out.
"""

import json
from datetime import datetime, timedelta
from typing import Any

from msgspec import structs

from holdfast.errors import Unavailable
from holdfast.jobs import schedules as rules
from holdfast.jobs.schedules import INSTANT, MISFIRES, Schedule
from holdfast.stores.contract import TypeRow
from holdfast.stores.scheduling import BY_ITSELF
from tests.invariants import Invariants, Row
from tests.simulation.scene import STEP, Broken, Killed, Scene
from tests.simulation.stages import Stage

TICK = TypeRow("tick", "mail", has_handler=True)
MOST = 3  # schedules at a time
OFTEN, SELDOM = (20, 45, 90), (300, 600, 900)  # seconds; what is fired each time comes seldom: clocks jump by an hour
ACTS = ("schedule", "schedule_again", "unschedule", "fire_by_hand")


class Schedules(Scene):
    """Adds schedules."""

    def __init__(self, seed: int, stage: Stage) -> None:
        super().__init__(seed, stage)
        self.scheduled: dict[
            str, list[tuple[Schedule, datetime]]
        ] = {}  # by name: all that it may have been, since when

    # Operators

    def schedule(self, a: float, b: float) -> None:
        """A new one, or another one in the place of one that is there."""
        there = self.present_schedules()
        changes = there and (a < 0.3 or len(there) == MOST)
        name = there[int(b * len(there))] if changes else f"s{next(self.numbers)}"
        new = self._drawn(name, a, int(b * 1000))
        self.scheduled.setdefault(name, []).append((new, self.clock.now()))
        self.store.set_schedule(new, "ann")
        self.say(f"schedule {name}: {new.when}, misfire {new.misfire}")

    def schedule_again(self, a: float, b: float) -> None:
        """With the same times: what was fired stays fired."""
        there = self.present_schedules()
        if there:
            name = there[int(a * len(there))]
            was = self.scheduled[name][-1][0]
            new = structs.replace(was, options={**was.options, "priority": int(b * 3)})
            self.scheduled[name].append((new, self.clock.now()))
            self.store.set_schedule(new, "ann")

    def _drawn(self, name: str, a: float, luck: int) -> Schedule:
        misfire = MISFIRES[luck % 3]
        period = (SELDOM if misfire == "all" else OFTEN)[luck // 3 % 3]
        crons = f"*/{period // 60} * * * *" if misfire == "all" else f"*/{period // 5 * 2} * * * * *"
        now = self.clock.now()
        when: dict[str, Any] = (
            {"every": period},
            {"cron": crons, "zone": "UTC"},
            {"at": [now + timedelta(seconds=period / 3 * number) for number in range(5)]},
        )[luck // 9 % 3]
        told = {"schedule": name, "count": "{count}", "time": "{time}"}
        options = {"job_key": name} if a * 10 % 1 < 0.3 else {}
        return rules.make(name, job_type="tick", misfire=misfire, payload=told, options=options, **when)

    def present_schedules(self) -> list[str]:
        return [row["name"] for row in self.sql("select name from {schedule} order by name")] if self.scheduled else []

    def unschedule(self, a: float, b: float) -> None:
        there = self.present_schedules()
        if there:
            self.attempt_to(lambda: self.store.remove_schedule(there[int(a * len(there))], "ann"))

    def fire_by_hand(self, a: float, b: float) -> None:
        there = self.present_schedules()
        if there:
            self.attempt_to(lambda: self.store.fire_schedule(there[int(a * len(there))], "ann"))

    def schedule_inside(self, a: float, b: float) -> None:
        self.struck(ACTS, a, b)

    # Schedulers

    def look_at_schedules(self, worker: Any) -> None:
        """As the scheduler of each worker does whenever one may be due."""
        if self.scheduled:
            try:
                fired = worker.store.fire_due()
            except Unavailable as problem:
                self.say(f"{worker} cannot fire: {problem}")
                return
            if fired.count:
                self.say(f"{worker} fires {fired.count}")

    def fire_inside(self, a: float, b: float) -> None:
        """A scheduler meets a full disk, or dies, at one of its statements."""
        worker = self.awake(a)
        if worker is not None:
            self.clock.advance(STEP)
            error = Killed if int(b * 1000) % 2 else self.stage.full
            try:
                with self.stage.struck(worker.store, int(b * 15), error):
                    self.look_at_schedules(worker)
            except Killed:
                self.bury(worker)

    def fire_unheard(self, a: float, b: float) -> None:
        """What is due is fired, and who fired it does not hear of that."""
        worker = self.awake(a)
        if worker is not None:
            self.clock.advance(b * 60)
            with self.stage.answer_lost(worker.store):
                self.look_at_schedules(worker)
            self.look_at_schedules(worker)

    def fire_late(self, a: float, b: float) -> None:
        """Two see that something is due; one of them fires it, and then the other would."""
        one, other = self.awake(a), self.awake(b)
        if one is not None and one is not other:
            self.clock.advance(20 + b * 40)
            goes_on = one.store._fire

            def late(due: Any) -> Any:
                del one.store._fire
                self.look_at_schedules(other)
                return goes_on(due)

            one.store._fire = late
            self.look_at_schedules(one)
            vars(one.store).pop("_fire", None)

    # What must hold

    def check_schedules(self, invariants: Invariants) -> None:
        if not self.scheduled:
            return
        ticks: dict[str, dict[int, Row]] = {}
        for job_id, row in {**invariants.jobs, **invariants.archive}.items():
            if row["job_type"] == "tick":
                told = row["payload"] if isinstance(row["payload"], dict) else json.loads(row["payload"])
                ticks.setdefault(told["schedule"], {})[job_id] = told
        fired: dict[str, list[Row]] = {}
        for row in self.sql("select * from {firing} order by schedule, count"):
            fired.setdefault(row["schedule"], []).append(row)
        for row in self.sql("select * from {schedule}"):
            self._check_schedule(row, fired.get(row["name"], []), ticks.get(row["name"], {}))

    def _check_schedule(self, row: Row, fired: list[Row], ticks: dict[int, Row]) -> None:
        name, was = f"W6: schedule {row['name']}", self.scheduled[row["name"]]
        if row["problem"] is not None:
            raise Broken(f"{name} cannot fire: {row['problem']}")
        if [each["count"] for each in fired] != list(range(1, row["count"] + 1)):
            raise Broken(f"{name} has counted {row['count']}, its firings are {[each['count'] for each in fired]}")
        made = {each["job"]: each for each in fired if not each["duplicate"]}
        if made.keys() != ticks.keys() or len(made) != sum(not each["duplicate"] for each in fired):
            raise Broken(f"{name} fired jobs {sorted(made)}, and {sorted(ticks)} are there")
        for job_id, told in ticks.items():
            time = self._moment(made[job_id]["time"])
            if (told["count"], datetime.fromisoformat(told["time"])) != (made[job_id]["count"], time):
                raise Broken(f"{name}: job {job_id} was told {told}, it is of {made[job_id]}")
        times = [self._moment(each["time"]) for each in fired if each["actor"] == BY_ITSELF]
        if len(times) != len(set(times)):
            raise Broken(f"{name} fired twice for a time: {times}")
        for time in times:
            if not any(rules.next_time(each, time - INSTANT) == time for each, _ in was):
                raise Broken(f"{name} fired at {time}, which is none of its times")
        if any(each["time"] > each["fire_time"] for each in fired):
            raise Broken(f"{name} fired before its time")
        if len(was) == 1 and was[0][0].misfire == "all":
            self._check_all(name, *was[0], times, row)

    def _check_all(self, name: str, schedule: Schedule, since: datetime, times: list[datetime], row: Row) -> None:
        wanted, following = [], rules.first_time(schedule, since)
        while following is not None and following != self._moment(row["next_time"]) and len(wanted) <= len(times):
            wanted.append(following)
            following = rules.next_time(schedule, following)
        if times != wanted:
            raise Broken(f"{name} fired at {times}, wanted were {wanted}, next is {row['next_time']}")

    def _moment(self, time: Any) -> datetime | None:
        found: datetime | None = self.store.moment(time)
        return found

    def end_schedules(self, worker: Any) -> None:
        """Nobody disturbs it: then everything that is due fires, and no schedule makes more."""
        if not self.scheduled:
            return
        for _ in range(10):
            self.look_at_schedules(worker)
        due = self.sql("select name from {schedule} where next_time <= :now", now=self.now())
        if due:
            raise Broken(f"W6: {due} are due, and nobody fires them")
        self.check_schedules(Invariants(self.sql))
        for name in self.present_schedules():
            self.store.remove_schedule(name, "ann")
