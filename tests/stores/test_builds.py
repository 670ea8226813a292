"""Builds in the store: what asking for one does (B1, B4), their states (B2, B3), and what a sweep is told (B5)."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from itertools import permutations
from typing import Any

import pytest
from msgspec import structs

from holdfast import Conflict, IllegalMove, NotFound
from holdfast.builds.build import BuildRef, BuildState, BuildStep, Telling
from holdfast.builds.labels import PullRequestLabels
from holdfast.clock import MovableClock
from holdfast.jobs.states import Aborted
from holdfast.stores.contract import BuildFilter, NewBuild, NewDelivery, QueueDeclared, Received, Store, TypeRow
from tests.by_hand import WorkerByHand, add
from tests.raw_sql import RawSql

ONE, TWO, THREE = ("1" * 40, "2" * 40, "3" * 40)


@pytest.fixture
def store(store: Store, instance: str) -> Store:
    """With what builds need."""
    queues = [
        QueueDeclared(name, f"{instance}_{name}", throttle_limit=limit)
        for name, limit in (("builds", 2), ("build_statuses", 0))
    ]
    types = [TypeRow("build", "builds", has_handler=True), TypeRow("build_status", "build_statuses", has_handler=True)]
    store.register(queues, types)
    return store


@pytest.fixture
def builder(store: Store) -> WorkerByHand:
    return WorkerByHand(store, ("build", "build_status"), ("builds", "build_statuses"))


def delivery(identity: str, **more: Any) -> NewDelivery:
    return NewDelivery(**{"project": "demo", "forge": "github", "id": identity, **more})


def ask(store: Store, commit: str = ONE, **more: Any) -> Received:
    return store.receive_build(
        NewBuild(**{"project": "demo", "commit": commit, "ref": "refs/heads/main", "branch": "main", **more})
    )


def state(store: Store, build: int, cache: int = 10) -> BuildState:
    return store.build(build, cache).build_state


def begin(store: Store, builder: WorkerByHand) -> Any:
    call = builder.claim_one("builds")
    assert store.begin_build(call.id, call.attempt)
    return call


def finish(store: Store, builder: WorkerByHand, outcome: str = "success") -> Any:
    """The next build in line runs and ends."""
    call = begin(store, builder)
    assert store.complete_build(call.id, call.attempt, [BuildStep("test", "SUCCESS")], [])
    if outcome == "success":
        builder.succeed(call)
    elif outcome == "aborted":
        builder.tell(call, Aborted("somebody"))
    else:
        builder.fail(call, "failed" if outcome == "failed" else "exception")
    return call


@pytest.mark.claim("B1", "B6")
def test_a_build_is_a_commit_of_a_project_with_a_job_of_its_own(store: Store) -> None:
    build = ask(store, timeout=77).build
    job = store.get(build.job_id)
    assert (build.project, build.commit, build.branch) == ("demo", ONE, "main")
    assert (job.job_type, job.job_key, job.queue, job.timeout, job.retries) == ("build", f"demo:{ONE}", "builds", 77, 0)
    assert ask(store, TWO).build.id != build.id


@pytest.mark.claim("B2", "B3")
def test_a_build_walks_through_its_states(store: Store, builder: WorkerByHand) -> None:
    build = ask(store).build.id
    assert state(store, build) is BuildState.RECEIVED
    call = builder.claim_one("builds")
    assert state(store, build) is BuildState.RECEIVED, "nothing is generated yet"
    assert store.begin_build(call.id, call.attempt)
    assert state(store, build) is BuildState.BUILDING
    assert store.complete_build(call.id, call.attempt, [], [])
    assert state(store, build) is BuildState.BUILDING, "its job is not over"
    builder.succeed(call)
    assert state(store, build) is BuildState.CACHED
    assert state(store, build, cache=0) is BuildState.COMPLETED


@pytest.mark.claim("B3")
@pytest.mark.parametrize("outcome", ["success", "failed", "error", "aborted"])
def test_every_outcome_completes(store: Store, builder: WorkerByHand, outcome: str) -> None:
    build = ask(store).build.id
    finish(store, builder, outcome)
    found = store.build(build, 10)
    assert (found.build_state, found.outcome) == (BuildState.CACHED, outcome)
    assert (found.error is None) == (outcome == "success")


@pytest.mark.claim("B2", "B3")
def test_the_cache_holds_the_builds_used_last(store: Store, builder: WorkerByHand) -> None:
    builds = [ask(store, commit).build.id for commit in (ONE, TWO, THREE)]
    for _ in builds:
        finish(store, builder)
    assert [state(store, build, 2) for build in builds] == [BuildState.COMPLETED, BuildState.CACHED, BuildState.CACHED]
    store.use_build(builds[0])
    assert [state(store, build, 2) for build in builds] == [BuildState.CACHED, BuildState.COMPLETED, BuildState.CACHED]
    assert [build for build, _ in store.cached_builds(2)] == [builds[0], builds[2]]


@pytest.mark.claim("B3")
def test_listing_is_not_use_and_what_is_unfinished_is_never_cached(store: Store, builder: WorkerByHand) -> None:
    first, second = ask(store).build.id, ask(store, TWO).build.id
    finish(store, builder)
    begin(store, builder)
    third = ask(store, THREE).build.id
    for _ in range(3):
        store.builds(BuildFilter(cache=1))
    store.use_build(second)
    found = {build.id: build.build_state for build in store.builds(BuildFilter(cache=1))}
    assert found == {first: BuildState.CACHED, second: BuildState.BUILDING, third: BuildState.RECEIVED}


@pytest.mark.claim("B4")
class TestAskingAgain:
    def test_joins_a_build_that_waits_or_runs(self, store: Store, builder: WorkerByHand) -> None:
        first = ask(store, pull_request=2)
        assert first.how == "new"
        for _ in range(2):
            again = ask(store, pull_request=3)
            assert (again.how, again.build.id, again.build.job_id) == ("joined", first.build.id, first.build.job_id)
            assert (again.build.branch, again.build.pull_request) == ("main", 3)
            begin(store, builder) if again.build.build_state is BuildState.RECEIVED else None

    @pytest.mark.parametrize("outcome", ["success", "failed"])
    def test_reports_a_result(self, store: Store, builder: WorkerByHand, outcome: str) -> None:
        first = ask(store).build
        finish(store, builder, outcome)
        again = ask(store)
        assert (again.how, again.build.job_id, again.build.outcome) == ("reported", first.job_id, outcome)

    @pytest.mark.parametrize("outcome", ["error", "aborted"])
    def test_builds_anew_what_has_none(self, store: Store, builder: WorkerByHand, outcome: str) -> None:
        first = ask(store).build
        finish(store, builder, outcome)
        again = ask(store)
        assert (again.how, again.left, again.build.build_state) == ("again", first.job_id, BuildState.RECEIVED)
        assert (again.build.id, again.build.steps) == (first.id, ())
        assert store.get(again.build.job_id).retry_of == first.job_id

    def test_takes_no_number(self, store: Store) -> None:
        first, again, second = (ask(store, commit).build.id for commit in (ONE, ONE, TWO))
        assert (again - first, second - first) == (0, 1)

    def test_may_insist(self, store: Store, builder: WorkerByHand) -> None:
        first = ask(store).build
        finish(store, builder)
        assert ask(store, rebuild=True).build.job_id > first.job_id

    def test_at_the_same_time_makes_one_build_for_each_context(self, store: Store) -> None:
        others = [store.another() for _ in range(4)]
        contexts = [{}, {"branch": "next"}, {"pull_request": 5}, {"pull_request": 5, "trusted": False}]
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda index: ask(others[index % 4], **contexts[index // 4 % 4]), range(32)))
        for other in others:
            other.close()
        assert sorted(each.how for each in found) == ["joined"] * 28 + ["new"] * 4
        assert len({each.build.job_id for each in found}) == len({each.build.id for each in found}) == 4
        assert len({(each.build.id, each.build.context) for each in found}) == 4
        keys = {store.get(each.build.job_id).job_key for each in found}
        assert {f"demo:{ONE}"} < keys <= {f"demo:{ONE}", *(f"demo:{ONE}:{each.build.id}" for each in found)}


MAIN, NEXT = {"branch": "main"}, {"branch": "next", "ref": "refs/heads/next"}
TAGGED = {"branch": None, "tag": "v1", "ref": "refs/tags/v1"}
PULLED = {"branch": "main", "pull_request": 5, "ref": "refs/pull/5/head"}
STRANGE = {**PULLED, "trusted": False}
CONTEXTS = {"main": MAIN, "next": NEXT, "tag": TAGGED, "pull request": PULLED, "fork": STRANGE}
DIFFER = {  # the names of a context that two trusted requests differ in
    frozenset(("main", "next")): {"branch"},
    frozenset(("main", "tag")): {"event", "branch", "tag"},
    frozenset(("main", "pull request")): {"event"},
    frozenset(("next", "tag")): {"event", "branch", "tag"},
    frozenset(("next", "pull request")): {"event", "branch"},
    frozenset(("tag", "pull request")): {"event", "branch", "tag"},
}
PAIRS = list(permutations(CONTEXTS, 2))
READ = [(), ("branch",), ("event",), ("tag",), ("branch", "event"), ("env.MODE", "commit", "project", "trusted"), None]


@pytest.mark.claim("B1", "B4")
class TestAnotherContext:
    def finished(self, store: Store, builder: WorkerByHand, read: tuple[str, ...] | None, **asked: Any) -> Received:
        """A build that is done, of a build file whose conditions read these names."""
        received = ask(store, **asked)
        call = begin(store, builder)
        assert store.complete_build(call.id, call.attempt, [], [], "success", read)
        builder.succeed(call)
        return received

    @pytest.mark.parametrize("read", READ, ids=str)
    def test_gets_the_result_only_if_no_condition_reads_what_differs(
        self, store: Store, builder: WorkerByHand, read: tuple[str, ...] | None
    ) -> None:
        """Cell by cell: each context after each other one."""
        for at, names in enumerate(PAIRS):
            commit, (before, wanted) = f"{at:040x}", (CONTEXTS[name] for name in names)
            first = self.finished(store, builder, read, commit=commit, **before).build
            again = ask(store, commit, **wanted)
            same = "fork" not in names and read is not None and not DIFFER[frozenset(names)] & set(read)
            assert again.how == ("reported" if same else "new"), names
            assert (again.build.id == first.id, again.build.job_id == first.job_id) == (same, same), names
            assert store.build(first.id, 10).context == first.context, names
            if not same:
                store.abort_build(again.build.id, "somebody")

    @pytest.mark.parametrize("begun", [False, True], ids=["waits", "runs"])
    def test_joins_no_active_build_and_gets_a_job_with_a_key_of_its_own(
        self, store: Store, builder: WorkerByHand, begun: bool
    ) -> None:
        for at, names in enumerate(PAIRS):
            commit, (before, wanted) = f"{at:040x}", (CONTEXTS[name] for name in names)
            first = ask(store, commit, **before).build
            call = begin(store, builder) if begun else None
            second = ask(store, commit, **wanted)
            assert (second.how, second.build.id != first.id) == ("new", True), names
            keys = [store.get(build.job_id).job_key for build in (first, second.build)]
            assert keys == [f"demo:{commit}", f"demo:{commit}:{second.build.id}"]
            again = ask(store, commit, **before)
            assert (again.how, again.build.id) == ("joined", first.id), names
            assert state(store, first.id) is (BuildState.BUILDING if begun else BuildState.RECEIVED)
            assert state(store, second.build.id) is BuildState.RECEIVED
            for build in (first, second.build):
                store.abort_build(build.id, "somebody")
            if call is not None:
                builder.tell(call, Aborted("somebody"))

    @pytest.mark.parametrize("outcome", ["error", "aborted"])
    def test_gets_no_result_from_a_build_that_has_none(self, store: Store, builder: WorkerByHand, outcome: str) -> None:
        first = ask(store).build
        call = begin(store, builder)
        store.complete_build(call.id, call.attempt, [], [], outcome, ())
        builder.tell(call, Aborted("somebody")) if outcome == "aborted" else builder.fail(call, "exception")
        assert ask(store, **NEXT).how == "new"
        assert ask(store).build.id == first.id

    def test_that_insists_builds_in_its_own(self, store: Store, builder: WorkerByHand) -> None:
        first = self.finished(store, builder, ()).build
        again = ask(store, **PULLED, rebuild=True)
        assert (again.how, again.build.id != first.id) == ("new", True)
        assert store.build(first.id, 10).outcome == "success"

    def test_does_not_move_the_build_whose_result_it_gets(self, store: Store, builder: WorkerByHand) -> None:
        first = self.finished(store, builder, (), **NEXT, title="first", author="Ann").build
        store.agree_on_builds([first.job_id])
        before = store.build(first.id, 0)
        for wanted in (MAIN, TAGGED, PULLED):
            again = ask(store, **wanted, title="other", author="Ben")
            assert (again.how, structs.replace(again.build, refs=before.refs)) == ("reported", before)

    def test_may_run_at_the_same_time_and_end_in_any_order(self, store: Store, builder: WorkerByHand) -> None:
        one, two = ask(store).build, ask(store, **NEXT).build
        first, second = begin(store, builder), begin(store, builder)
        assert (first.id, second.id) == (one.job_id, two.job_id)
        for call, build, outcome in ((second, two, "failed"), (first, one, "success")):
            assert store.complete_build(call.id, call.attempt, [BuildStep(outcome, "SUCCESS")], [], outcome, ())
            assert state(store, build.id) is BuildState.BUILDING, "its job is not over"
            builder.succeed(call) if outcome == "success" else builder.fail(call, "failed")
            assert state(store, build.id) is BuildState.CACHED
        found = [(build.outcome, build.steps[0].name) for build in (store.build(one.id, 10), store.build(two.id, 10))]
        assert found == [("success", "success"), ("failed", "failed")]
        assert [build for build, _ in store.cached_builds(10)] == [one.id, two.id]

    def test_a_retry_takes_the_key_that_is_free(self, store: Store, builder: WorkerByHand) -> None:
        first = self.finished(store, builder, ("branch",)).build
        second = ask(store, **NEXT).build
        assert store.get(second.job_id).job_key == f"demo:{ONE}"
        again = store.retry_build(first.id, "somebody").build
        assert store.get(again.job_id).job_key == f"demo:{ONE}:{first.id}"
        assert (ask(store).build.job_id, ask(store, **NEXT).build.job_id) == (again.job_id, second.job_id)

    def test_after_a_retry_that_is_not_done_there_is_no_result_to_get(
        self, store: Store, builder: WorkerByHand
    ) -> None:
        first = self.finished(store, builder, ()).build
        store.retry_build(first.id, "somebody")
        assert ask(store, **NEXT).how == "new"

    def test_retries_and_requests_that_come_at_once_give_each_build_a_job(
        self, store: Store, builder: WorkerByHand
    ) -> None:
        first = self.finished(store, builder, ("branch",)).build
        others = [store.another() for _ in range(4)]

        def act(at: int) -> int:
            if at % 4:
                return ask(others[at % 4], branch=f"b{at % 8}").build.job_id
            with suppress(Conflict):
                return others[0].retry_build(first.id, "somebody").build.job_id
            return others[0].build(first.id, 1).job_id

        with ThreadPoolExecutor(4) as pool:
            jobs = set(pool.map(act, range(16)))
        for other in others:
            other.close()
        assert len(jobs) == 7
        assert len({store.get(job).job_key for job in jobs}) == 7


@pytest.mark.claim("B8")
class TestTheBuildsOfABranch:
    def of(self, store: Store, branch: str, limit: int = 10) -> list[int]:
        return [build.id for build in store.builds_of_branch("demo", branch, limit, 10)]

    def test_are_those_that_it_asked_for_the_last_first(self, store: Store, builder: WorkerByHand) -> None:
        one = ask(store).build.id
        call = begin(store, builder)
        store.complete_build(call.id, call.attempt, [], [], "success", ())
        builder.succeed(call)
        two = ask(store, TWO).build.id
        assert ask(store, **NEXT).build.id == one
        assert (self.of(store, "main"), self.of(store, "next")) == ([two, one], [one])
        assert ask(store).build.id == one, "the branch went back to the commit before"
        assert (self.of(store, "main"), self.of(store, "main", 1), self.of(store, "other")) == ([one, two], [one], [])
        assert store.builds_of_branch("another", "main", 10, 10) == []
        assert [build.id for build in store.builds(BuildFilter(branch="next"))] == [one]
        assert list(store.builds(BuildFilter(project="another", branch="next"))) == []

    def test_are_trusted(self, store: Store) -> None:
        strange, ours = ask(store, **STRANGE).build, ask(store, **PULLED).build
        assert (self.of(store, "main"), strange.id != ours.id) == ([ours.id], True)

    def test_that_are_forgotten_are_none(self, store: Store, builder: WorkerByHand) -> None:
        build = ask(store).build
        finish(store, builder)
        assert store.drop_build(build.id, build.job_id)
        assert self.of(store, "main") == []


class TestWhatAStrangerSays:
    """Of a commit that is in the repository too: a pull request of another repository may name it."""

    def test_changes_nothing_about_a_build_that_is_trusted(self, store: Store) -> None:
        before = ask(store, title="ours", author="Ann").build
        strange = {"branch": "evil", "ref": "refs/pull/5/head", "pull_request": 5, "title": "theirs", "author": "Eve"}
        theirs = ask(store, trusted=False, **strange).build
        assert (theirs.id != before.id, store.build(before.id, 10)) == (True, before)
        assert list(store.end_builds("demo", None, 5, "closed")) == [theirs.id]

    def test_is_none_of_the_trusted_build_of_the_commit(self, store: Store) -> None:
        theirs = ask(store, trusted=False, pull_request=5).build
        after = ask(store, branch=None, tag="v1", ref="refs/tags/v1").build
        assert (after.trusted, after.branch, after.tag, after.pull_request) == (True, None, "v1", None)
        assert store.build(theirs.id, 10) == theirs

    def test_is_not_found_where_only_trusted_builds_are_asked_for(self, store: Store) -> None:
        ask(store, trusted=False, pull_request=5)
        ours = ask(store, TWO).build
        found = store.builds(BuildFilter(project="demo", branch="main", trusted=True))
        assert [build.id for build in found] == [ours.id]


@pytest.mark.claim("B4")
class TestSuperseding:
    def test_a_new_commit_of_a_pull_request_ends_the_older_build(self, store: Store, builder: WorkerByHand) -> None:
        waiting, running, other = (
            ask(store, commit, pull_request=number).build for commit, number in ((ONE, 1), (TWO, 2), (THREE, 9))
        )
        store.abort_build(waiting.id, "somebody")
        call = begin(store, builder)
        newer = ask(store, "4" * 40, pull_request=2)
        assert newer.superseded == (running.id,)
        assert [(job, actor) for job, _, actor in store.aborts(builder.id)] == [(call.id, f"superseded by {'4' * 10}")]
        assert store.get(other.job_id).state == "initial"

    def test_a_branch_is_superseded_only_if_its_project_says_so(self, store: Store) -> None:
        older = ask(store).build
        assert ask(store, TWO).superseded == ()
        assert ask(store, THREE, supersedes=True).superseded == (older.id, older.id + 1)
        assert store.get(older.job_id).outcome == "aborted"

    def test_an_old_commit_that_is_asked_for_again_ends_no_newer_build(
        self, store: Store, builder: WorkerByHand
    ) -> None:
        ask(store, pull_request=1)
        finish(store, builder, "error")
        newer = ask(store, TWO, pull_request=1).build
        again = ask(store, pull_request=1)
        assert (again.how, again.superseded) == ("again", ())
        assert store.get(newer.job_id).state == "initial"

    def test_two_commits_that_come_at_once_leave_one_build(self, store: Store) -> None:
        """The one that is stored last has seen the other, also where both are stored at the same time."""
        others = [store.another() for _ in range(8)]
        with ThreadPoolExecutor(len(others)) as pool:
            asked = list(pool.map(lambda at: ask(others[at], f"{at:x}" * 40, pull_request=7), range(1, len(others))))
        for other in others:
            other.close()
        ended = [store.get(each.build.job_id).final for each in asked]
        assert sorted(ended) == [False] + [True] * (len(asked) - 1)

    def test_a_strangers_branch_of_the_same_name_is_another_one(self, store: Store) -> None:
        strange = ask(store, pull_request=1, trusted=False).build
        assert ask(store, TWO, supersedes=True).superseded == ()
        assert list(store.end_builds("demo", "main", None, "deleted")) == [strange.id + 1]
        assert store.get(strange.job_id).state == "initial"

    def test_one_that_ends_just_then_keeps_neither_the_push_nor_the_others_back(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one, two = ask(store).build, ask(store, TWO).build
        order, abort = list[int](), type(store).abort

        def ended(each: Store, job_id: int, *given: Any, **named: Any) -> Any:
            order.append(job_id)
            if job_id == one.job_id:
                raise IllegalMove("it is final")
            return abort(each, job_id, *given, **named)

        monkeypatch.setattr(type(store), "abort", ended)
        asked = ask(store, "3" * 40, supersedes=True)
        assert asked.superseded == (two.id,)
        assert store.get(asked.build.job_id).state == "initial"
        assert order == [one.job_id, two.job_id]  # as everybody locks jobs

    def test_what_a_closed_pull_request_or_a_deleted_branch_had_ends(self, store: Store) -> None:
        one, two = ask(store, pull_request=1, branch="x").build, ask(store, TWO, branch="y").build
        assert list(store.end_builds("demo", None, 1, "closed")) == [one.id]
        assert list(store.end_builds("other", "y", None, "deleted")) == []
        assert list(store.end_builds("demo", "y", None, "deleted")) == [two.id]
        assert store.get(one.job_id).outcome == store.get(two.job_id).outcome == "aborted"

    def test_what_another_branch_wants_too_goes_on_without_the_pull_request(self, store: Store) -> None:
        pulled = ask(store, pull_request=5, branch="fix").build
        pushed = ask(store, branch="main").build
        assert ask(store, TWO, pull_request=5, branch="fix").superseded == (pulled.id,)
        assert store.get(pushed.job_id).state == "initial"
        assert ask(store, THREE, branch="main", supersedes=True).superseded == (pushed.id,)

    def test_what_two_pull_requests_want_ends_with_the_second(self, store: Store) -> None:
        build = ask(store, pull_request=5, branch="fix").build
        for _ in range(2):
            ask(store, pull_request=6, branch="fix")
        assert ask(store, TWO, pull_request=6, branch="fix").superseded == ()
        assert store.get(build.job_id).state == "initial"
        assert ask(store, THREE, pull_request=5, branch="fix").superseded == (build.id,)

    def test_no_request_ends_a_build_of_its_own_commit(self, store: Store) -> None:
        older = [ask(store, branch="fix", supersedes=True, **more).build for more in ({}, {"pull_request": 5})]
        for more in ({}, {"pull_request": 5}, {"pull_request": 5, "trusted": False}):
            assert ask(store, branch="fix", supersedes=True, **more).superseded == ()
        assert ask(store, TWO, branch="fix", supersedes=True).superseded == tuple(build.id for build in older)

    @pytest.mark.parametrize("pull_request_first", [True, False])
    def test_a_push_and_a_pull_request_of_one_branch_end_each_for_itself(
        self, store: Store, pull_request_first: bool
    ) -> None:
        """A forge reports both with every push."""
        asked = [{"pull_request": 5}, {}] if pull_request_first else [{}, {"pull_request": 5}]
        builds = {len(more): ask(store, branch="fix", **more).build for more in asked}
        assert list(store.end_builds("demo", None, 5, "closed")) == [builds[1].id]
        assert store.get(builds[0].job_id).state == "initial"
        assert list(store.end_builds("demo", "fix", None, "deleted")) == [builds[0].id]

    def test_what_was_asked_for_with_a_tag_too_goes_on(self, store: Store) -> None:
        pulled = ask(store, pull_request=5, branch="fix").build
        tagged = ask(store, branch=None, tag="v1", ref="refs/tags/v1").build
        assert list(store.end_builds("demo", None, 5, "closed")) == [pulled.id]
        assert store.get(tagged.job_id).state == "initial"

    def test_a_deleted_tag_ends_the_build_of_the_tag_alone(self, store: Store) -> None:
        tagged, other, pushed = (
            ask(store, branch=None, tag="v1", ref="refs/tags/v1").build,
            ask(store, TWO, branch=None, tag="v2", ref="refs/tags/v2").build,
            ask(store, branch="v1", ref="refs/heads/v1").build,
        )
        assert list(store.end_builds("demo", None, None, "deleted", tag="v1")) == [tagged.id]
        assert [store.get(each.job_id).final for each in (tagged, other, pushed)] == [True, False, False]

    def test_who_had_it_built_before_does_not_count_when_it_is_built_anew(
        self, store: Store, builder: WorkerByHand
    ) -> None:
        build = ask(store, pull_request=5, branch="fix").build
        finish(store, builder, "error")
        assert ask(store, pull_request=6, branch="fix").how == "again"
        assert list(store.end_builds("demo", None, 5, "closed")) == []
        assert list(store.end_builds("demo", None, 6, "closed")) == [build.id]


@pytest.mark.claim("B4")
class TestRefs:
    """Every ref that asked for a build is a part of it."""

    def names(self, store: Store, build: int) -> list[str]:
        return [each.name for each in store.build(build, 10).refs]

    def test_of_requests_that_joined_are_kept(self, store: Store) -> None:
        pull = {"pull_request": 5, "branch": "fix", "ref": "refs/pull/5/head"}
        build = ask(store, **pull).build
        assert self.names(store, build.id) == ["#5 fix"]
        again = ask(store, pull_request=6, branch="fix", ref="refs/pull/6/head")
        assert (again.how, again.build.id) == ("joined", build.id)
        assert again.build.refs == (
            BuildRef("refs/pull/5/head", "fix", None, 5),
            BuildRef("refs/pull/6/head", "fix", None, 6),
        )
        ask(store, **pull)
        assert self.names(store, build.id) == ["#6 fix", "#5 fix"], "the last one last"

    def test_of_requests_that_got_its_result_are_kept(self, store: Store, builder: WorkerByHand) -> None:
        build = ask(store).build
        call = begin(store, builder)
        assert store.complete_build(call.id, call.attempt, [BuildStep("test", "SUCCESS")], [], condition_names=[])
        builder.succeed(call)
        for more in (
            {"branch": "topic", "ref": "refs/heads/topic"},
            {"branch": None, "tag": "v1", "ref": "refs/tags/v1"},
        ):
            assert ask(store, **more).how == "reported"
        (listed,) = store.builds(BuildFilter())
        assert [each.name for each in listed.refs] == self.names(store, build.id) == ["main", "topic", "v1"]

    def test_are_at_most_fifty(self, store: Store) -> None:
        for number in range(1, 53):
            build = ask(store, pull_request=number, branch="fix", ref=f"refs/pull/{number}/head").build
        assert self.names(store, build.id) == [f"#{number} fix" for number in range(3, 53)]

    def test_of_a_build_of_an_older_holdfast_are_its_own(self, store: Store, sql: RawSql) -> None:
        build = ask(store).build
        sql("delete from {build_ref}")
        assert self.names(store, build.id) == ["main"]


@pytest.mark.claim("B1")
class TestDeliveries:
    def test_a_delivery_counts_once(self, store: Store, builder: WorkerByHand) -> None:
        ask(store, delivery=delivery("d-1"))
        finish(store, builder, "error")
        with pytest.raises(Conflict, match=r"has come before.*`holdfast builds retry 1`"):
            ask(store, delivery=delivery("d-1"))
        assert state(store, 1) is BuildState.CACHED
        assert ask(store, delivery=delivery("d-1", forge="gitlab")).how == "again"

    def test_a_body_counts_once_for_each_project(self, store: Store) -> None:
        ask(store, delivery=delivery("d-1", body="1" * 64))
        for forge, identity in (("github", "d-2"), ("gitea", "d-1")):
            with pytest.raises(Conflict, match=r"has come before.*`holdfast builds retry 1`"):
                ask(store, delivery=delivery(identity, forge=forge, body="1" * 64))
        other = delivery("d-1", project="other", body="1" * 64)
        assert ask(store, project="other", delivery=other).how == "new"
        assert ask(store, delivery=delivery("d-2")).how == "joined", "a refused delivery is not stored"

    def test_a_body_that_comes_twice_at_once_counts_once(self, store: Store) -> None:
        others = [store.another() for _ in range(8)]

        def come(at: int) -> bool:
            try:
                ask(others[at], f"{at}" * 40, delivery=delivery(f"d-{at}", body="1" * 64))
            except Conflict:
                return False
            return True

        with ThreadPoolExecutor(len(others)) as pool:
            counted = list(pool.map(come, range(len(others))))
        for other in others:
            other.close()
        assert sum(counted) == 1

    def test_a_delivery_that_could_not_be_taken_may_come_again(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(*_: Any) -> Any:
            raise NotFound("nothing is there")

        sent = delivery("d-1", body="1" * 64, labels=PullRequestLabels(5, ("rebuild",)))
        new = NewBuild(project="demo", commit=ONE, ref="refs/pull/5/head", pull_request=5, delivery=sent)
        with monkeypatch.context() as patched:
            patched.setattr(store, "insert", broken)
            with pytest.raises(NotFound):
                store.receive_labelled_build(new, "rebuild")
        received = store.receive_labelled_build(new, "rebuild")
        assert received is not None
        assert received.how == "new"

    def test_a_delivery_that_ends_builds_counts_with_what_it_ends_or_not_at_all(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def killed(*_: Any) -> Any:
            raise KeyboardInterrupt

        build = ask(store, pull_request=1).build
        with monkeypatch.context() as patched:
            patched.setattr(store, "abort", killed)
            with pytest.raises(KeyboardInterrupt):
                store.end_builds("demo", None, 1, "closed", delivery("d-9"))
        assert store.end_builds("demo", None, 1, "closed", delivery("d-9")) == (build.id,)
        with pytest.raises(Conflict, match="has come before"):
            store.end_builds("demo", None, 1, "closed", delivery("d-9"))

    def test_deliveries_and_bodies_are_forgotten_after_ninety_days_some_at_a_time(
        self, store: Store, clock: MovableClock, sql: RawSql
    ) -> None:
        def left() -> list[int]:
            return [len(sql(f"select * from {{{table}}}")) for table in ("delivery", "hook_body")]

        for number in range(3):
            store.take_delivery(delivery(f"d-{number}", body=str(number) * 64))
        clock.advance(90 * 86400)
        store.forget_deliveries()
        assert left() == [3, 3]
        with pytest.raises(Conflict):
            store.take_delivery(delivery("d-1", body="3" * 64))
        clock.advance(1)
        store.take_delivery(delivery("d-1", body="1" * 64))
        store.forget_deliveries(limit=1)
        assert left() == [2, 2]
        store.forget_deliveries()
        assert left() == [1, 1]


@pytest.mark.claim("B1")
class TestLabels:
    """Of a pull request whose forge says all of them."""

    def come(self, store: Store, number: int, *labels: str, commit: str = ONE) -> Received | None:
        sent = delivery(f"d-{number}", labels=PullRequestLabels(5, labels))
        new = NewBuild(project="demo", commit=commit, ref="refs/pull/5/head", pull_request=5, delivery=sent)
        return store.receive_labelled_build(new, "rebuild")

    def test_ask_for_a_build_when_they_are_new(self, store: Store) -> None:
        assert self.come(store, 1, "rebuild") is not None
        assert self.come(store, 2, "rebuild", "wip", commit=TWO) is None
        store.take_delivery(delivery("d-3", labels=PullRequestLabels(5, ("wip",))))
        assert self.come(store, 4, "rebuild", "wip", commit=TWO) is not None

    def test_of_another_pull_request_or_project_are_others(self, store: Store) -> None:
        for project, number in (("demo", 6), ("other", 5)):
            labels = PullRequestLabels(number, ("rebuild",))
            store.take_delivery(delivery("d-1", project=project, labels=labels))
        assert self.come(store, 2, "rebuild") is not None

    def test_that_two_deliveries_bring_at_once_count_once(self, store: Store) -> None:
        others = [store.another() for _ in range(8)]
        with ThreadPoolExecutor(len(others)) as pool:
            found = list(pool.map(lambda at: self.come(others[at], at, "rebuild", commit=f"{at}" * 40), range(8)))
        for other in others:
            other.close()
        assert sum(each is not None for each in found) == 1


@pytest.mark.claim("B2", "B3")
class TestWhatABuilderWrote:
    """`completed` is written before the commit that ends the job, which may then end otherwise."""

    def wrote(self, store: Store, builder: WorkerByHand, outcome: str) -> Any:
        ask(store)
        call = begin(store, builder)
        assert store.complete_build(call.id, call.attempt, None, [], found=outcome)
        return call

    def test_counts_at_once_where_the_job_ends_so(self, store: Store, builder: WorkerByHand) -> None:
        call = self.wrote(store, builder, "success")
        builder.succeed(call)
        assert state(store, 1) is BuildState.CACHED
        assert [(ended.completed, ended.outcome) for ended in store.ended_builds()] == [(True, "success")]
        store.agree_on_builds([call.id])
        assert list(store.ended_builds()) == []
        assert state(store, 1) is BuildState.CACHED

    def test_does_not_count_where_the_job_ends_otherwise_until_it_is_put_right(
        self, store: Store, builder: WorkerByHand
    ) -> None:
        call = self.wrote(store, builder, "success")
        builder.tell(call, Aborted("somebody"))
        assert state(store, 1) is BuildState.BUILDING
        assert store.build(1, 10).outcome is None
        with pytest.raises(Conflict, match="Building"):
            store.retry_build(1, "somebody")
        assert store.complete_build(call.id, 0, None, [])
        assert state(store, 1) is BuildState.CACHED
        assert store.build(1, 10).outcome == "aborted"
        assert not store.complete_build(call.id, 0, None, []), "it was put right already"


@pytest.mark.claim("B3", "J10")
class TestAbortAndRetry:
    def test_a_build_that_waits_ends_and_its_state_follows_its_files(self, store: Store) -> None:
        build = ask(store).build
        assert store.abort_build(build.id, "somebody").outcome == "aborted"
        assert state(store, build.id) is BuildState.RECEIVED, "nobody has written its files"
        assert [(each.id, each.begun, each.outcome) for each in store.ended_builds()] == [(build.id, False, "aborted")]
        assert store.complete_build(build.job_id, 0, None, [])
        assert state(store, build.id) is BuildState.CACHED
        assert store.ended_builds() == []

    def test_what_is_over_cannot_be_aborted(self, store: Store, builder: WorkerByHand) -> None:
        build = ask(store).build.id
        finish(store, builder)
        with pytest.raises(Conflict, match="cannot be aborted"):
            store.abort_build(build, "somebody")

    def test_a_retry_is_a_new_job(self, store: Store, builder: WorkerByHand) -> None:
        build = ask(store).build
        finish(store, builder)
        again = store.retry_build(build.id, "somebody")
        assert (again.left, again.build.build_state) == (build.job_id, BuildState.RECEIVED)
        assert again.build.job_id > build.job_id

    def test_a_retry_while_it_waits_or_runs_is_refused(self, store: Store, builder: WorkerByHand) -> None:
        build = ask(store).build
        for told in ("Freshly received", "Building"):
            with pytest.raises(Conflict, match=told):
                store.retry_build(build.id, "somebody")
            if told == "Freshly received":
                begin(store, builder)
        assert store.build(build.id, 1).job_id == build.job_id

    def test_there_is_no_such_build(self, store: Store) -> None:
        for missing in (0, 5, -1, 2**70):
            with pytest.raises(NotFound, match=f"build {missing}"):
                store.build(missing, 1)
        with pytest.raises(NotFound):
            store.retry_build(5, "somebody")


@pytest.mark.claim("B3", "J5")
def test_a_builder_that_was_lost_speaks_for_nothing(store: Store, builder: WorkerByHand) -> None:
    build = ask(store).build
    old = begin(store, builder)
    builder.die()
    other = WorkerByHand(store, ("build",), ("builds",))
    assert state(store, build.id) is BuildState.BUILDING, "what it generated is still there"
    assert not store.begin_build(old.id, old.attempt)
    new = other.claim_one("builds")
    assert not store.tell_steps(old.id, old.attempt, [BuildStep("test", "SUCCESS")], [])
    assert not store.complete_build(old.id, old.attempt, [], [])
    assert store.tell_steps(new.id, new.attempt, [BuildStep("test", "START")], [])
    assert [step.state for step in store.build(build.id, 1).steps] == ["START"]


@pytest.mark.claim("B5")
def test_a_sweep_is_told_which_jobs_of_builds_are_over_and_current(store: Store, builder: WorkerByHand) -> None:
    first = ask(store).build
    finish(store, builder, "error")
    second = ask(store).build
    assert store.build_jobs([first.job_id, second.job_id, 999]) == {
        first.job_id: (True, False),
        second.job_id: (False, True),
    }


def test_builds_are_listed_newest_first_by_page_and_filter(store: Store, builder: WorkerByHand) -> None:
    for index in range(5):
        ask(store, str(index) * 40, project="demo" if index % 2 else "other", branch="x" if index == 3 else "main")
    finish(store, builder)

    def listed(**wanted: Any) -> list[int]:
        return [build.id for build in store.builds(BuildFilter(**wanted))]

    assert listed() == [5, 4, 3, 2, 1]
    assert listed(limit=2) == [5, 4]
    assert listed(before=4, limit=2) == [3, 2]
    assert listed(project="demo") == [4, 2]
    assert listed(branch="x") == [4]
    assert listed(commit="0" * 40) == [1]
    assert listed(state="Completed-Cached") == [1]
    assert listed(state="Freshly received", limit=1) == [5]


def test_an_archived_job_still_tells_of_its_build(store: Store, builder: WorkerByHand, clock: MovableClock) -> None:
    build = ask(store).build.id
    finish(store, builder)
    clock.advance(100)
    store.archive(50)
    assert store.get(store.build(build, 1).job_id).archived
    assert (state(store, build), store.build(build, 1).outcome) == (BuildState.CACHED, "success")


@pytest.mark.claim("E4")
def test_the_current_job_of_a_build_is_kept_as_long_as_the_build(
    store: Store, builder: WorkerByHand, clock: MovableClock
) -> None:
    build = ask(store).build.id
    before = finish(store, builder, "error")
    clock.advance(70 * 86400)
    ask(store)
    last = finish(store, builder, "failed")
    clock.advance(100 * 86400)

    def let_go() -> None:
        while store.archive(0) + store.forget(86400):
            pass

    let_go()
    with pytest.raises(NotFound):
        store.get(before.id)
    assert [(each.id, each.outcome) for each in store.builds(BuildFilter())] == [(build, "failed")]
    assert ask(store).how == "reported"
    assert store.drop_build(build, last.id)
    let_go()
    with pytest.raises(NotFound):
        store.get(last.id)


@pytest.mark.claim("E4")
def test_a_build_that_is_kept_keeps_no_other_job_of_its_month(
    store: Store, builder: WorkerByHand, clock: MovableClock, sql: RawSql
) -> None:
    build, plain = ask(store).build.id, WorkerByHand(store)
    job = finish(store, builder, "failed")
    others = [add(store, retries=0).id for _ in range(5)]
    for call in plain.claim(5):
        plain.fail(call)
    clock.advance(100 * 86400)

    def let_go() -> int:
        count = 0
        while lot := store.archive(0) or store.forget(86400, limit=2):
            count += lot
        return count

    assert let_go() == 6 + 5
    for each in others:
        with pytest.raises(NotFound):
            store.get(each)
    assert (store.get(job.id).archived, store.build(build, 1).outcome) == (True, "failed")
    assert sql.value("select count(*) from {archive}") == 1
    assert {row["job"] for row in sql("select job from {attempt}")} == {job.id}
    assert let_go() == 0

    if sql.postgres:
        (row,) = sql("select tableoid::regclass::text as month from {archive}")
        assert row["month"].strip('"') == f"{sql.instance}__archive_{store.get(job.id).end_time:%Y_%m}"
        with pytest.raises(Exception, match="archived job never changes"):
            sql("update {archive} set priority = 1")
    assert store.drop_build(build, job.id)
    let_go()
    with pytest.raises(NotFound):
        store.get(job.id)


@pytest.mark.claim("E4")
class TestArchive:
    def archived(self, store: Store, *jobs: int) -> list[bool]:
        while store.archive(50):
            pass
        return [store.get(job).archived for job in jobs]

    def test_the_jobs_of_a_build_go_together(self, store: Store, builder: WorkerByHand, clock: MovableClock) -> None:
        build = ask(store).build
        finish(store, builder, "error")
        clock.advance(40 * 86400)
        again = ask(store).build
        assert self.archived(store, build.job_id, again.job_id) == [False, False], "it is built again"
        finish(store, builder)
        assert self.archived(store, build.job_id, again.job_id) == [False, False], "it has just ended"
        clock.advance(100)
        assert self.archived(store, build.job_id, again.job_id) == [True, True]
        assert store.build(build.id, 1).outcome == "success"

    def test_the_jobs_of_a_build_that_is_forgotten_go_too(
        self, store: Store, builder: WorkerByHand, clock: MovableClock
    ) -> None:
        build = ask(store).build
        finish(store, builder, "error")
        again = ask(store).build
        finish(store, builder)
        clock.advance(40)
        assert store.drop_build(build.id, again.job_id)
        clock.advance(40)
        assert self.archived(store, build.job_id, again.job_id) == [True, True]


def test_builds_that_nobody_looks_into_are_forgotten(store: Store, builder: WorkerByHand, clock: MovableClock) -> None:
    old, used = ask(store).build, ask(store, TWO).build
    for _ in range(2):
        finish(store, builder)
    clock.advance(100)
    store.use_build(old.id)
    store.use_build(used.id)
    clock.advance(50)
    store.use_build(used.id)
    assert store.old_builds(40) == [(old.id, old.job_id)]
    assert store.drop_build(old.id, old.job_id)
    assert not store.drop_build(old.id, old.job_id)
    assert [build.id for build in store.builds(BuildFilter())] == [used.id]


@pytest.mark.claim("B8")
class TestTelling:
    def told(self, store: Store, build: int) -> list[tuple[str | None, str]]:
        found = []
        while (status := store.next_status(build)) is not None:
            found.append((status.step, status.state))
            store.drop_status(status.id)
        return found

    def test_everything_is_told_in_order_by_one_job(self, store: Store, builder: WorkerByHand) -> None:
        build = ask(store, tells=True).build.id
        call = begin(store, builder)
        store.tell_steps(call.id, call.attempt, [], [Telling("pending", "…", "test")])
        store.complete_build(call.id, call.attempt, [], [Telling("success", "…", "test"), Telling("success", "…")])
        assert self.told(store, build) == [
            (None, "pending"),
            (None, "pending"),
            ("test", "pending"),
            ("test", "success"),
            (None, "success"),
        ]
        assert len(builder.claim(5, "build_statuses")) == 1

    def test_a_result_is_told_again_with_its_steps(self, store: Store, builder: WorkerByHand) -> None:
        build = ask(store, tells=True).build.id
        finish(store, builder)
        self.told(store, build)
        ask(store, tells=True)
        assert self.told(store, build) == [("test", "success"), (None, "success")]

    def test_nothing_is_written_where_nobody_is_told(self, store: Store, builder: WorkerByHand) -> None:
        build = ask(store).build.id
        finish(store, builder)
        assert self.told(store, build) == []

    def test_what_no_job_is_about_to_tell_is_found(
        self, store: Store, builder: WorkerByHand, clock: MovableClock
    ) -> None:
        ask(store, tells=True)
        assert store.tell_untold() == 0, "its job is there"
        builder.succeed(builder.claim_one("build_statuses"))
        assert store.tell_untold() == 1
        assert len(builder.claim(5, "build_statuses")) == 1
        clock.advance(timedelta(days=2).total_seconds())
        ask(store, TWO, tells=True)
        assert store.next_status(1) is not None
