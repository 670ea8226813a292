"""Fleets that are played: they agree with what is known of queues, and with the rules of the product, because these decide."""

import random
from itertools import pairwise
from typing import Any

import pytest

from holdfast.simulation import description
from holdfast.simulation.description import Described
from holdfast.simulation.fleet import Fleet
from holdfast.simulation.playing import Playing, play
from holdfast.simulation.tally import SECOND, Result, peaks
from holdfast.stores import claiming
from holdfast.stores.sqlite import jobs
from holdfast.worker import sweeper

HOUR = 3600


def fleet(
    types: dict[str, Any],
    workers: dict[str, Any] | None = None,
    queues: dict[str, Any] | None = None,
    **simulation: Any,
) -> Fleet:
    content = {
        "simulation": {"hours": 1, **simulation},
        "queues": queues or {"mail": {}},
        "types": types,
        "workers": workers or {"one": {"concurrency": 1}},
    }
    return description.fleet(Described("here", content))


def served(of: Fleet) -> Playing:
    """A fleet that was played, with everything that was counted."""
    found = Playing(of, lambda share, count: None)
    found.played()
    found.store.close()
    return found


def one_server(duration: Any, **simulation: Any) -> Result:
    return play(fleet({"job": {"arrivals": {"per_hour": 360}, "duration": duration, "timeout": "none"}}, **simulation))


def test_waits_of_one_server_are_those_of_theory() -> None:
    """M/M/1: ρ / (1 − ρ) services; M/D/1: half of that."""
    markov, even = (one_server(duration, hours=5, seed=6) for duration in ({"exponential": 5}, 5))
    assert markov.types["job"].wait.mean == pytest.approx(5.0, rel=0.1)
    assert even.types["job"].wait.mean == pytest.approx(2.5, rel=0.1)
    assert markov.workers["one"].utilisation == pytest.approx(0.5, rel=0.05)
    assert markov.queues["mail"].in_use == pytest.approx(markov.workers["one"].utilisation)


def test_waits_of_several_servers_are_those_of_theory() -> None:
    """M/M/3 at ρ = 0.6: Erlang's C is 0.355, and the wait C / (3μ − λ)."""
    job = {"arrivals": {"per_hour": 1080}, "duration": {"exponential": 6}, "timeout": "none"}
    result = play(fleet({"job": job}, {"three": {"count": 3, "concurrency": 1}}, hours=3))
    assert result.types["job"].wait.mean == pytest.approx(0.355 / (3 / 6 - 0.3), rel=0.15)


def test_a_limit_of_n_is_n_servers() -> None:
    job = {"arrivals": {"per_hour": 1080}, "duration": {"exponential": 6}, "timeout": "none"}
    slots = play(fleet({"job": job}, {"few": {"concurrency": 3}}))
    limited = play(fleet({"job": job}, {"many": {"count": 2, "concurrency": 10}}, {"mail": {"limit": 3}}))
    assert slots.types["job"].wait.max > 0
    assert limited.types["job"].wait == slots.types["job"].wait
    assert limited.types["job"].turnaround == slots.types["job"].turnaround
    assert limited.queues["mail"].most_in_use == 3
    assert 0 < (limited.queues["mail"].at_limit or 0) < 1


def test_nothing_starts_above_the_limit() -> None:
    types = {
        "light": {"arrivals": {"per_hour": 400}, "duration": {"exponential": 6}, "throttle_factor": 0.5},
        "heavy": {"arrivals": {"per_hour": 200}, "duration": {"exponential": 9}, "throttle_factor": 2},
    }
    result = play(fleet(types, {"many": {"concurrency": 50}}, {"mail": {"throttle_limit": 2.5}}))
    assert result.queues["mail"].most_in_use == 2.5
    assert result.types["heavy"].succeeded > 100
    assert result.queues["mail"].most_backlog > 0


def test_a_window_shuts_jobs_out_until_it_opens() -> None:
    job = {"arrivals": {"every": 300}, "duration": 1, "time_windows": ["02:00-03:00", "05:00-05:01"]}
    found = served(fleet({"job": job}, hours=6))
    starts = [(at - found.start) / SECOND / HOUR for at in found.queues["mail"].served]
    assert starts
    assert all(2 <= at < 3 or 5 <= at < 5 + 1 / 60 for at in starts), starts
    assert starts.count(2.0) == 1  # one slot, and the others came after it
    assert found.types["job"].counts["arrived"] - len(starts) == 11  # they wait for tomorrow


def urgent_and_not() -> Fleet:
    types = {
        "late": {"arrivals": {"burst": 20, "at": "00:10"}, "duration": 3, "priority": 200},
        "urgent": {"arrivals": {"burst": 20, "at": "00:10"}, "duration": 3, "priority": 1},
    }
    return fleet(types)


def urgent_came_first(found: Playing) -> bool:
    return max(found.types["urgent"].waits) < min(found.types["late"].waits)


def test_urgent_jobs_start_first() -> None:
    assert urgent_came_first(served(urgent_and_not()))


def test_the_order_is_that_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the store's own claims broken the simulation comes to something else."""
    for name in ("head", "take_head"):
        broken = jobs.STATEMENTS[name].replace("order by major, minor, id", "order by major desc, minor, id")
        assert broken != jobs.STATEMENTS[name]
        monkeypatch.setitem(jobs.STATEMENTS, name, broken)
    assert not urgent_came_first(served(urgent_and_not()))


def test_the_limit_is_that_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    real = claiming.choose
    monkeypatch.setattr(
        claiming, "choose", lambda usage, candidates: real(claiming.structs.replace(usage, limit=99), candidates)
    )
    job = {"arrivals": {"burst": 20, "at": "00:10"}, "duration": 60, "timeout": "none"}
    result = play(fleet({"job": job}, {"many": {"concurrency": 50}}, {"mail": {"limit": 3}}))
    assert result.queues["mail"].most_in_use > 3


def test_the_vigil_over_workers_is_that_of_the_sweeper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeper.Vigil, "look", lambda *_: [])
    job = {"arrivals": {"burst": 1, "at": "00:10"}, "duration": 600, "timeout": "none"}
    workers = {"one": {"concurrency": 1, "crashes": "00:15"}}
    assert play(fleet({"job": job}, workers)).types["job"].left == 1


def test_jobs_of_a_worker_that_dies_begin_again_when_it_is_missed() -> None:
    job = {"arrivals": {"burst": 3, "at": "00:10"}, "duration": 600, "timeout": "none"}
    workers = {"one": {"concurrency": 3, "crashes": "00:15", "restart_after": 60}, "other": {"concurrency": 1}}
    result = play(fleet({"job": job}, workers, queues={"mail": {"limit": 3}}))
    each = result.types["job"]
    assert each.lost in (2, 3)
    assert (each.succeeded, each.retries) == (3, 0)
    assert result.workers["one"].crashes == 1
    assert 300 + 600 + 30 <= each.turnaround.max <= 300 + 600 + 60 + 10


def test_workers_that_die_all_the_time_are_missed() -> None:
    job = {"arrivals": {"every": 60}, "duration": 1}
    shaky = {"concurrency": 1, "crashes_every": 1, "restart_after": 0}
    found = served(fleet({"job": job}, {"shaky": shaky}, hours=0.2))
    assert found.groups[0].places[0].tally.crashes > 700
    assert len(found._missing) < 45
    assert found.types["job"].counts["lost"] > 5


def test_with_on_crash_timeout_a_lost_job_waits_for_its_timeout() -> None:
    job = {"arrivals": {"burst": 1, "at": "00:10"}, "duration": 300, "timeout": 400, "on_crash": "timeout"}
    result = play(fleet({"job": job}, {"one": {"concurrency": 3, "crashes": "00:12"}})).types["job"]
    assert (result.timeouts, result.retries, result.succeeded) == (1, 1, 1)
    assert 700 <= result.turnaround.max <= 715


def test_who_leaves_hands_back_what_does_not_end_in_the_grace_period() -> None:
    job = {"arrivals": {"burst": 2, "at": "00:10"}, "duration": 300, "timeout": "none"}
    workers = {"day": {"concurrency": 2, "start": "00:00", "stop": "00:14", "grace": 5}, "late": {"start": "00:20"}}
    found = served(fleet({"job": job}, workers))
    each = found.types["job"]
    assert (each.counts["started"], each.counts["succeeded"], each.counts["retries"]) == (4, 2, 0)
    assert found.queues["mail"].served[2] - found.start == 20 * 60 * SECOND


def test_failures_are_tried_again_as_the_policy_says() -> None:
    job = {
        "arrivals": {"burst": 5, "at": "00:10"},
        "duration": 1,
        "failure_rate": 1,
        "retries": 2,
        "retry": {"kind": "fixed", "seconds": 30},
    }
    each = play(fleet({"job": job}, {"many": {"concurrency": 9}})).types["job"]
    assert (each.started, each.retries, each.dead, each.succeeded) == (15, 10, 5, 0)
    assert each.turnaround.max == pytest.approx(3 * 1 + 2 * 30)


def test_a_breaker_keeps_a_broken_type_from_trying() -> None:
    job = {"arrivals": {"every": 60}, "duration": 1, "failure_rate": 1, "retries": "none"}
    adaptive = {**job, "retry": {"kind": "adaptive", "probe": 300}}
    fixed = {**job, "retry": {"kind": "fixed", "seconds": 120}}
    workers = {"many": {"concurrency": 50}}
    stubborn, careful = (play(fleet({"job": each}, workers)).types["job"] for each in (fixed, adaptive))
    assert 5 + 11 <= careful.started <= 5 + 14  # until it opens, and a probe in each five minutes
    assert stubborn.started > 500


def test_a_rate_is_kept() -> None:
    queue = {"throttler": {"kind": "rate", "count": 10, "per": 60, "burst": 5}}
    job = {"arrivals": {"burst": 100, "at": "00:10"}, "duration": 1}
    found = served(fleet({"job": job}, {"many": {"concurrency": 200}}, {"mail": queue}))
    starts = sorted(found.queues["mail"].served)
    assert starts[0] == starts[4] < starts[5]
    for first, at in enumerate(starts):
        within = sum(at <= other < at + 60 * SECOND for other in starts[first:])
        assert within <= 5 + 10
    assert (starts[-1] - starts[0]) / SECOND == pytest.approx(95 * 6, abs=1)


def test_shares_of_a_key_are_kept() -> None:
    queue = {"throttler": {"kind": "share", "key": "region", "shares": {"eu": 4, "us": 1}}}
    job = {"arrivals": {"burst": 60, "at": "00:10"}, "duration": 10, "payload": {"region": {"eu": 1, "us": 1}}}
    result = play(fleet({"job": job}, {"many": {"concurrency": 200}}, {"mail": queue}))
    assert result.queues["mail"].most_in_use == 5
    assert result.types["job"].succeeded == 60


def test_a_key_that_lives_is_not_enqueued_twice() -> None:
    job = {"arrivals": {"every": 10}, "duration": 55, "timeout": "none", "keys": 1}
    each = play(fleet({"job": job})).types["job"]
    assert each.arrived == 359
    assert each.succeeded + each.left + each.duplicates == each.arrived
    assert each.duplicates == pytest.approx(359 * 5 / 6, rel=0.05)


def test_what_expires_before_its_turn_ends() -> None:
    job = {"arrivals": {"burst": 10, "at": "00:10"}, "duration": 100, "timeout": "none", "expires_after": 250}
    each = play(fleet({"job": job})).types["job"]
    assert (each.succeeded, each.expired, each.dead) == (3, 7, 7)


def test_the_sweeper_pauses_while_nothing_is_under_way_and_what_comes_then_expires_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    swept: list[int] = []
    sweep = sweeper.Sweeper.sweep

    def watched(self: sweeper.Sweeper) -> float:
        swept.append(round(self._clock.monotonic()))
        return sweep(self)

    monkeypatch.setattr(sweeper.Sweeper, "sweep", watched)
    late = {"arrivals": {"burst": 2, "at": "20:00:30"}, "duration": 600, "timeout": "none", "expires_after": 100}
    each = play(fleet({"job": late}, hours=24)).types["job"]
    assert (each.succeeded, each.expired) == (1, 1)
    came = 20 * HOUR + 30
    assert (swept[0], swept[-1]) == (came + 30, came + 570)
    assert len(swept) < 15


def test_what_the_store_refuses_is_counted_and_the_others_are_played() -> None:
    job = {"arrivals": {"every": 60}, "expires_after": 60, "time_windows": ["00:30-00:40"]}
    result = play(fleet({"job": job, "other": {"arrivals": {"every": 60}}}))
    each = result.types["job"]
    assert (each.arrived, each.refused, each.succeeded) == (59, 49, 10)
    assert (result.types["other"].refused, result.types["other"].succeeded) == (0, 59)
    assert "`job`: " in (result.first_refusal or "")
    assert "Give a later `expires`." in (result.first_refusal or "")


def test_an_attempt_that_takes_too_long_times_out() -> None:
    job = {"arrivals": {"burst": 2, "at": "00:10"}, "duration": 100, "timeout": 30, "retries": 1}
    each = play(fleet({"job": job}, {"many": {}})).types["job"]
    assert (each.timeouts, each.retries, each.dead) == (4, 2, 2)
    assert each.turnaround.max == pytest.approx(60)


def test_labels_are_required_and_preferred() -> None:
    types = {
        "draw": {"arrivals": {"every": 60}, "duration": 5, "labels": ["gpu"]},
        "scale": {"arrivals": {"every": 60}, "duration": 5, "prefers": ["gpu"], "prefer_for": 20},
        "mine": {"arrivals": {"every": 60}, "duration": 5, "labels": ["quantum"]},
    }
    result = play(fleet(types, {"gpu": {"concurrency": 1, "labels": ["gpu"]}, "plain": {"concurrency": 9}}))
    assert (result.types["draw"].succeeded, result.types["scale"].succeeded) == (59, 59)
    assert result.types["mine"].left == 59
    assert result.workers["gpu"].attempts == 118
    busy = play(
        fleet(
            {**types, "draw": {**types["draw"], "duration": 50}},
            {"gpu": {"labels": ["gpu"], "concurrency": 1}, "plain": {}},
        )
    )
    assert busy.types["scale"].wait.max == 20
    assert busy.workers["plain"].attempts > 20


def test_a_seed_is_one_story_and_draws_from_nobody_else() -> None:
    types = {"job": {"arrivals": {"per_hour": 300}, "duration": {"p50": 5, "p99": 60}, "failure_rate": 0.1}}
    workers = {"some": {"count": 2, "concurrency": 1, "crashes_every": 1200}}
    random.seed(5)
    before = random.getstate()
    first, again, other = (play(fleet(types, workers, seed=seed)) for seed in (1, 1, 2))
    assert first == again != other
    assert random.getstate() == before
    assert first.workers["some"].crashes > 0


def test_a_change_changes_nothing_else() -> None:
    """Jobs come at the same times and take as long, so that what differs is due to the change."""
    job = {"arrivals": {"per_hour": 300}, "duration": {"exponential": 20}, "timeout": "none", "failure_rate": 0.2}
    few, many = (play(fleet({"job": job}, {"some": {"concurrency": count}}, hours=2)) for count in (2, 50))
    assert few.jobs == many.jobs
    assert few.types["job"].wait.mean > many.types["job"].wait.mean == 0
    more = play(fleet({"job": job}, {"some": {"concurrency": 99}}, hours=2))
    assert more.types == many.types


def test_no_workers_are_not_an_error() -> None:
    result = play(fleet({"job": {"arrivals": {"every": 60}}}, {"none": {"count": 0}}))
    assert result.types["job"].left == 59
    assert result.queues["mail"].backlog[-1] == 59


def test_workers_with_no_types_run_nothing() -> None:
    result = play(fleet({"job": {"arrivals": {"every": 60}}}, {"none": {"types": []}, "all": {}}))
    assert (result.workers["none"].attempts, result.workers["all"].attempts) == (0, 59)


def test_the_backlog_is_the_most_that_waited_in_each_stretch() -> None:
    assert peaks([0, 1, 2, 500], [10, 30, 500], 0, 960)[:4] == [3, 3, 2, 2]
    assert peaks([0, 1, 2, 500], [10, 30, 500], 0, 960)[50:52] == [1, 1]


def test_time_passes_as_in_the_zone_of_the_fleet() -> None:
    job = {"arrivals": {"burst": 1, "at": "03:30"}}
    found = served(fleet({"job": job}, zone="Europe/Amsterdam", hours=6))
    assert [at - found.start for at in found.queues["mail"].served] == [2.5 * HOUR * SECOND]
    by_hour = [0.0] * 24
    by_hour[4] = 100
    found = served(fleet({"job": {"arrivals": {"by_hour": by_hour}}}, zone="Europe/Amsterdam", hours=6))
    hours = [(at - found.start) / SECOND / HOUR for at in found.queues["mail"].served]
    assert len(hours) > 50
    assert all(3 <= at < 4 for at in hours)


@pytest.mark.faults
def test_a_day_of_a_hundred_thousand_jobs_is_played_and_agrees_with_theory() -> None:
    job = {"arrivals": {"per_day": 100_000}, "duration": {"exponential": 2}, "timeout": "none"}
    result = play(fleet({"job": job}, {"many": {"count": 2, "concurrency": 10}}, {"mail": {"limit": 3}}, hours=24))
    load = 100_000 / 86_400 * 2 / 3
    assert result.jobs == pytest.approx(100_000, rel=0.02)
    assert result.queues["mail"].limit_use == pytest.approx(load, rel=0.02)


def test_how_far_it_is_is_told_also_where_few_jobs_come() -> None:
    told: list[tuple[float, int]] = []
    workers = {"shaky": {"count": 5, "crashes_every": 15, "restart_after": 0}}
    play(fleet({"job": {"arrivals": {"per_hour": 2}, "duration": 1}}, workers), lambda *far: told.append(far))
    assert len(told) > 10
    assert told == sorted(told)
    assert max(far - before for (before, _), (far, _) in pairwise(told)) < 0.2
