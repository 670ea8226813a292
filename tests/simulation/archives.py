"""The archive in stories: jobs and runs leave while the rest goes on, by themselves or because somebody wants it.

What has left is whole, done, and never changes again (E4, F18). The jobs of a run leave behind it and never before it, and
none is left behind; those of a deleted run go for ever. A trigger is used once, wherever its run is (F14).
"""

from contextlib import suppress
from typing import Any

from holdfast.errors import Conflict
from holdfast.stores.contract import Submission
from holdfast.workflows.definition import Definition
from tests.invariants import Invariants, Row
from tests.run_invariants import check_runs
from tests.simulation.scene import Broken, Killed, Scene, unchanged
from tests.simulation.stages import Stage

YOUNG = 20  # seconds after which some of it leaves
FEW = 4  # jobs or runs at a time, so that some are left for the next time
DAY = 86400.0
MUCH_LATER = 70 * DAY  # months go as a whole
LATER = 2 * DAY  # seconds: everything that has ended is old by then, also if the clock was set back
DONE = ("SUCCESS", "FAILED", "ERROR")
ACTS = ("archive_jobs", "archive_runs", "follow_runs", "archive_run", "delete_run")


class Archives(Scene):
    """Adds what leaves."""

    def __init__(self, seed: int, stage: Stage) -> None:
        super().__init__(seed, stage)
        self.triggers: dict[str, tuple[Definition, int]] = {}  # of runs that were accepted
        self.deleted: set[int] = set()  # or perhaps, if that was disturbed
        self.left: dict[int, Row] = {}  # runs and steps in the archive, as they were first seen there
        self.left_steps: dict[tuple[int, str], Row] = {}

    def submitted(self, wanted: Submission) -> None:
        run = self.store.submit(wanted).id
        self.runs.append(run)
        self.triggers[wanted.trigger] = wanted.definition, run

    def submit_again(self, a: float, b: float) -> None:
        """With a trigger that was used: it is that run, or nothing if it is gone."""
        if self.triggers:
            trigger = list(self.triggers)[int(a * len(self.triggers))]
            definition, run = self.triggers[trigger]
            try:
                found = self.store.submit(Submission(definition=definition, trigger=trigger)).id
            except Conflict as error:
                if run not in self.deleted:
                    raise Broken(f"F14: trigger {trigger} has run {run}, and is refused: {error}") from error
                return
            if found != run:
                raise Broken(f"F14: trigger {trigger} made run {run}, and then {found}")

    def archive(self, a: float, b: float) -> None:
        self.store.archive(60)

    def archive_jobs(self, a: float, b: float) -> None:
        self.store.archive(b * YOUNG, 1 + int(a * FEW))

    def archive_runs(self, a: float, b: float) -> None:
        self.store.archive_runs(b * YOUNG, 1 + int(a * FEW))

    def follow_runs(self, a: float, b: float) -> None:
        self.store.follow_runs(1 + int(a * FEW))

    def archive_run(self, a: float, b: float) -> None:
        self.at_a_run(a, DONE[int(b * len(DONE))], lambda run: self.store.archive_run(run, "ann"))

    def delete_run(self, a: float, b: float) -> None:
        def delete(run: int) -> None:
            self.deleted.add(run)
            self.store.delete_run(run, "ann")

        gone = [run for run in self.left if run not in self.deleted]
        if gone and b < 0.5:
            self.attempt_to(lambda: delete(gone[int(a * len(gone))]))
        else:
            self.at_a_run(a, DONE[int(b * len(DONE))], delete)
        self.deleted = {run for run in self.deleted if run not in self._there()}

    def _there(self) -> set[int]:
        return {row["id"] for row in self.sql("select id from {run} union select id from {run_archive}")}

    def archive_inside(self, a: float, b: float) -> None:
        self.struck(ACTS, a, b)

    # What must hold

    def undeleted(self, finals: dict[int, Row], invariants: Invariants) -> dict[int, Row]:
        """Without jobs that have gone with their run."""
        gone, there = self.deleted - self._there(), invariants.finals
        return {job_id: row for job_id, row in finals.items() if row["run"] not in gone or job_id in there}

    def check_archive(self, invariants: Invariants) -> None:
        runs = {row["id"]: row for row in self.sql("select * from {run_archive}")}
        steps = {(row["run"], row["name"]): row for row in self.sql("select * from {step_archive}")}
        live = {row["id"] for row in invariants.runs}
        for run in self.runs:
            if (run in live) + (run in runs) != 1 and run not in self.deleted:
                raise Broken(f"I1: run {run} was accepted and is {'live and archived' if run in live else 'gone'}")
        unchanged("F18: run", {run: row for run, row in self.left.items() if run not in self.deleted}, runs)
        kept = {name: row for name, row in self.left_steps.items() if name[0] not in self.deleted}
        unchanged("F18: step", kept, steps)
        self.left, self.left_steps = runs, steps
        everything = [*invariants.jobs.values(), *invariants.archive.values()]
        check_runs(runs.values(), steps.values(), everything, True)
        self._check_jobs(invariants, live, runs)

    def _check_jobs(self, invariants: Invariants, live: set[int], left: dict[int, Row]) -> None:
        leaving = {row["run"] for row in self.sql("select run from {leaving}")}
        for job_id, row in invariants.archive.items():
            if row["state"] != "final":
                raise Broken(f"E4: job {job_id} was archived and is {row['state']}")
            if row["run"] in live:
                raise Broken(f"F18: job {job_id} has left, and its run {row['run']} has not")
        for job_id, row in invariants.jobs.items():
            if (
                row["run"] is not None
                and row["run"] not in live
                and (row["state"], row["run"] in leaving)
                != (
                    "final",
                    True,
                )
            ):
                raise Broken(f"F18: job {job_id} ({row['state']}) is left behind by its run {row['run']}")
        for run, row in left.items():
            if row["state"] not in DONE:
                raise Broken(f"F18: run {run} was archived and is {row['state']}")

    def check_leaving(self) -> None:
        """Much later everything has left but runs that wait for a person, and can be read where it is."""
        self.clock.advance(LATER)
        while self.store.archive_runs(0) + self.store.archive(0):
            pass
        stay: list[Any] = self.sql(
            "select id, run from {job} where run is null or not exists (select 1 from {run} where {run}.id = {job}.run)"
        )
        stay += self.sql("select id, state from {run} where state = 'SUCCESS'") + self.sql("select * from {leaving}")
        if stay:
            raise Broken(f"E4: these do not leave: {stay[:5]}")
        left = self.sql(
            "select id, run from {archive} where run is not null and run not in (select id from {run_archive})"
        )
        if left:
            raise Broken(f"F18: these are kept, and their run was deleted: {left[:5]}")
        for job_id in self.accepted[-3:]:
            job = self.store.get(job_id)
            if (job.id, job.state, len(self.store.attempts(job_id))) != (job_id, "final", job.attempt):
                raise Broken(f"E4: job {job_id} reads as {job} in the archive")

    def check_forgetting(self) -> None:
        """Months later what has left is forgotten lot by lot, whoever dies on the way, and nothing that has not left."""
        stays = [self.sql(f"select * from {{{name}}} order by id") for name in ("job", "run")]
        self.clock.advance(MUCH_LATER)
        there = self.sql.value("select count(*) from {archive}")
        if self.store.forget(2 * MUCH_LATER) or self.sql.value("select count(*) from {archive}") != there:
            raise Broken("E4: what was to be kept is forgotten")
        with suppress(Killed), self.stage.struck(self.store, len(self.accepted) % 6, Killed):
            self.store.forget(MUCH_LATER / 2, FEW)
        Invariants(self.sql, True).records()
        while self.store.forget(MUCH_LATER / 2, 10 * FEW) + self.store.forget_runs(MUCH_LATER / 2):
            pass
        for name, of in (
            ("archive", "id"),
            ("run_archive", "id"),
            ("step_archive", "run"),
            ("attempt", "job"),
            ("audit", "job"),
        ):
            live = set() if "archive" in name else {None, *(row["id"] for row in stays[0])}
            left = [row for row in self.sql(f"select * from {{{name}}}") if row[of] not in live]
            if left:
                raise Broken(f"E4: {name} keeps {left[:3]}")
        if stays != [self.sql(f"select * from {{{name}}} order by id") for name in ("job", "run")]:
            raise Broken("E4: something that has not left was forgotten, or changed")
