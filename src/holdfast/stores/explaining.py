"""The facts for `explain`: one snapshot, and each question bounded, however long the line and the history are."""

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.jobs.facts import MOST_BEFORE, MOST_DETAILED, Facts, Place, WorkerSeen
from holdfast.jobs.job import Job, Situation
from holdfast.jobs.throttle import Candidate
from holdfast.stores.contract import QueueRow, TypeRow
from holdfast.stores.statements import RowDict, decode_words
from holdfast.stores.sweeping import Sweeping

MOST_USERS = 1000  # jobs that use a limit, of which the first are named
MOST_LEASES = 2000  # batches in the hands of workers, the newest
LAST_ACTIONS = 1000  # from outside, among which a pause is looked for
LAST_ENDS = 500  # transactions in which something became final
MOST_ENDS = 5000  # moments at which a job ended
SOME_OF_AN_END = 20  # jobs looked at of each
NEWEST = 2000  # jobs of the queue looked at for the usual duration
SUCCESSES = 100  # that the usual duration is taken from


class Explaining(Sweeping):
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

    def _retried_as(self, job: Job) -> int | None:
        for row in self.rows("last_retry_by_hand", {"job": job.id}):
            return int(row["detail"].removeprefix("job "))
        return None

    def _living_facts(self, job: Job) -> dict[str, Any]:
        self._read_queues()
        queue, declared = self.queue_row(job.queue), self._read_types().get(job.job_type)
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
        return facts | self._queue_facts(job, queue) | self._line_facts(job, workers)

    def _type_facts(self, declared: TypeRow | None) -> dict[str, Any]:
        names = ("labels", "has_handler", "on_crash")
        return {} if declared is None else {name: getattr(declared, name) for name in names}

    def _holder_facts(self, job: Job) -> dict[str, Any]:
        facts: dict[str, Any] = {}
        for row in self.rows("worker_by_id", {"id": job.worker}):
            facts["holder"] = self._seen(row, {})
        for row in self.rows("abort_of", {"job": job.id, "attempt": job.attempt}):
            facts |= {"abort_actor": row["actor"], "abort_time": self.moment(row["request_time"])}
        return facts

    def _queue_facts(self, job: Job, queue: QueueRow) -> dict[str, Any]:
        facts: dict[str, Any] = {"paused": queue.paused, "throttle_limit": queue.throttle_limit}
        if queue.paused:
            for row in self.rows("last_pause", {"queue": queue.name, "limit": LAST_ACTIONS}):
                facts |= {"pause_time": self.moment(row["time"]), "paused_by": row["actor"]}
        if queue.throttle_limit >= 1:
            users = self.rows("limit_users", {"queue": queue.name, "limit": MOST_USERS}, queue.name)
            ids = sorted(row["id"] for row in users)
            facts |= {"users": tuple(ids[:MOST_DETAILED]), "user_count": len(ids)}
            facts["used"] = self.rows("used", {"queue": queue.name}, queue.name)[0]["used"]
        return facts

    def _line_facts(self, job: Job, workers: Sequence[WorkerSeen]) -> dict[str, Any]:
        major, minor = self.rank(job.queue, job.priority, job.scheduled_run_time)
        params = {"queue": job.queue, "major": major, "minor": minor, "id": job.id}
        more = {"job_type": job.job_type, "wake_time": self.time(job.scheduled_run_time)}
        place = self.rows("place_of", params | more)[0]["place"]
        before = self.rows("line_before", params | {"limit": MOST_BEFORE + 1})
        types = self.claimable({name for worker in workers for name in worker.types})
        return {
            "place": None if place is None else Place(place),
            "before": tuple(Candidate(row["id"], row["throttle_factor"], row["job_type"] in types) for row in before),
        }

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
        queues, types, labels = (decode_words(row[name]) for name in ("queues", "types", "labels"))
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
