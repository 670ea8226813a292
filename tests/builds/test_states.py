"""The seed's two tables, cell by cell and event by event: in the database, in the folder, in ACTIVE and in CACHED."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from holdfast import App, Conflict, Invalid, NotFound
from holdfast.builds.build import MOVES, STANDINGS, BuildState, Happening
from holdfast.builds.forges import Wanted
from holdfast.builds.project import BuildSettings
from holdfast.projects import Projects
from holdfast.worker import builder
from tests.builds.making import Repository
from tests.builds.yard import FAILING, QUICK, Yard, until

Yards = Callable[..., Yard]


@pytest.mark.claim("B2")
def test_the_table_is_the_seeds() -> None:
    whole = ("generated", "completed", "log")
    assert {
        state.value: (standing.exists, standing.absent, standing.active, standing.cached)
        for state, standing in STANDINGS.items()
    } == {
        "Freshly received": ((), ("",), True, False),
        "Building": (("generated",), (), True, False),
        "Completed-Cached": (whole, (), False, True),
        "Completed": (whole, (), False, False),
    }
    assert {(before and before.value, event.value): after.value for (before, event), after in MOVES.items()} == {
        (None, "webhook"): "Freshly received",
        ("Freshly received", "builder available"): "Building",
        ("Freshly received", "abort"): "Completed-Cached",
        ("Building", "finish"): "Completed-Cached",
        ("Building", "failure"): "Completed-Cached",
        ("Building", "abort"): "Completed-Cached",
        ("Completed-Cached", "cache full"): "Completed",
        ("Completed", "use"): "Completed-Cached",
        ("Completed-Cached", "retry"): "Freshly received",
        ("Completed", "retry"): "Freshly received",
    }


@pytest.mark.claim("B2", "B3")
class TestEvents:
    """One for each row of the seed's table of transitions."""

    def test_webhook(self, yard: Yards, repository: Repository) -> None:
        here = yard()
        build = here.ask(repository.commit(QUICK)).build.id
        here.stands(build, MOVES[None, Happening.WEBHOOK])
        assert here.app.get(here.projects.look(build).job_id).queue == "builds"

    def test_builder_available(self, yard: Yards) -> None:
        here = yard()
        build = here.ask(here.gated()).build.id
        with here.app.worker(concurrency=2):
            until(lambda: "first line" in here.log(build))
            here.stands(build, MOVES[BuildState.RECEIVED, Happening.BUILDER_AVAILABLE])
            assert not (here.folder(build) / "completed").exists()
            here.open()
            until(lambda: not here.projects.look(build).active)

    @pytest.mark.parametrize(
        ("build_file", "outcome", "event"),
        [(QUICK, "success", Happening.FINISH), (FAILING, "failed", Happening.FAILURE)],
    )
    def test_finish_and_failure(
        self, yard: Yards, repository: Repository, build_file: str, outcome: str, event: Happening
    ) -> None:
        here = yard()
        build = here.build(repository.commit(build_file))
        here.stands(build.id, MOVES[BuildState.BUILDING, event])
        assert build.outcome == outcome

    def test_abort_of_one_that_waits(self, yard: Yards, repository: Repository) -> None:
        here = yard()
        build = here.ask(repository.commit(QUICK)).build
        here.projects.abort(build.id, actor="ada")
        here.stands(build.id, MOVES[BuildState.RECEIVED, Happening.ABORT])
        assert "before a builder began" in here.log(build)
        assert here.projects.look(build.id).outcome == "aborted"
        assert here.app.run_until_idle() == 0, "no builder is started for it"

    def test_abort_of_one_that_runs(self, yard: Yards) -> None:
        here = yard()
        build = here.ask(here.gated()).build.id
        with here.app.worker(concurrency=2):
            until(lambda: "first line" in here.log(build))
            here.projects.abort(build, actor="ada")
            until(lambda: not here.projects.look(build).active)
        here.stands(build, MOVES[BuildState.BUILDING, Happening.ABORT])
        assert here.projects.look(build).outcome == "aborted"
        assert "last line" not in here.log(build)

    def test_cache_full_and_use(self, yard: Yards, repository: Repository) -> None:
        here = yard(cache=2)
        one, two, three = (here.build(repository.commit(QUICK)).id for _ in range(3))
        for build in (two, three):
            here.stands(build, BuildState.CACHED)
        here.stands(one, MOVES[BuildState.CACHED, Happening.CACHE_FULL])
        here.projects.use(one)
        here.stands(one, MOVES[BuildState.COMPLETED, Happening.USE])
        here.stands(two, BuildState.COMPLETED)
        here.stands(three, BuildState.CACHED)

    @pytest.mark.parametrize("cache", [0, 5])
    def test_retry(self, yard: Yards, repository: Repository, cache: int) -> None:
        here = yard(cache=cache)
        build = here.build(repository.commit(QUICK))
        before = here.folder(build)
        here.stands(build.id, BuildState.CACHED if cache else BuildState.COMPLETED)
        again = here.projects.retry(build.id)
        assert not before.exists()
        assert again.job_id > build.job_id
        here.stands(build.id, MOVES[build.build_state, Happening.RETRY])
        here.app.run_until_idle()
        here.stands(build.id, BuildState.CACHED if cache else BuildState.COMPLETED)

    def test_retry_while_it_waits_or_runs_is_refused(self, yard: Yards) -> None:
        here = yard()
        build = here.ask(here.gated()).build
        with pytest.raises(Conflict, match="Freshly received"):
            here.projects.retry(build.id)
        with here.app.worker(concurrency=2):
            until(lambda: here.projects.look(build.id).build_state is BuildState.BUILDING)
            with pytest.raises(Conflict, match="Building"):
                here.projects.retry(build.id)
            here.stands(build.id, BuildState.BUILDING)
            here.open()
            until(lambda: not here.projects.look(build.id).active)
        assert here.projects.look(build.id).job_id == build.job_id

    def test_listing_is_not_use(self, yard: Yards, repository: Repository) -> None:
        here = yard(cache=1)
        one, two = (here.build(repository.commit(QUICK)).id for _ in range(2))
        here.projects.builds()
        here.stands(one, BuildState.COMPLETED)
        here.stands(two, BuildState.CACHED)


@pytest.mark.claim("B2")
def test_every_process_and_a_restart_agree_about_the_cache(yard: Yards, repository: Repository) -> None:
    here, there = yard(cache=1), yard(cache=1)
    one, two = (here.build(repository.commit(QUICK)).id for _ in range(2))
    there.projects.use(one)
    for process in (here, there, yard(cache=1)):
        process.stands(one, BuildState.CACHED)
        process.stands(two, BuildState.COMPLETED)


@pytest.mark.claim("B3")
def test_an_end_without_a_builder_counts_when_its_files_are_there(yard: Yards, repository: Repository) -> None:
    here = yard()
    build = here.ask(repository.commit(QUICK)).build
    here.app.abort(build.job_id)  # past the build: nobody writes files
    here.stands(build.id, BuildState.RECEIVED)
    here.projects.sweep(here.app.store)
    here.stands(build.id, BuildState.CACHED)
    assert "aborted" in here.log(build)


@pytest.mark.claim("B2", "B3")
def test_completed_says_what_the_job_says_also_where_the_job_ends_otherwise(
    yard: Yards, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = yard()
    build = here.ask(repository.commit(QUICK)).build

    def broken(*_: object) -> dict[str, object]:
        raise RuntimeError("after `completed` and before the commit that ends the job")

    monkeypatch.setattr(builder, "conclude", broken)
    here.app.run_until_idle()
    here.projects.sweep(here.app.store)
    here.stands(build.id, BuildState.CACHED)
    found = here.projects.look(build.id)
    result = here.projects.result(found)
    assert result is not None
    assert (found.outcome, result.outcome, result.steps) == ("error", "error", {"test": "SUCCESS"})
    assert "Its builder wrote `success`, but its job ended `error`" in here.log(build)
    assert list(here.app.store.ended_builds()) == []


@pytest.mark.claim("B2")
def test_what_is_completed_is_nowhere_in_memory(yard: Yards, repository: Repository) -> None:
    here, there = yard(cache=1), yard(cache=1)
    one = here.build(repository.commit(QUICK)).id
    here.stands(one, BuildState.CACHED)
    there.build(repository.commit(QUICK))
    here.stands(one, BuildState.COMPLETED)
    assert one not in here.projects.cached


@pytest.mark.claim("B5")
class TestTheFolderOfAnotherInstance:
    """Their builds have the same numbers: each would purge what the other keeps."""

    @pytest.fixture
    def other(self, yard: Yards, repository: Repository) -> Yard:
        here = yard()
        here.stands(here.build(repository.commit(QUICK)).id, BuildState.CACHED)
        stranger = App("sqlite://:memory:", name="another")
        return Yard(stranger, here.root, repository)

    def test_is_refused_and_left_alone(self, yard: Yards, other: Yard) -> None:
        here = yard()
        (half := here.projects.path(777)).mkdir()
        with pytest.raises(
            Conflict, match=r"holds the builds of another instance .* Give this one a folder of its own"
        ):
            other.projects.sweep(other.app.store, everything=True)
        assert half.exists()
        assert here.folder(1).exists()

    def test_is_not_built_in(self, other: Yard, repository: Repository) -> None:
        build = other.ask(repository.commit(QUICK)).build
        before = sorted(path.name for path in other.projects.folder.iterdir())
        with pytest.raises(Conflict, match="another instance"):
            other.app.run_until_idle()
        other.app.chores.clear()
        other.app.run_until_idle()
        assert "another instance" in str(other.app.get(build.job_id).error)
        assert sorted(path.name for path in other.projects.folder.iterdir()) == before

    def test_is_neither_read_nor_written_by_who_only_looks(
        self, yard: Yards, repository: Repository, tmp_path: Path
    ) -> None:
        here = yard()
        build = here.ask(repository.commit(QUICK)).build
        elsewhere = Projects(here.app, here.projects.settings, tmp_path / "elsewhere", {}, declares=False)
        assert elsewhere.abort(build.id).build_state is BuildState.RECEIVED, "who has the folder writes the files"
        assert not elsewhere.folder.exists()
        with pytest.raises(NotFound, match="is not the folder of this instance's builds"):
            elsewhere.log_path(build)
        here.projects.sweep(here.app.store)
        here.stands(build.id, BuildState.CACHED)
        assert elsewhere.result(here.projects.look(build.id)) is None


def test_a_job_of_a_build_that_was_made_by_hand_builds_nothing(yard: Yards, repository: Repository) -> None:
    here = yard()
    build = here.build(repository.commit(QUICK))
    payload = {"build": build.id, "project": "demo", "commit": build.commit}
    job = here.app.enqueue("builds", "build", payload)
    here.app.run_until_idle()
    assert "holdfast builds retry" in str(job.refresh().error)
    assert not here.projects.path(job.id).exists()
    here.stands(build.id, BuildState.CACHED)


@pytest.mark.claim("B5")
class TestAfterACrash:
    def test_the_queue_is_still_there(self, yard: Yards, repository: Repository) -> None:
        build = yard().ask(repository.commit(QUICK)).build.id
        again = yard()
        again.stands(build, BuildState.RECEIVED)
        again.app.run_until_idle()
        again.stands(build, BuildState.CACHED)

    @pytest.mark.broken_on_purpose
    def test_folders_without_completed_and_without_an_active_job_are_purged(
        self, yard: Yards, repository: Repository
    ) -> None:
        here = yard()
        done = here.build(repository.commit(QUICK))
        waiting = here.ask(repository.commit(QUICK)).build
        left, active, foreign = (here.projects.path(job) for job in (777, waiting.job_id, 888))
        for folder in (left, active, foreign):
            (folder / "generated").mkdir(parents=True)
        (foreign / "completed").write_text("{}")
        (here.projects.folder / "notes.txt").write_text("a person's")
        yard().projects.sweep(here.app.store)
        assert not left.exists()
        assert active.exists(), "its job is active"
        assert foreign.exists(), "it is complete, and nobody knows whose it is"
        assert (here.projects.folder / "notes.txt").exists()
        assert here.folder(done).exists()

    def test_the_folder_of_a_job_before_a_retry_is_purged_if_the_retry_could_not(
        self, yard: Yards, repository: Repository
    ) -> None:
        here = yard()
        build = here.build(repository.commit(QUICK))
        before = here.folder(build)
        here.app.store.retry_build(build.id, "somebody who was killed then")
        assert before.exists()
        here.projects.sweep(here.app.store, everything=True)
        assert not before.exists()

    def test_a_retry_takes_the_timeout_that_the_project_has_by_now(self, yard: Yards, repository: Repository) -> None:
        build = yard(timeout=100.0).build(repository.commit(QUICK))
        here = yard(timeout=250.0)
        again = here.projects.retry(build.id)
        assert here.app.get(again.job_id).timeout == 250
        here.app.run_until_idle()
        elsewhere = Projects(here.app, BuildSettings(), here.projects.folder, {}, declares=False)
        assert here.app.get(elsewhere.retry(build.id).job_id).timeout == 250, "nobody knows the project there"

    def test_a_build_that_was_interrupted_runs_again_from_scratch(self, yard: Yards, repository: Repository) -> None:
        here = yard()
        build = here.ask(repository.commit(QUICK)).build
        folder = here.folder(build)
        (folder / "generated").mkdir(parents=True)
        (folder / "generated" / "half").write_text("left by a builder that was killed")
        (folder / "log").write_text("left too")
        here.app.run_until_idle()
        here.stands(build.id, BuildState.CACHED)
        assert "left too" not in here.log(build)
        assert list((folder / "generated").iterdir()) == []


@pytest.mark.claim("J11")
def test_the_job_of_a_build_is_retried_through_its_build(yard: Yards, repository: Repository) -> None:
    here = yard()
    build = here.build(repository.commit(QUICK))
    with pytest.raises(Conflict, match=f"holdfast builds retry {build.id}"):
        here.app.retry(build.job_id)


def test_builds_that_nobody_looks_into_are_removed_with_their_folders(
    yard: Yards, repository: Repository, clock: object
) -> None:
    here = yard()
    build = here.build(repository.commit(QUICK))
    here.projects.settings = type(here.projects.settings)(projects=here.projects.settings.projects, keep=3600.0)
    here.projects.sweep(here.app.store, everything=True)
    assert here.folder(build).exists()
    clock.advance(4000)  # type: ignore[attr-defined]
    folder = here.folder(build)
    here.projects.sweep(here.app.store, everything=True)
    assert not folder.exists()
    assert here.projects.builds() == []


@pytest.mark.parametrize("actor", ["a\0da", "a\ud800da"])
def test_whoever_acts_is_a_text_that_every_database_takes(yard: Yards, repository: Repository, actor: str) -> None:
    here = yard()
    commit = repository.commit(QUICK)
    build = here.ask(commit).build
    ask = partial(here.projects.ask, here.demo, Wanted(commit=commit, ref="refs/heads/main"))
    for act in (partial(here.projects.abort, build.id), partial(here.projects.retry, build.id), ask):
        with pytest.raises(Invalid, match=r"actor=.*without NUL"):
            act(actor=actor)
    here.stands(build.id, BuildState.RECEIVED)
