"""Builds: received, begun, completed, retried, looked into, forgotten.

Rules:
- A build and its job are made in one transaction, and so is what a new commit does to older builds.
- A commit has at most one build for each context. A request locks the commit first, then one build, then older builds.
- A row without a context was made by an older Holdfast, which changed the trust of a build: no request joins it or takes its result.
- What is said about files is said after they are there: `begun` after `generated`, `completed` after `completed`.
- A builder speaks for its build only while its attempt holds the job (J5).
- What a forge is to be told stands in order in `status`; a job of the build's own tells it.
"""

import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct, structs

from holdfast.builds import context as contexts
from holdfast.builds.build import (
    JOB_TYPE,
    QUEUE,
    STATUS_QUEUE,
    STATUS_TYPE,
    Build,
    BuildRef,
    BuildState,
    BuildStep,
    Line,
    Telling,
    first_words,
    job_key,
    still_wanted,
)
from holdfast.builds.context import Context, event_of, has_same_result
from holdfast.builds.labels import PullRequestLabels, added, is_older
from holdfast.builds.webhooks import REMEMBERED
from holdfast.errors import Conflict, NotFound
from holdfast.jobs.job import Job, Outcome
from holdfast.stores.acting import Acting
from holdfast.stores.contract import BuildFilter, EndedBuild, NewBuild, NewDelivery, NewJob, Received, StatusRow
from holdfast.stores.reader import RowReader, error_of
from holdfast.stores.statements import RowDict, encode_json

KEPT_RESULTS = (Outcome.SUCCESS, Outcome.FAILED)  # reported again without a new run (B4)
RECENTLY = 10.0  # seconds in which the use of the last used build is not written again
FORGET_STATUS = 86400.0  # seconds after which a forge that cannot be told is not told any more
decode_steps = msgspec.json.Decoder(tuple[BuildStep, ...]).decode
decode_labels = msgspec.json.Decoder(tuple[str, ...]).decode
decode_lines = msgspec.json.Decoder(tuple[Line, ...]).decode
decode_refs = msgspec.json.Decoder(tuple[BuildRef, ...]).decode
decode_names = msgspec.json.Decoder(tuple[str, ...]).decode
SAID = ("ref", "pull_request", "forge", "title", "author", "tells")  # what the last request of a context says


class Building(Acting):
    """Adds the verbs about builds."""

    def identity(self) -> str:
        """Tells this instance from every other, also from one of the same name in another database, wherever it is moved."""
        with self.work(write=False):
            known = self.rows("identity")
        if not known:
            with self.work():
                self.run("add_identity", {"token": secrets.token_hex(8)})
                known = self.rows("identity")
        return f"{self.instance} {known[0]['token']}"

    # Receiving

    def receive_build(self, new: NewBuild) -> Received:
        """Make a build, join the one that is active, or find the result that is there (B1, B4).

        `Conflict` if the delivery has come before; nothing is changed then.
        """
        with self.work():
            if new.delivery is not None:
                self._take(new.delivery)
            if line := _line_of(new):
                self.rows("lock_line", {"line": f"{self.instance} {new.project} {line}"})
            self._lock_commit(new.project, new.commit)
            answer = self._ask_again(new) or self._find_result(new) or self._add_build(new)
            build, how, left = answer.build, answer.how, answer.left
            self._note_ref(build, new)
            superseded = self._supersede(build, new)
            if new.delivery is not None:
                self._name_delivery(new.delivery, build)
            self._audit(new.actor, "build", detail=f"{new.project} {new.commit} {how}")
            found = self._one_build({"id": build})
            if new.tells:
                self._tell(build, first_words(found, how), new.branch, new.tag)
            return Received(found, how, superseded, left)

    def receive_labelled_build(self, new: NewBuild, label: str) -> Received | None:
        """Do the same if this label is new on the pull request; None if it is not.

        A transaction about a pull request waits for the one before it, so one label counts once.
        """
        with self.work():
            if new.delivery is None or label not in self._take(new.delivery):
                return None
            received = self.receive_build(structs.replace(new, delivery=None))
            self._name_delivery(new.delivery, received.build.id)
            return received

    def take_delivery(self, delivery: NewDelivery) -> None:
        """Store a delivery that asks for no build; `Conflict` if it has come before."""
        with self.work():
            self._take(delivery)

    def _take(self, delivery: NewDelivery) -> frozenset[str]:
        """Store that a delivery came, and return the labels that it adds; `Conflict` if it has come before."""
        known_by = {"project": delivery.project, "forge": delivery.forge, "id": delivery.id, "digest": delivery.body}
        params = {**known_by, "now": self.time(self.now()), "before": self.time(self._remembered_since())}
        if not self.rows("add_delivery", params):
            came = f"Delivery `{delivery.id}` for project `{delivery.project}` has come before. It counts once."
            raise Conflict(f"{came} {_to_build_again(self.rows('delivery', known_by))}")
        if delivery.body is not None and not self.rows("add_hook_body", params):
            came = f"This body has come before for project `{delivery.project}`. It counts once in 90 days, under any delivery id."
            raise Conflict(f"{came} {_to_build_again(self.rows('hook_body', known_by))}")
        if delivery.default_branch is not None:
            self.put_default_branch(delivery.project, delivery.default_branch)
        return frozenset() if delivery.labels is None else self._renew_labels(delivery.project, delivery.labels)

    def _renew_labels(self, project: str, said: PullRequestLabels) -> frozenset[str]:
        """Keep the labels of a pull request, and return those that are new."""
        self.rows("lock_line", {"line": f"{self.instance} {project} #{said.pull_request}"})
        which = {"project": project, "number": said.pull_request}
        rows = self.rows("pull_request_labels", which)
        known = [
            PullRequestLabels(said.pull_request, decode_labels(row["labels"]), self.moment(row["change_time"]))
            for row in rows
        ]
        last = known[0] if known else None
        if not is_older(said, last):
            labels = encode_json(sorted(set(said.names))).decode()
            self.run("put_pull_request_labels", {**which, "labels": labels, "change_time": self.time(said.time)})
        return added(said, last)

    def _name_delivery(self, delivery: NewDelivery, build: int) -> None:
        known_by = {"project": delivery.project, "build": build}
        self.run("name_delivery", {**known_by, "forge": delivery.forge, "id": delivery.id})
        self.run("name_hook_body", {**known_by, "digest": delivery.body})

    def _lock_commit(self, project: str, commit: str) -> None:
        """Until this transaction ends no other one makes a build of this commit, or gives one another job."""
        self.rows("lock_line", {"line": f"{self.instance} {project} commit {commit}"})

    def _ask_again(self, new: NewBuild) -> "_Answer | None":
        """The build of this commit in this context: joined, reported or built anew. None if there is none."""
        names = {"project": new.project, "commit": new.commit, "context": contexts.encode(new.context)}
        for row in self.rows("lock_build", names):
            job = self._get(row["job"])
            said = {name: getattr(new, name) for name in SAID} | {"lines": _encoded(_lines_with(row, new, job))}
            self.run("ask_build_again", {**said, "id": row["id"], "now": self.time(self.now())})
            if not job.final:
                return _Answer(row["id"], "joined")
            if job.outcome in KEPT_RESULTS and not new.rebuild:
                return _Answer(row["id"], "reported")
            self._give_job(row, new.timeout, job)
            return _Answer(row["id"], "again", job.id)
        return None

    def _find_result(self, new: NewBuild) -> "_Answer | None":
        """A result of this commit from another context whose build would do the same in this one; None if there is none."""
        if new.rebuild:
            return None
        for known in self.rows("builds_of_commit", {"project": new.project, "commit": new.commit}):
            if has_same_result(_context_of(known), new.context, _condition_names_of(known)):
                for row in self.rows("lock_build_by_id", {"id": known["id"]}):  # none if it has just been dropped
                    if self._get(row["job"]).outcome in KEPT_RESULTS:
                        return _Answer(row["id"], "reported")
        return None

    def _add_build(self, new: NewBuild) -> "_Answer":
        said = {name: getattr(new, name) for name in (*SAID, "project", "commit", "branch", "tag", "trusted")}
        said |= {"context": contexts.encode(new.context), "now": self.time(self.now())}
        row = self.rows("add_build", said)[0]
        self._give_job(row, new.timeout)
        return _Answer(row["id"], "new")

    def _note_ref(self, build: int, new: NewBuild) -> None:
        """This ref asked for the build just now."""
        params = {name: getattr(new, name) for name in ("project", "ref", "branch", "tag", "pull_request")}
        self.run("drop_build_ref", {"build": build, "ref": new.ref})
        self.run("add_build_ref", {**params, "build": build, "now": self.time(self.now())})

    def _free_key(self, row: RowDict) -> str:
        key = job_key(row["project"], row["commit_id"])
        taken = self.rows("key_holder", {"job_type": JOB_TYPE, "job_key": key})
        return job_key(row["project"], row["commit_id"], row["id"]) if taken else key

    def _give_job(self, row: RowDict, timeout: float | None, before: Job | None = None) -> None:
        told = {"build": row["id"], "project": row["project"], "commit": row["commit_id"]}
        new = NewJob(
            queue=QUEUE,
            job_type=JOB_TYPE,
            payload=encode_json(told).decode(),
            job_key=self._free_key(row),
            timeout=timeout,
            timeout_named=True,
            retries=0,
            retries_named=True,
            retry_of=None if before is None else before.id,
            on_duplicate="raise",
        )
        job = self.insert([new])[0]
        params = {"id": row["id"], "job": job.id, "no": False, "now": self.time(self.now())}
        self.run("give_build_job", params)

    def _supersede(self, build: int, new: NewBuild) -> tuple[int, ...]:
        """A newer commit of the same pull request, or branch if the project wants it, ends the older build (B4)."""
        if not _line_of(new):
            return ()
        branch = new.branch if new.pull_request is None else None
        params = {"project": new.project, "before": build, "but_commit": new.commit}
        params |= {"branch": branch, "tag": None, "pull_request": new.pull_request}
        return self._abort_builds(params, f"superseded by {new.commit[:10]}")

    def _abort_builds(self, params: Mapping[str, Any], actor: str) -> tuple[int, ...]:
        """Those that nobody wants any more; what another branch or pull request has joined goes on."""
        ended = []
        for row in sorted(self.rows("living_builds", params), key=lambda row: row["job"]):  # as everybody locks jobs
            wanted = _lines_of(row)
            branch, tag = (params["branch"], params["tag"]) if row["trusted"] else (None, None)
            left = still_wanted(wanted, params["pull_request"], branch, tag)
            if not left:
                with suppress(Conflict):  # it ended meanwhile
                    self.abort(row["job"], actor)
                    ended.append(row["id"])
            elif left != wanted:
                self.run("put_lines", {"id": row["id"], "lines": _encoded(left)})
        return tuple(sorted(ended))

    def end_builds(
        self,
        project: str,
        branch: str | None,
        pull_request: int | None,
        actor: str,
        delivery: NewDelivery | None = None,
        tag: str | None = None,
    ) -> Sequence[int]:
        """Abort the living builds of a branch or tag that is deleted, or of a pull request that is closed.

        `Conflict` if the delivery that says so has come before; nothing is changed then.
        """
        with self.work():
            if delivery is not None:
                self._take(delivery)
            params = {"project": project, "before": 2**62, "but_commit": ""}
            params |= {"branch": branch, "tag": tag, "pull_request": pull_request}
            return self._abort_builds(params, actor)

    # Looking

    def default_branch(self, project: str) -> str | None:
        """Return the default branch last said by the project's forge or repository."""
        with self.lone():
            return next((row["branch"] for row in self.rows("default_branch", {"project": project})), None)

    def put_default_branch(self, project: str, branch: str) -> None:
        with self.work():
            self.run("put_default_branch", {"project": project, "branch": branch})

    def builds(self, wanted: BuildFilter) -> Sequence[Build]:
        """Newest first."""
        params = {name: getattr(wanted, name) for name in BuildFilter.__struct_fields__}
        with self.work(write=False):
            return [self._build_of(row) for row in self._built("builds", {**params, "id": None})]

    def _built(self, name: str, params: Mapping[str, Any]) -> Sequence[RowDict]:
        """From the table of the jobs of builds; nothing where no build was ever declared."""
        try:
            return self.rows(name, params, QUEUE)
        except NotFound:
            return ()

    def build(self, build: int, cache: int) -> Build:
        with self.work(write=False):
            return self._one_build({"id": build, "cache": cache})

    def builds_of_branch(self, project: str, branch: str, limit: int, cache: int) -> Sequence[Build]:
        """Trusted builds that a branch asked for, the one that it asked for last first."""
        params = {"project": project, "branch": branch, "limit": limit}
        with self.work(write=False):
            found = dict.fromkeys(row["id"] for row in self.rows("builds_of_branch", params))
            wanted = [{**ANY_BUILD, "id": build, "cache": cache} for build in found]
            return [self._build_of(row) for each in wanted for row in self._built("builds", each)]

    def build_of_job(self, job: int, cache: int) -> Build | None:
        """The build whose current job this is."""
        with self.work(write=False):
            for row in self.rows("build_of_job", {"job": job}):
                return self._one_build({"id": row["id"], "cache": cache})
            return None

    def cached_builds(self, cache: int) -> Sequence[tuple[int, datetime]]:
        """Those in CACHED with their use times, the last one used first."""
        with self.lone():
            return [(row["id"], self._known(row["use_time"])) for row in self.rows("cached_builds", {"cache": cache})]

    def _one_build(self, which: Mapping[str, Any]) -> Build:
        if 0 < which["id"] < 2**63:
            for row in self._built("builds", {**ANY_BUILD, **which}):
                return self._build_of(row)
        raise NotFound(f"There is no build {which['id']} in instance `{self.instance}`.")

    def _build_of(self, row: RowDict) -> Build:
        state, context, read = BuildState(row["build_state"]), _context_of(row), RowReader(row)
        over = state in (BuildState.CACHED, BuildState.COMPLETED)
        return Build(
            **{name: row[name] for name in ("id", "project", "ref", "pull_request", "forge")},
            **structs.asdict(context),
            commit=row["commit_id"],
            refs=decode_refs(row["refs"]) or (BuildRef(row["ref"], row["branch"], row["tag"], row["pull_request"]),),
            job_id=row["job"],
            title=row["title"],
            author=row["author"],
            build_state=state,
            outcome=read.one_of("outcome", Outcome, Outcome.ERROR) if over else None,
            error=read.error("error") if over else None,
            attempt=row["attempt"],
            steps=read.read("steps", decode_steps, lambda _: ()),
            start_time=self.moment(row["start_time"]),
            end_time=self.moment(row["end_time"]) if over else None,
            use_time=self._known(row["use_time"]),
            create_time=self._known(row["create_time"]),
            update_time=self._known(row["update_time"]),
        )

    def use_build(self, build: int) -> None:
        """Somebody looks into it: of the completed builds it is the last one used now (B3)."""
        if not 0 < build < 2**63:
            return
        with self.work():
            recently = self.time(self.now() - timedelta(seconds=RECENTLY))
            self.run("use_build", {"id": build, "use_time": self._next_use(), "recently": recently})

    def _next_use(self) -> Any:
        """Later than every other use, whatever the clock says."""
        last = self.moment(self.rows("last_use")[0]["use_time"])
        now = self.now()
        return self.time(now if last is None else max(now, last + timedelta(microseconds=1)))

    # Building

    def begin_build(self, job: int, attempt: int) -> bool:
        """Its folder is made; False if this attempt does not have the job any more."""
        with self.work():
            params = {"job": job, "attempt": attempt, "yes": True, "no": False, "now": self.time(self.now())}
            return self._tell_if_wanted(self.rows("begin_build", params), [Telling("pending", "The build runs.")])

    def tell_steps(self, job: int, attempt: int, steps: Sequence[BuildStep], told: Sequence[Telling]) -> bool:
        """How its steps stand; False if this attempt does not have the job any more."""
        with self.work():
            params = {
                "job": job,
                "attempt": attempt,
                "steps": _encoded(steps),
                "yes": True,
                "now": self.time(self.now()),
            }
            return self._tell_if_wanted(self.rows("tell_steps", params), told)

    def complete_build(
        self,
        job: int,
        attempt: int,
        steps: Sequence[BuildStep] | None,
        told: Sequence[Telling],
        found: str | None = None,
        condition_names: Sequence[str] | None = None,
    ) -> bool:
        """All its files are written; False if it is neither over nor this attempt's.

        `found` is the outcome that a builder wrote before its job has ended: if the job ends otherwise, the build is not
        completed until a sweep has put `completed` right. `condition_names` are what the conditions of its build file read;
        None: not known.
        """
        with self.work():
            params = {"job": job, "attempt": attempt, "found": found}
            params |= {"steps": None if steps is None else _encoded(steps)}
            params |= {"condition_names": None if condition_names is None else _encoded(condition_names)}
            params |= {"yes": True, "now": self.time(self.now()), "use_time": self._next_use()}
            return self._tell_if_wanted(self.rows("complete_build", params), told)

    def _tell_if_wanted(self, rows: Sequence[RowDict], told: Sequence[Telling]) -> bool:
        for row in rows:
            if row["tells"]:
                self._tell(row["id"], told)
        return bool(rows)

    # Acting

    def abort_build(self, build: int, actor: str) -> Job:
        """End a build that is active, as its job is ended (J10)."""
        with self.work():
            found = self._one_build({"id": build})
            if self._get(found.job_id).final:
                raise Conflict(
                    f"{found.words} is over, so it cannot be aborted. `holdfast builds retry {build}` builds it again."
                )
            return self.abort(found.job_id, actor)

    def retry_build(self, build: int, actor: str, timeout: float | None = None) -> Received:
        """A new job for a completed build (B3), with the timeout of its project; None: with that of the job before."""
        with self.work():
            known = self._one_build({"id": build})
            self._lock_commit(known.project, known.commit)
            for row in self.rows("lock_build_by_id", {"id": build}):
                found, before = self._one_build({"id": build}), self._get(row["job"])
                if found.active:
                    raise Conflict(
                        f"{found.words} is `{found.build_state}`; only a completed build is retried. Abort it first, or wait for it."
                    )
                self._give_job(row, before.timeout if timeout is None else timeout, before)
                self._audit(actor, "retry", job=before.id, queue=QUEUE, detail=f"build {build}")
                found = self._one_build({"id": build})
                self._tell_if_wanted([row], first_words(found, "again"))
                return Received(found, "again", (), before.id)
            raise NotFound(f"There is no build {build} in instance `{self.instance}`.")

    # What a sweep asks

    def ended_builds(self, limit: int = 100) -> Sequence[EndedBuild]:
        """Whose job is final while nobody has written their files, or seen that `completed` says the same."""
        with self.lone():
            rows = self._built("ended_builds", {"limit": limit})
        return [self._ended_build(row) for row in rows]

    def _ended_build(self, row: RowDict) -> EndedBuild:
        error = error_of(row["error"])
        return EndedBuild(
            id=row["id"],
            job_id=row["job"],
            project=row["project"],
            commit=row["commit_id"],
            context=_context_of(row),
            begun=bool(row["begun"]),
            completed=bool(row["completed"]),
            outcome=row["outcome"],
            error=None if error is None else error.message,
        )

    def agree_on_builds(self, jobs: Sequence[int]) -> None:
        """`completed` says how these jobs ended."""
        with self.work():
            self.run("agree_on_builds", {"ids": self.pack(jobs)})

    def build_jobs(self, jobs: Sequence[int]) -> Mapping[int, tuple[bool, bool]]:
        """Of those that are jobs of builds: whether each is over, and whether a build has it as its current one."""
        with self.lone():
            rows = self._built("build_jobs", {"ids": self.pack(jobs)})
        return {row["id"]: (row["state"] == "final", row["build"] is not None) for row in rows}

    def old_builds(self, unused_for: float, limit: int = 100) -> Sequence[tuple[int, int]]:
        """(build, job) of completed builds that nobody has looked into for so many seconds."""
        with self.lone():
            before = self.time(self.now() - timedelta(seconds=unused_for))
            return [(row["id"], row["job"]) for row in self.rows("old_builds", {"before": before, "limit": limit})]

    def drop_build(self, build: int, job: int) -> bool:
        """Forget a completed build; False if it has gone on meanwhile."""
        with self.work():
            gone = self.rows("drop_build", {"id": build, "job": job})
            for row in gone:
                short = job_key(row["project"], row["commit_id"])
                self.run(
                    "note_old_jobs",
                    {"short_key": short, "own_key": job_key(row["project"], row["commit_id"], build)},
                    QUEUE,
                )
            return bool(gone)

    def forget_deliveries(self, limit: int = 5000) -> None:
        """Delete deliveries and bodies that may count again, at most `limit` of each."""
        with self.work():
            params = {"before": self.time(self._remembered_since()), "limit": limit}
            self.run("forget_deliveries", params)
            self.run("forget_hook_bodies", params)

    def _remembered_since(self) -> datetime:
        return self.now() - timedelta(seconds=REMEMBERED)

    # Telling the forge

    def _tell(self, build: int, told: Sequence[Telling], branch: str | None = None, tag: str | None = None) -> None:
        """`branch` and `tag` are those of a request that gets the result of another context."""
        now = self.time(self.now())
        for each in told:
            params = {"build": build, "step": each.step, "state": each.state, "description": each.description}
            self.run("add_status", {**params, "branch": branch, "tag": tag, "now": now})
        if told:
            self._tell_soon(build)

    def _tell_soon(self, build: int) -> None:
        self.insert(
            [
                NewJob(
                    queue=STATUS_QUEUE,
                    job_type=STATUS_TYPE,
                    payload=encode_json({"build": build}).decode(),
                    job_key=str(build),
                    timeout=60,
                    timeout_named=True,
                    retries=None,
                    retries_named=True,
                )
            ]
        )

    def next_status(self, build: int) -> StatusRow | None:
        """What the forge is to be told next of a build."""
        with self.lone():
            for row in self.rows("next_status", {"build": build}):
                values = {name: row[name] for name in ("id", "build", "step", "state", "description", "branch", "tag")}
                return StatusRow(**values, create_time=self._known(row["create_time"]))
        return None

    def drop_status(self, status: int) -> None:
        """The forge was told, or will not listen."""
        with self.work():
            self.run("drop_status", {"id": status})

    def tell_untold(self) -> int:
        """What was written while the job that tells was just ending, and what no forge wanted to hear for a day."""
        with self.work(write=False):
            untold = [row["build"] for row in self.rows("untold_builds", {"limit": 100})]
        if untold:
            with self.work():
                self.run("forget_statuses", {"before": self.time(self.now() - timedelta(seconds=FORGET_STATUS))})
                for build in untold:
                    self._tell_soon(build)
        return len(untold)


ANY_BUILD: Mapping[str, Any] = {
    **dict.fromkeys(("id", "project", "branch", "trusted", "commit", "state", "before")),
    "limit": 1,
    "cache": 0,
}


def _to_build_again(known: Sequence[RowDict]) -> str:
    """`known` is the row of the delivery or body that came before."""
    build = next((row["build"] for row in known if row["build"] is not None), "BUILD")
    return f"To build the commit again, use `holdfast builds retry {build}`."


class _Answer(Struct, frozen=True):
    """How a request is answered: by which build, and which job the build had before."""

    build: int
    how: str
    left: int | None = None


def _context_of(row: RowDict) -> Context:
    """As it is stored, or as the columns of an older Holdfast say. A damaged one is untrusted: it gets no secrets."""
    event = event_of(row["pull_request"], row["tag"])
    said = Context(trusted=bool(row["trusted"]), event=event, branch=row["branch"], tag=row["tag"])
    if row["context"] is None:
        return said
    return RowReader(row).read("context", contexts.decode, lambda _: structs.replace(said, trusted=False))


def _condition_names_of(row: RowDict) -> tuple[str, ...] | None:
    """None if they are not known."""
    if row["condition_names"] is None:
        return None
    return RowReader(row).read("condition_names", decode_names, lambda _: None)


def _line_of(new: NewBuild) -> str:
    """The pull request or branch on which it ends older builds; empty if it ends none."""
    if new.pull_request is not None:
        return f"#{new.pull_request}"
    return new.branch or "" if new.supersedes else ""


def _lines_of(row: RowDict) -> tuple[Line, ...]:
    given = RowReader(row).read("lines", decode_lines, lambda _: ())
    return given or (Line(row["pull_request"], row["branch"], row["tag"]),)


def _lines_with(row: RowDict, new: NewBuild, job: Job) -> Sequence[Line]:
    """The pull requests and branches that want a build which is asked for again. Those of a job that is over do not count."""
    line = Line(new.pull_request, new.branch, new.tag)
    return [*(each for each in _lines_of(row) if not job.final and each != line), line]


def _encoded(listed: Sequence[BuildStep | Line | str]) -> str:
    return encode_json(listed).decode()
