"""The facts for `explain`: one snapshot, and each question bounded, however long the line and the history are."""

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.jobs import throttlers
from holdfast.jobs.facts import MOST_BEFORE, MOST_DETAILED, Facts, Place, WorkerSeen
from holdfast.jobs.holds import Level
from holdfast.jobs.job import Job, Situation
from holdfast.jobs.placement import Preference
from holdfast.jobs.throttle import Candidate, Usage
from holdfast.jobs.throttlers import Throttler
from holdfast.stores.claiming import (
    MOST_LANES,
    Claiming,
    decode_lane,
    is_open,
    place_in_line,
    pool_in,
)
from holdfast.stores.contract import QueueRow, RunRow, TypeRow
from holdfast.stores.reader import read_throttler, texts_of
from holdfast.stores.statements import RowDict
from holdfast.workflows.plan import STARTED

MOST_USERS = 1000  # jobs that use a limit, of which the first are named
MOST_LEASES = 2000  # batches in the hands of workers, the newest
LAST_ACTIONS = 1000  # from outside, among which a pause is looked for
LAST_ENDS = 500  # transactions in which something became final
MOST_ENDS = 5000  # moments at which a job ended
SOME_OF_AN_END = 20  # jobs looked at of each
NEWEST = 2000  # jobs of the queue looked at for the usual duration
SUCCESSES = 100  # that the usual duration is taken from


class Explaining(Claiming):
    """Adds the verb that gathers what `holdfast.jobs.explain` decides from."""

    def facts(self, job_id: int) -> Facts:
        """Everything around a job that may be a reason for where it is (E1)."""
        with self.work(write=False):
            self.run("one_snapshot")
            job = self._get(job_id)
            facts: dict[str, Any] = {
                "job": job,
                "now": self.now(),
                "retried_as": self._retried_as(job) if job.final else None,
            }
            if not job.final:
                facts |= self._living_facts(job)
            return Facts(**facts)

    def step_facts(self, run: int, step: str) -> tuple[RunRow, Facts | None]:
        """A run, and the facts of the first task of a step that is not done, in one snapshot."""
        with self.work(write=False):
            self.run("one_snapshot")
            row = self._run_by_id(run)
            counts = next((each.counts for each in row.steps if each.counts.name == step), None)
            first = self.first_undone(row, step) if counts is not None and counts.state in STARTED else None
            return row, None if first is None else self.facts(first)

    def _retried_as(self, job: Job) -> int | None:
        for row in self.rows("last_retry_by_hand", {"job": job.id}):
            return int(row["detail"].removeprefix("job "))
        return None

    def _living_facts(self, job: Job) -> dict[str, Any]:
        self._read_queues()
        queue, declared = self.queue_row(job.queue), self._types_named([job.job_type]).get(job.job_type)
        facts = self._type_facts(declared) | self._history_facts(job)
        if job.situation is Situation.HELD:
            return facts | self._holder_facts(job)
        facts["deadline_time"] = self.moment(self.rows("job", {"id": job.id})[0]["deadline_time"])
        if job.situation is Situation.WAITING:
            return facts
        for row in self.rows("last_attempt", {"job": job.id}):
            facts["last_attempt"] = self._attempt_of(row)
        workers = self._workers_seen()
        facts |= {"workers": workers, "breaker": self._breaker(job.job_type)}
        facts |= self._queue_facts(queue)
        if job.run is not None:
            held = self.holds_of(job.job_type.partition(".")[0], job.run)
            facts["holds"] = tuple(hold for hold in held if hold.level is Level.PICK)
        if queue.throttled:
            facts |= self._throttle_facts(job, queue)
        return facts | self._line_facts(job, queue, workers, facts.get("usage"))

    def _type_facts(self, declared: TypeRow | None) -> dict[str, Any]:
        names = ("labels", "has_handler", "on_crash")
        if declared is None:
            return {}
        preference = Preference(declared.prefers, declared.prefer_for) if declared.prefers else None
        return {**{name: getattr(declared, name) for name in names}, "preference": preference}

    def _holder_facts(self, job: Job) -> dict[str, Any]:
        facts: dict[str, Any] = {}
        for row in self.rows("worker_by_id", {"id": job.worker}):
            facts["holder"] = self._seen(row, {})
        for row in self.rows("abort_of", {"job": job.id, "attempt": job.attempt}):
            facts |= {"abort_actor": row["actor"], "abort_time": self.moment(row["request_time"])}
        return facts

    def _queue_facts(self, queue: QueueRow) -> dict[str, Any]:
        facts: dict[str, Any] = {"paused": queue.paused}
        if queue.paused:
            for row in self.rows("last_pause", {"queue": queue.name, "limit": LAST_ACTIONS}):
                facts |= {"pause_time": self.moment(row["time"]), "paused_by": row["actor"]}
        return facts

    def _throttle_facts(self, job: Job, queue: QueueRow) -> dict[str, Any]:
        """What a claim would look at, without the queue's lock."""
        throttler = read_throttler(queue.throttler)
        leases = self.rows("usage", {"queue": queue.name, "keyed": throttlers.is_keyed(throttler)})
        bucket = self.rows("bucket", {"queue": queue.name, "now": self.time(self.given_now())})[0]
        usage = self.usage_of(queue.name, queue.throttle_limit, throttler, leases, bucket)
        pool = throttlers.pool_of(throttler, job.payload)
        full = throttlers.size_of(throttler, pool) is not None
        params = {"queue": queue.name, "pool": pool if full else None, "limit": MOST_USERS}
        ids = sorted(row["id"] for row in self.rows("limit_users", params, queue.name))
        return {"usage": usage, "pool": pool, "users": tuple(ids[:MOST_DETAILED]), "user_count": len(ids)}

    def _line_facts(
        self, job: Job, queue: QueueRow, workers: Sequence[WorkerSeen], usage: Usage | None
    ) -> dict[str, Any]:
        major, minor = self.rank(job.queue, job.priority, job.scheduled_run_time)
        params = {"queue": job.queue, "major": major, "minor": minor, "id": job.id}
        more = {"job_type": job.job_type, "wake_time": self.time(job.scheduled_run_time)}
        place = self.rows("place_of", params | more)[0]
        throttler = None if usage is None else usage.throttler
        before = self._ready_before(queue.name, throttler, params)
        names = self._runnable_names(job, workers)
        if usage is not None:
            lanes = self._lanes(queue.name, usage) | ({place["lane"]} if place["lane"] else set())
            aside = self.lane_heads(queue.name, sorted(lanes), names, MOST_BEFORE) if lanes else []
            before = sorted(
                [*before, *(row for row in aside if place_in_line(row) < (major, minor, job.id))], key=place_in_line
            )
        return {
            "place": None if place["place"] is None else Place(place["place"]),
            "ready_time": self.moment(place["ready_time"]),
            "before": tuple(self._standing(row, throttler, names) for row in before[:MOST_BEFORE]),
            "more_before": len(before) > MOST_BEFORE,
        }

    def _ready_before(self, queue: str, throttler: Throttler | None, params: dict[str, Any]) -> list[RowDict]:
        asked = params | {"limit": MOST_BEFORE + 1}
        if not throttlers.is_keyed(throttler):
            return list(self.rows("line_before", asked))
        asked["path"] = self.payload_path(throttlers.path_of(throttler))
        return list(self.rows("line_before_by_key", asked, queue))

    def _lanes(self, queue: str, usage: Usage) -> set[str]:
        """In which something could start now, of what stands aside."""
        rows = self.rows("lanes", {"queue": queue, "after": "", "limit": MOST_LANES})
        return {row["lane"] for row in rows if is_open(decode_lane(row["lane"]), usage)}

    def _runnable_names(self, job: Job, workers: Sequence[WorkerSeen]) -> set[str]:
        """Under which names jobs stand in line that whoever could run this one can run, or somebody else who has a slot free."""
        serving = [worker for worker in workers if worker.serves(job.queue) and worker.takes_jobs]
        could = [worker for worker in serving if job.job_type in worker.types or worker.held < worker.concurrency]
        return self.claimable({name for worker in could for name in worker.types})

    def _standing(self, row: RowDict, throttler: Throttler | None, names: set[str]) -> Candidate:
        pool = decode_lane(row["lane"]).pool if "lane" in row else pool_in(throttler, row)
        return Candidate(row["id"], row["throttle_factor"], row["job_type"] in names, pool)

    def _workers_seen(self) -> tuple[WorkerSeen, ...]:
        held = self._held_by_worker()
        return tuple(self._seen(row, held) for row in self.rows("workers"))

    def _held_by_worker(self) -> dict[int, int]:
        """How many jobs each worker holds. A lease stays until the last of its jobs is done, so the rows are asked."""
        leased: dict[str, list[int]] = {}
        for lease in self.rows("leases_in_hand", {"limit": MOST_LEASES}):
            leased.setdefault(lease["queue"], []).extend(self.unpack(lease["ids"]))
        held: dict[int, int] = {}
        for queue, ids in leased.items():
            for row in self.rows("held_among", {"ids": self.pack(ids)}, queue):
                held[row["worker"]] = held.get(row["worker"], 0) + 1
        return held

    def _seen(self, row: RowDict, held: Mapping[int, int]) -> WorkerSeen:
        names = ("queues", "types", "labels", "duties")
        queues, types, labels, duties = (texts_of(row[name]) for name in names)
        return WorkerSeen(
            id=row["id"],
            name=row["name"],
            host=row["host"],
            queues=queues,
            types=types,
            labels=labels,
            concurrency=row["concurrency"],
            beat_time=self._known(row["beat_time"]),
            every_queue=bool(row["every_queue"]),
            stopping=bool(row["stopping"]),
            gone=row["gone"] is not None,
            held=held.get(row["id"], 0),
            duties=duties,
        )

    def _history_facts(self, job: Job) -> dict[str, Any]:
        """When jobs of the queue ended lately, and how long those of the type took."""
        params = {"queue": job.queue, "limit": LAST_ENDS, "some": SOME_OF_AN_END}
        last = self.rows("last_ends", params)
        ends = [self._known(row["end_time"]) for row in last for _ in range(row["count"])][:MOST_ENDS]
        ids = [job_id for row in last for job_id in self.unpack(row["ids"])]
        return {"ends": tuple(ends), "durations": tuple(self._durations(job, ids))}

    def _durations(self, job: Job, ended: Sequence[int]) -> list[float]:
        params = {"job_type": job.job_type}
        found = self.rows("durations_among", params | {"ids": self.pack(ended)}, job.queue)
        if len(found) < SUCCESSES:
            found += self.rows("durations_newest", params | {"limit": NEWEST}, job.queue)
            found += self.rows("durations_archived", params | {"limit": 2 * SUCCESSES})
        seconds = {row["id"]: row["execution_time"] for row in found}
        return [seconds[job_id] for job_id in sorted(seconds, reverse=True)[:SUCCESSES]]
