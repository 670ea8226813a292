"""W6: schedules in the store: declared, changed by operators, fired once for each time whatever clocks and machines do."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import App, Conflict, Invalid, NotFound
from holdfast.clock import MovableClock
from holdfast.stores.contract import ScheduleRow
from holdfast.stores.open import open_store
from tests.raw_sql import RawSql

Make = Callable[..., App]
pytestmark = pytest.mark.claim("W6")
START = datetime(2026, 1, 1, tzinfo=UTC)  # where the movable clock begins


def shop(app: Make, **settings: Any) -> App:
    holdfast = app(**settings)

    @holdfast.queue("mail").job(name="send", priority=50, timeout=7)
    def send(to: str = "", run: int = 0, when: datetime | None = None) -> str:
        return f"{to} {run} {when}"

    return holdfast


def scheduled(app: Make, **options: Any) -> App:
    """A new program that declares the schedule `ten`, of every ten minutes unless it says otherwise."""
    holdfast = shop(app)
    if not {"cron", "at"} & options.keys():
        options.setdefault("every", 600)
    holdfast.schedule("ten", job="send", **options)
    return holdfast


def row(app: App, name: str = "ten") -> ScheduleRow:
    return next(each for each in app.schedules(removed=True) if each.name == name)


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def fired(app: App) -> list[float]:
    """The times of its jobs, in seconds since the clock's start, oldest first."""
    jobs = sorted(app.find(job_type="send", limit=1000), key=lambda job: job.id)
    return [(job.scheduled_run_time - START).total_seconds() for job in jobs]


def test_declaring_does_nothing_until_the_first_operation(app: Make, tmp_path: Any) -> None:
    holdfast = shop(app, db_config=f"sqlite:///{tmp_path}/none.db")
    value = holdfast.schedule("ten", every=600, job="send", payload={"to": "a"})
    assert (value.name, value.job_type, value.every) == ("ten", "send", 600)
    assert not (tmp_path / "none.db").exists()
    holdfast.find()
    assert [each.schedule for each in holdfast.schedules()] == [value]


def test_it_fires_when_its_time_comes_and_not_before(app: Make, clock: MovableClock) -> None:
    holdfast = scheduled(app, payload={"to": "ada", "run": "{count}", "when": "{time}"})
    assert holdfast.run_until_idle() == 0
    assert row(holdfast).next_time == after(600)
    clock.advance(599.9)
    assert holdfast.run_until_idle() == 0
    clock.advance(0.1)
    assert holdfast.run_until_idle() == 1
    (job,) = holdfast.find()
    assert (job.queue, job.job_type, job.priority, job.timeout) == ("mail", "send", 50, 7)
    assert job.payload == {"to": "ada", "run": 1, "when": "2026-01-01T00:10:00Z"}
    assert job.result == "ada 1 2026-01-01 00:10:00+00:00"
    assert (job.scheduled_run_time, job.history()[0].actor) == (after(600), "schedule ten")
    found = row(holdfast)
    assert (found.count, found.last_time, found.last_job, found.next_time) == (1, after(600), job.id, after(1200))


def test_every_time_fires_once_although_many_look(app: Make, clock: MovableClock) -> None:
    programs = [scheduled(app) for _ in range(3)]
    for _ in range(5):
        programs[0].find()
        clock.advance(600)
        assert sum(program.store.fire_due().count for program in programs) == 1
    assert fired(programs[0]) == [600, 1200, 1800, 2400, 3000]
    assert [firing.count for firing in programs[1].firings("ten")] == [5, 4, 3, 2, 1]


def test_two_stores_that_race_fire_each_time_once(app: Make, url: str, instance: str, clock: MovableClock) -> None:
    holdfast = shop(app)
    for index in range(8):
        holdfast.schedule(f"s{index}", every=60, job="send", misfire="all")
    holdfast.find()
    clock.advance(600)
    stores = [open_store(url, instance, clock) for _ in range(4)]
    counts = [0] * len(stores)
    begin = threading.Barrier(len(stores))

    def race(index: int) -> None:
        begin.wait()
        while (found := stores[index].fire_due()).count or found.wake_in == 0:
            counts[index] += found.count

    threads = [threading.Thread(target=race, args=(index,)) for index in range(len(stores))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for store in stores:
        store.close()
    assert sum(counts) == 80
    assert sorted(fired(holdfast)) == sorted([60.0 * step for step in range(1, 11)] * 8)


@pytest.mark.parametrize(("misfire", "times"), [("all", [600, 1200, 1800, 2400, 3000]), ("once", [3000]), ("skip", [])])
def test_what_was_missed_while_nobody_was_there_goes_by_the_policy(
    app: Make, clock: MovableClock, misfire: str, times: list[float]
) -> None:
    scheduled(app, misfire=misfire).find()
    clock.advance(3500)  # nobody works
    restarted = scheduled(app, misfire=misfire)
    assert restarted.run_until_idle() == len(times)
    assert fired(restarted) == times
    clock.advance(100)
    assert restarted.run_until_idle() == 1
    assert fired(restarted) == [*times, 3600]


def test_a_policy_that_is_not_named_is_once(app: Make) -> None:
    assert scheduled(app).schedules()[0].schedule.misfire == "once"


def test_all_after_long_downtime_comes_in_bounded_batches(app: Make, clock: MovableClock) -> None:
    holdfast = scheduled(app, every=1, misfire="all")
    holdfast.find()
    clock.advance(250)
    counts = [holdfast.store.fire_due().count for _ in range(4)]
    assert counts == [100, 100, 50, 0]
    assert fired(holdfast) == list(range(1, 251))
    assert holdfast.run_until_idle() == 250


def test_run_until_idle_stops_at_its_guard_though_a_schedule_has_years_behind_it(
    app: Make, clock: MovableClock
) -> None:
    holdfast = scheduled(app, every=1, misfire="all")
    holdfast.find()
    clock.advance(365 * 86400)
    with pytest.raises(Invalid, match="run_until_idle ran 5 jobs"):
        holdfast.run_until_idle(max_jobs=5)
    assert row(holdfast).count <= 200


@pytest.mark.fault(4, "the clock is set by an hour")
def test_the_clock_set_back_or_forward_fires_nothing_twice(app: Make, clock: MovableClock) -> None:
    holdfast = scheduled(app, misfire="all")
    holdfast.find()
    clock.advance(1200)
    holdfast.run_until_idle()
    clock.set(after(1200 - 3600))  # an hour back
    assert holdfast.run_until_idle() == 0
    clock.advance(3600)  # the same hour again
    assert holdfast.run_until_idle() == 0
    clock.set(after(1200 + 3600))  # an hour ahead
    assert holdfast.run_until_idle() == 6
    clock.set(after(1260))  # and corrected
    assert holdfast.run_until_idle() == 0
    clock.advance(3600)
    assert holdfast.run_until_idle() == 0
    clock.advance(600)
    assert holdfast.run_until_idle() == 1
    assert fired(holdfast) == [600.0 * step for step in range(1, 10)]


@pytest.mark.fault(4, "two machines 30 s apart")
def test_two_machines_half_a_minute_apart_fire_each_time_once(app: Make, clock: MovableClock) -> None:
    behind = MovableClock(START - timedelta(seconds=30))
    here = scheduled(app, every=60)
    there = scheduled(lambda **given: app(**{"clock": behind, **given}), every=60)
    here.find()
    there.find()
    for _ in range(40):
        clock.advance(10)
        behind.advance(10)
        for program in (there, here, there):
            program.store.fire_due()
    assert fired(here) == [60.0 * step for step in range(1, 7)]


@pytest.mark.fault(4, "summer time begins and ends")
@pytest.mark.parametrize(
    ("begin", "expected"),
    [
        (datetime(2026, 3, 28, tzinfo=UTC), ["03-28 01:30", "03-29 01:00", "03-30 00:30"]),  # 02:30 is skipped
        (datetime(2026, 10, 24, tzinfo=UTC), ["10-24 00:30", "10-25 00:30", "10-26 01:30"]),  # 02:30 comes twice
    ],
)
def test_a_nightly_schedule_fires_once_a_night_when_the_clock_is_set(
    app: Make, clock: MovableClock, begin: datetime, expected: list[str]
) -> None:
    clock.set(begin)
    holdfast = scheduled(app, cron="30 2 * * *", zone="Europe/Amsterdam", payload={"to": "{time:%d %H:%M}"})
    holdfast.find()
    for _ in range(3 * 24 * 4 - 8):
        clock.advance(900)
        holdfast.store.fire_due()
    jobs = sorted(holdfast.find(), key=lambda job: job.id)
    assert [job.scheduled_run_time.strftime("%m-%d %H:%M") for job in jobs] == expected
    assert jobs[0].payload == {"to": begin.strftime("%d") + " 02:30"}


def test_points_in_time_and_an_end(app: Make, clock: MovableClock) -> None:
    holdfast = shop(app)
    holdfast.schedule("points", at=[START, after(90), after(-5)], job="send", payload={"to": "points"})
    holdfast.schedule("ends", every=60, end=after(121), job="send", payload={"to": "ends"})
    assert holdfast.run_until_idle() == 1  # now was named; what lay behind it is not made up for
    clock.advance(60)
    holdfast.run_until_idle()
    clock.advance(120)
    holdfast.run_until_idle()
    assert sorted((job.payload["to"], job.scheduled_run_time) for job in holdfast.find()) == [
        ("ends", after(60)),
        ("ends", after(120)),
        ("points", START),
        ("points", after(90)),
    ]
    assert {each.next_time for each in holdfast.schedules()} == {None}
    assert holdfast.store.fire_due().wake_in is None


def test_a_schedule_stays_when_the_code_no_longer_has_it(app: Make, clock: MovableClock) -> None:
    scheduled(app).find()
    later = shop(app)
    clock.advance(600)
    assert later.run_until_idle() == 1


def test_changed_code_changes_it_and_what_was_due_is_not_forgotten(app: Make, clock: MovableClock) -> None:
    scheduled(app, payload={"to": "old"}).find()
    clock.advance(700)
    changed = scheduled(app, payload={"to": "new"})  # deployed while nobody worked
    assert changed.run_until_idle() == 1
    assert (fired(changed), changed.find()[0].payload) == ([600], {"to": "new"})
    scheduled(app, every=900).find()
    assert row(changed).next_time == after(900)


@pytest.mark.claim("Q2")
def test_an_operators_change_wins_over_the_code_until_it_is_reset(app: Make, clock: MovableClock) -> None:
    holdfast = scheduled(app)
    added = holdfast.add_schedule("ten", "mail", "send", {"to": "ann"}, every=60, actor="ann")
    assert (added.source, added.declared, added.schedule.every, added.next_time) == ("operator", True, 60, after(60))
    scheduled(app, every=900).find()  # a restart with other code
    assert row(holdfast).schedule.every == 60
    clock.advance(60)
    assert holdfast.run_until_idle() == 1
    assert holdfast.find()[0].payload == {"to": "ann"}

    found = holdfast.reset_schedule("ten", actor="ann")

    assert (found.source, found.schedule.every, found.next_time, found.count) == ("code", 900, after(900), 1)


@pytest.mark.claim("Q2")
def test_what_an_operator_removed_stays_removed_until_it_is_reset(app: Make, clock: MovableClock) -> None:
    holdfast = scheduled(app)
    holdfast.remove_schedule("ten", actor="ann")
    again = scheduled(app, every=300)  # a restart with other code
    clock.advance(3600)
    assert again.run_until_idle() == 0
    assert again.schedules() == []
    assert row(again).removed
    for act in (again.remove_schedule, again.fire_schedule):
        with pytest.raises(NotFound, match=r"was removed by an operator.*--declared"):
            act("ten")

    found = again.reset_schedule("ten")

    assert (found.removed, found.schedule.every, found.next_time) == (False, 300, after(3900))


def test_an_operators_own_schedule_is_gone_when_it_is_removed(app: Make, clock: MovableClock, sql: RawSql) -> None:
    holdfast = shop(app)
    holdfast.add_schedule("own", "mail", "send", every=60)
    holdfast.fire_schedule("own", actor="ann")
    with pytest.raises(NotFound, match="no code declares one"):
        holdfast.reset_schedule("own")
    holdfast.remove_schedule("own", actor="ann")
    assert holdfast.schedules(removed=True) == []
    for act in (holdfast.remove_schedule, holdfast.fire_schedule, holdfast.reset_schedule, holdfast.firings):
        with pytest.raises(NotFound, match="There is no schedule `own`"):
            act("own")
    audits = sql("select actor, action, detail from {audit} order by id")
    assert [tuple(each.values()) for each in audits] == [
        ("app", "add_schedule", "own"),
        ("ann", "fire_schedule", "own"),
        ("ann", "remove_schedule", "own"),
    ]


def test_firing_by_hand_leaves_its_times_as_they_are(app: Make, clock: MovableClock) -> None:
    holdfast = scheduled(app, payload={"run": "{count}"})
    clock.advance(100)
    holdfast.find()
    job = holdfast.fire_schedule("ten", actor="ann")
    assert (job.payload, job.scheduled_run_time) == ({"run": 1}, after(100))
    clock.advance(500)
    assert holdfast.run_until_idle() == 2
    by_itself, by_hand = holdfast.firings("ten")
    assert (by_hand.actor, by_hand.time, by_hand.job) == ("ann", after(100), job.id)
    assert (by_itself.actor, by_itself.time, by_itself.count) == ("schedule", after(600), 2)


def test_firing_by_hand_after_the_clock_was_set_back_lets_no_time_fire_again(app: Make, clock: MovableClock) -> None:
    holdfast = scheduled(app)
    holdfast.find()
    clock.advance(660)
    assert holdfast.store.fire_due().count == 1
    clock.set(START)
    holdfast.fire_schedule("ten", actor="ann")
    assert scheduled(app, payload={"to": "b"}).find()
    assert row(holdfast).next_time == after(1200)
    clock.set(after(660))
    assert holdfast.store.fire_due().count == 0
    clock.set(after(1200))
    assert holdfast.store.fire_due().count == 1
    assert row(holdfast).problem is None


def test_with_a_key_a_slow_job_is_not_doubled_and_the_firings_tell(app: Make, clock: MovableClock) -> None:
    holdfast = scheduled(app, job_key="only-one")
    holdfast.find()
    for _ in range(2):
        clock.advance(600)
        holdfast.store.fire_due()
    (job,) = holdfast.find()
    assert [(firing.count, firing.job, firing.duplicate) for firing in holdfast.firings("ten")] == [
        (2, job.id, True),
        (1, job.id, False),
    ]
    assert job.history()[0].actor == "schedule ten"
    holdfast.run_until_idle()
    clock.advance(600)
    assert holdfast.run_until_idle() == 1  # the key is free again


def test_a_key_may_hold_variables_and_options_are_the_jobs_own(app: Make, clock: MovableClock) -> None:
    options = {"job_key": "day-{time:%d}-{count}", "priority": 1, "retries": 0, "time_windows": ["06:00-07:00"]}
    holdfast = scheduled(app, const={"who": "ada"}, payload={"to": "{who}"}, **options)
    holdfast.find()
    clock.advance(600)
    holdfast.store.fire_due()
    (job,) = holdfast.find()
    assert (job.job_key, job.priority, job.retries, job.payload) == ("day-01-1", 1, 0, {"to": "ada"})
    assert job.scheduled_run_time == START + timedelta(hours=6)  # W5


def test_a_schedule_that_cannot_fire_keeps_its_time_says_why_and_stops_no_other(app: Make, clock: MovableClock) -> None:
    holdfast = scheduled(app, throttle_factor=5)
    holdfast.schedule("fine", every=600, job="send")
    holdfast.limit("mail", 2)
    clock.advance(600)
    assert holdfast.run_until_idle() == 1
    held = row(holdfast)
    assert (held.next_time, held.count) == (after(600), 0)
    assert "throttle_factor" in (held.problem or "")
    assert holdfast.store.fire_due().wake_in == 60
    holdfast.limit("mail", None)
    clock.advance(60)
    assert holdfast.run_until_idle() == 1
    assert (row(holdfast).problem, fired(holdfast)) == (None, [600, 600])


def test_many_that_are_due_together_fire_by_as_many_statements_as_two(
    app: Make, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    holdfast, counts = shop(app), []
    names, text = list[str](), holdfast.store.text  # type: ignore[attr-defined]
    monkeypatch.setattr(
        holdfast.store, "text", lambda name, *more, **options: names.append(name) or text(name, *more, **options)
    )
    for index in range(40):
        value = holdfast.schedule(f"s{index}", every=600, job="send", payload={"to": f"{index}", "run": "{count}"})
        holdfast.store.set_schedule(value, "ann")
        if index in (1, 39):
            clock.advance(600)
            names.clear()
            assert holdfast.store.fire_due().count == index + 1
            counts.append(len(names))
    assert counts[1] <= counts[0] < 20
    made = sorted((int(job.payload["to"]), job.payload["run"]) for job in holdfast.find(limit=100))
    assert made == sorted([*((index, 1) for index in range(40)), (0, 2), (1, 2)])
    assert {each.name: (each.count, each.last_job is not None) for each in holdfast.schedules()} == {
        f"s{index}": (1 + (index < 2), True) for index in range(40)
    }


def test_a_schedule_that_only_newer_code_can_read_stops_no_other(app: Make, clock: MovableClock, sql: RawSql) -> None:
    holdfast = scheduled(app)
    for index in range(3):
        holdfast.schedule(f"s{index}", every=600, job="send")
    holdfast.find()
    sql(
        "update {schedule} set declared_definition = :text where name = 's1'",
        text='{"name":"s1","job_type":"send","new":1}',
    )
    clock.advance(600)
    found = holdfast.store.fire_due()
    assert (found.count, [told.split(":")[0] for told in found.told]) == (3, ["Schedule `s1` is left to newer workers"])
    assert fired(holdfast) == [600, 600, 600]


def test_a_crash_between_moving_on_and_the_job_leaves_both_undone(
    app: Make, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    holdfast = scheduled(app)
    store = holdfast.store
    clock.advance(600)

    def crash(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(store, "insert", crash)
        with pytest.raises(KeyboardInterrupt):
            store.fire_due()
    assert (row(holdfast).next_time, row(holdfast).count) == (after(600), 0)
    assert holdfast.run_until_idle() == 1
    assert fired(holdfast) == [600]


def test_the_database_itself_refuses_a_second_firing_of_a_time(app: Make, clock: MovableClock, sql: RawSql) -> None:
    holdfast = scheduled(app)
    holdfast.find()
    clock.advance(600)
    holdfast.run_until_idle()
    with sql.refused():
        sql(
            "insert into {firing} select schedule, count + 1, time, fire_time, job, duplicate, actor from {firing} where schedule = 'ten'"
        )


def test_old_firings_are_forgotten(app: Make, clock: MovableClock) -> None:
    holdfast = scheduled(app, every=86400)
    holdfast.find()
    clock.advance(86400)
    holdfast.run_until_idle()
    clock.advance(91 * 86400)
    holdfast.run_until_idle()
    assert [firing.count for firing in holdfast.firings("ten")] == [2]


def test_a_schedule_of_another_instance_is_not_ours(app: Make, clock: MovableClock, instance: str) -> None:
    other = shop(app, name=instance + "_b")
    other.schedule("ten", every=60, job="send")
    other.find()
    holdfast = scheduled(app)
    holdfast.find()
    clock.advance(600)
    assert holdfast.run_until_idle() == 1
    other.close()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"job": "nobody"}, "job='nobody' is no job type of this app"),
        ({"payload": {"too": "a"}}, "did you mean `to`"),
        ({"payload": {"run": "{time}"}}, "argument `run` must be"),
        ({"payload": ["a"]}, "give a mapping of names to values"),
        ({"priority": "high"}, "priority='high'"),
        ({"workflow": "report"}, "give job and payload, or workflow and request"),
        ({"colour": "red"}, "unknown option 'colour'"),
        ({"job_key": "x" * 501}, "job_key"),
    ],
)
def test_what_could_never_be_fired_is_refused_where_it_is_written(app: Make, given: dict[str, Any], told: str) -> None:
    holdfast = shop(app)
    with pytest.raises(Invalid) as refused:
        holdfast.schedule("ten", **{"every": 60, "job": "send", **given})
    assert told in str(refused.value)
    assert holdfast.schedules() == []


def test_a_name_belongs_to_one_schedule_of_an_app(app: Make) -> None:
    holdfast = scheduled(app)
    holdfast.schedule("ten", every=600, job="send")  # the same again is the same
    with pytest.raises(Conflict, match="Schedule `ten` is declared twice"):
        holdfast.schedule("ten", every=601, job="send")
