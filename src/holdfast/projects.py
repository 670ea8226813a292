"""The builds of an app: its projects, the handlers that build them and tell their forges, and what is done about their folders.

- What is built and from where stands in the settings; every process that has them declares the same queue and types.
- `<folder>/<job_id>` belongs to the build's current job. All processes that build, serve or sweep share the folder, and
  it is of one instance. Who only looks and does not have it neither reads nor writes there.
- CACHED is kept here: what `completed` says of the builds that were used last (B2).
"""

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from msgspec import structs

from holdfast.app import App
from holdfast.builds.build import (
    COMPLETED,
    JOB_TYPE,
    LOG,
    QUEUE,
    STATUS_QUEUE,
    STATUS_TYPE,
    Build,
    BuildState,
    BuildStep,
    Telling,
    last_words,
    step_words,
)
from holdfast.builds.forges import Ended, Ignored, Ping, Wanted
from holdfast.builds.order import BuildOrder
from holdfast.builds.project import ALL_BRANCHES, BuildSettings, Decided, Project, Secret, decide
from holdfast.builds.result import BuildResult, Owner, StepChange, is_of
from holdfast.builds.statuses import message
from holdfast.builds.webhooks import Delivery
from holdfast.config import FILE_NAME
from holdfast.database_url import passwords
from holdfast.errors import NotFound, backticked
from holdfast.jobs.names import check_actor
from holdfast.jobs.outcome import Retry, Snooze
from holdfast.jobs.retry import Exponential
from holdfast.stores.contract import BuildFilter, EndedBuild, NewBuild, NewDelivery, Received, Store
from holdfast.worker import builder
from holdfast.worker.building import source
from holdfast.worker.building.control_group import find_parent
from holdfast.worker.building.disk import free_bytes
from holdfast.worker.building.folder import hold, owner_of, remove_foreign, remove_leftovers
from holdfast.worker.building.performance import Place
from holdfast.worker.building.removal import remove
from holdfast.worker.building.sandbox import Proven
from holdfast.worker.forge import Unheard, send
from holdfast.worker.handler import current_job
from holdfast.workflows.definition import nearest
from holdfast.workflows.states import STEP_STATES, StepState

logger = logging.getLogger("holdfast.builds")
PURGE_EVERY = 60.0  # seconds
LEFTOVER = 3600.0  # seconds after which what a killed builder left beside its folder is removed
TOGETHER = 1000  # folders asked about at once
LIBPQ_PASSWORD = "PGPASSWORD"  # a variable that libpq reads
# Seconds until a build looks at a full disk again: longer each time, up to a longest one.
DISK_PATIENCE, LONGEST_DISK_PATIENCE = 15.0, 300.0
LEAST_OF_RESERVE = 0.5  # share of the reserve at which running builds are ended
LATEST = 20  # builds of a branch among which the last one that says something is looked for


class Projects:
    """What an app builds."""

    def __init__(
        self,
        app: App,
        settings: BuildSettings,
        root: Path,
        environment: Mapping[str, str],
        *,
        declares: bool = True,  # False: only to look and act
    ) -> None:
        self.app = app
        self.settings = settings
        self.folder = (root / settings.folder).absolute()
        self.cached: dict[int, tuple[int, BuildResult]] = {}  # build → its job, and what came of it
        self.declares = declares
        self._held = False
        self._identity: str | None = None  # of the instance; asked for when it is first needed
        self._proven: Proven = set()
        self._root = root
        self._environment = environment
        self._lock = threading.Lock()
        self._next_purge = -1.0
        self._next_disk_warning = -1.0
        self._group_parent = find_parent() if declares else None
        if declares:
            self._declare()
            app.chores.append(self.sweep)

    def _declare(self) -> None:
        queue = self.app.queue(QUEUE, throttle_limit=self.settings.builders)
        queue.job(name=JOB_TYPE, timeout=600, retries=0)(self._builder())
        statuses = self.app.queue(STATUS_QUEUE)
        again = Exponential(1.0, most=300.0)
        statuses.job(name=STATUS_TYPE, timeout=60, retries=None, retry=again)(self._teller())

    def _builder(self) -> Callable[..., Any]:
        async def build(build: int, project: str, commit: str) -> dict[str, Any]:
            return await self._perform(build)

        return build

    def _teller(self) -> Callable[..., Any]:
        def build_status(build: int) -> int:
            return self._tell(build)

        return build_status

    def project(self, name: str) -> Project:
        found = self.settings.projects.get(name)
        if found is None:
            raise NotFound(
                f"There is no project {backticked(name)} in the settings.{nearest(name, list(self.settings.projects))}"
            )
        return found

    def secret(self, secret: Secret) -> str | None:
        """What stands there now; None if nothing does."""
        return secret_in(secret, self._root, self._environment)

    def known_secrets(self) -> tuple[str, ...]:
        """All that a build without a sandbox might find in this process: of every project, and of the database."""
        named = (self.secret(secret) for secret in self.settings.all_secrets)
        addresses = (project.repository for project in self.settings.projects.values())
        found = [
            *(text for text in named if text),
            *(each for address in addresses for each in source.credentials(address)),
        ]
        return (*found, *passwords(self.app.db_config), *filter(None, [self._environment.get(LIBPQ_PASSWORD)]))

    def hold_folder(self) -> bool:
        """Whether the folder is here; who builds makes it this instance's, `Conflict` if another has it."""
        if not self._held:
            if self.declares:
                hold(self.folder, self.identity)
            self._held = owner_of(self.folder) == self.identity
        return self._held

    @property
    def identity(self) -> str:
        """What tells the instance from every other."""
        if self._identity is None:
            self._identity = self.app.store.identity()
        return self._identity

    # Receiving

    def receive(self, project: Project, delivery: Delivery) -> Received | Ended | Ignored | Ping:
        """Do what a forge asks for; `Conflict` if it has asked with the same delivery before.

        A delivery that changes nothing is not stored: it may come again.
        """
        asks, counted = delivery.asks, _counted(project, delivery)
        if isinstance(asks, Wanted):
            decided = decide(project, asks)
            if isinstance(decided, Decided):
                return self._receive_build(project, decided, counted)
            asks = decided
        if isinstance(asks, Ended) and not asks.merged:
            kind = "branch deleted" if asks.branch is not None else "tag deleted"
            why = "pull request closed" if asks.pull_request is not None else kind
            self.app.store.end_builds(project.name, asks.branch, asks.pull_request, why, counted, asks.tag)
        elif isinstance(asks, Ended) or counted.labels is not None:
            self.app.store.take_delivery(counted)
        return asks

    def _receive_build(self, project: Project, decided: Decided, delivery: NewDelivery) -> Received | Ignored:
        wanted = decided.wanted
        new = self._new_build(project, wanted, delivery.forge, f"{delivery.forge} hook")
        new = structs.replace(new, delivery=delivery, rebuild=decided.rebuild)
        if delivery.labels is None or wanted.labels is None:
            return self._received(self.app.store.receive_build(new))
        received = self.app.store.receive_labelled_build(new, project.rebuild_label)
        if received is None:
            return Ignored(
                f"the label `{project.rebuild_label}` is not new: it approves the commit that pull request "
                f"{wanted.pull_request} has when it is added"
            )
        return self._received(received)

    def ask(self, project: Project, wanted: Wanted, forge: str = "generic", *, actor: str = "app") -> Received:
        """A build of a commit (B1, B4)."""
        return self._received(self.app.store.receive_build(self._new_build(project, wanted, forge, actor)))

    def _new_build(self, project: Project, wanted: Wanted, forge: str, actor: str) -> NewBuild:
        return NewBuild(
            project=project.name,
            commit=wanted.commit,
            ref=wanted.ref,
            branch=wanted.branch,
            tag=wanted.tag,
            pull_request=wanted.pull_request,
            forge=forge,
            trusted=not wanted.stranger,
            title=wanted.title,
            author=wanted.author,
            supersedes=project.supersede,
            timeout=project.timeout,
            tells=project.status is not None,
            actor=check_actor(actor),
        )

    def _received(self, received: Received) -> Received:
        received = self._left(received)
        if received.how != "reported":
            return received
        return structs.replace(received, build=self.look(received.build.id))  # whether it is cached, only we know

    def _left(self, received: Received) -> Received:
        """The folder of the job before is nobody's; what the cache knew of it neither."""
        if received.left is not None:
            self._drop_from_memory(received.build.id)
            if self.hold_folder():
                remove(self.path(received.left))
        return received

    # Looking

    def builds(self, **wanted: Any) -> Sequence[Build]:
        """Newest first. Listing is not use."""
        return self.app.store.builds(BuildFilter(cache=self.settings.cache, **wanted))

    def look(self, build: int) -> Build:
        """The build, without using it."""
        return self.app.store.build(build, self.settings.cache)

    def use(self, build: int) -> Build:
        """Somebody opens the build, its log or an output: it is the last one used now (B3)."""
        self.app.store.use_build(build)
        return self.look(build)

    def latest(self, project: str, branch: str | None) -> Build | None:
        """The build that a branch asked for last and that was not aborted. A branch of the same name in another repository does not count."""
        if branch is None:
            found = self.builds(project=project, trusted=True, limit=LATEST)
        else:
            found = self.app.store.builds_of_branch(project, branch, LATEST, self.settings.cache)
        return next((build for build in found if build.outcome != "aborted"), next(iter(found), None))

    def default_branch(self, project: Project) -> str | None:
        """Return the default branch: the setting, else what the forge or the repository said last."""
        return project.default_branch or self.app.store.default_branch(project.name)

    def badge_build(self, project: Project, branch: str | None, outsider: bool) -> Build | None:
        """Return the build whose end a badge shows. Without `branch` it is one of the default branch.

        A person without a token learns of other branches only if the project says so: not even whether they exist.
        """
        default = self.default_branch(project)
        wanted = branch or default
        if outsider and project.public_badge != ALL_BRANCHES and (wanted is None or wanted != default):
            return None
        return self.latest(project.name, wanted)

    def result(self, build: Build) -> BuildResult | None:
        """Return its result, from memory if it is in CACHED; None while it is active, or if its files are not here."""
        if build.active:
            return None
        if build.build_state is not BuildState.CACHED:
            self._drop_from_memory(build.id)
        with self._lock:
            known = self.cached.get(build.id)
        if known is not None and known[0] == build.job_id:
            return known[1]
        found = self._read_completed(build) if self.hold_folder() else None
        if found is not None and build.build_state is BuildState.CACHED:
            self._remember(build, found)
        return found

    def _read_completed(self, build: Build | EndedBuild) -> BuildResult | None:
        """What `completed` says, if it is of this build."""
        found = builder.read_completed(self.path(build.job_id))
        return found if found is not None and is_of(found, self._owner(build)) else None

    def _owner(self, build: Build | EndedBuild) -> Owner:
        return Owner(
            instance=self.identity,
            project=build.project,
            commit=build.commit,
            context=build.context,
            job_id=build.job_id,
        )

    def _drop_from_memory(self, build: int) -> None:
        with self._lock:
            self.cached.pop(build, None)

    def _remember(self, build: Build, found: BuildResult) -> None:
        """Into CACHED, which keeps what the database counts as used last."""
        kept = {each for each, _ in self.app.store.cached_builds(self.settings.cache)}
        with self._lock:
            self.cached[build.id] = build.job_id, found
            self.cached = {each: known for each, known in self.cached.items() if each in kept}

    def path(self, job_id: int) -> Path:
        return self.folder / str(job_id)

    def log_path(self, build: Build) -> Path | None:
        """Where its log is; None if it has none, as before a builder begins. `NotFound` if the folder is not here."""
        if not self.hold_folder():
            raise NotFound(
                f"{build.words}: {self.folder} is not the folder of this instance's builds, so its files are not here. "
                "Ask where the settings name it, in [builds] of holdfast.toml."
            )
        if build.build_state is BuildState.RECEIVED or (not build.active and self.result(build) is None):
            return None  # a log that is there is of another build
        return self.path(build.job_id) / LOG

    # Acting

    def abort(self, build: int, *, actor: str = "app") -> Build:
        """End a build that is active."""
        job = self.app.store.abort_build(build, check_actor(actor))
        if job.final and self.hold_folder():
            self._write_ends(self.app.store)
        return self.look(build)

    def retry(self, build: int, *, actor: str = "app") -> Build:
        """Build a completed build again, from the beginning (B3), with what its project has by now as far as it is known here."""
        project = self.settings.projects.get(self.look(build).project)
        timeout = None if project is None else project.timeout
        return self._left(self.app.store.retry_build(build, check_actor(actor), timeout)).build

    # Building

    async def _perform(self, build: int) -> dict[str, Any]:
        """The handler: what `perform` found out goes into the store before the job ends."""
        job = current_job()
        found = await asyncio.to_thread(self._to_build, build, job.id)
        shortage = await asyncio.to_thread(disk_shortage, self.folder, self.settings.disk_reserve)
        if shortage is not None:
            job.progress(0.0, shortage)
            self._warn_of_disk(shortage)
            raise Snooze(min(DISK_PATIENCE * job.attempt, LONGEST_DISK_PATIENCE), shortage)
        await asyncio.to_thread(self._ask_for_default_branch, found)
        path, steps = self.path(job.id), Steps(self.app.store, job.id, job.attempt)
        secrets = await asyncio.to_thread(self.known_secrets)
        builder.hide(secrets)
        order = await asyncio.to_thread(self._order, found)
        place = Place(
            begun=steps.begin,
            proven=self._proven,
            secrets=secrets,
            disk_reserve=int(self.settings.disk_reserve * LEAST_OF_RESERVE),
            group_parent=self._group_parent,
        )
        try:
            result = await builder.perform(order, path, steps.tell, place)
        except asyncio.CancelledError:
            await asyncio.to_thread(self._complete, job.id, job.attempt, self._read_completed(found))
            raise
        await asyncio.to_thread(self._complete, job.id, job.attempt, result)
        return builder.conclude(result)

    def _ask_for_default_branch(self, build: Build) -> None:
        """For a public badge of a project whose forge has not said it."""
        project = self.settings.projects.get(build.project)
        if project is None or project.public_badge is not True or self.default_branch(project) is not None:
            return
        if (branch := source.default_branch(project.repository)) is not None:
            self.app.store.put_default_branch(project.name, branch)

    def _to_build(self, build: int, job_id: int) -> Build:
        """The build that this job is for; a job that somebody made by hand is for none."""
        self.hold_folder()
        found = self.look(build)
        if found.job_id != job_id:
            raise builder.BuildError(
                f"{found.words} is built by job {found.job_id}, not by this one. Use `holdfast builds retry {build}`."
            )
        return found

    def _warn_of_disk(self, shortage: str) -> None:
        now = self.app.clock.monotonic()
        if now >= self._next_disk_warning:
            self._next_disk_warning = now + DISK_PATIENCE
            logger.warning("No build starts: %s", shortage)

    def log_limits(self) -> None:
        """Log, once at the start of a worker, what keeps the memory of builds within its limit."""
        logger.info("Limits of builds: %s.", limit_words(self._group_parent))

    def _order(self, build: Build) -> BuildOrder:
        project = self.project(build.project)
        secrets = {name: self.secret(secret) for name, secret in project.secrets.items()} if build.trusted else {}
        missing = [project.secrets[name].words for name, text in secrets.items() if text is None]
        if missing:
            raise builder.BuildError(f"Project `{project.name}`: there is nothing in {', '.join(missing)}.")
        names = (
            "repository",
            "build_file",
            "timeout",
            "silence_timeout",
            "env",
            "sandbox",
            "readable",
            "limits",
        )
        return BuildOrder(
            project=project.name,
            commit=build.commit,
            branch=build.branch,
            tag=build.tag,
            ref=None if build.ref == "HEAD" else build.ref,
            event=build.event,
            trusted=build.trusted,
            network=project.gives_network(build.trusted),
            secrets={name: text for name, text in secrets.items() if text is not None},
            protected=tuple(self._protected()),
            instance=self.identity,
            job_id=build.job_id,
            **{name: getattr(project, name) for name in names},
        )

    def _protected(self) -> Iterator[str]:
        """What a sandbox never shows, whatever else it does: the database, the settings, the files with secrets."""
        yield str((self._root / FILE_NAME).absolute())
        yield from self.app.store.files()
        for secret in self.settings.all_secrets:
            if secret.file is not None:
                yield str((self._root / secret.file).absolute())

    def _complete(self, job_id: int, attempt: int, result: BuildResult | None) -> None:
        if result is not None:
            told = [last_words(result.outcome)]
            names = result.condition_names
            self.app.store.complete_build(job_id, attempt, _steps_of(result), told, result.outcome, names)

    # Telling the forge

    def _tell(self, build: int) -> int:
        """Report to the forge what it does not know of a build, in order; return how much that was (B8)."""
        store, told, hidden = self.app.store, 0, builder.hide(self.known_secrets())
        while (status := store.next_status(build)) is not None:
            found = self.look(build)
            if status.branch is not None or status.tag is not None:
                found = structs.replace(found, branch=status.branch, tag=status.tag)
            project = self.settings.projects.get(found.project)
            token = self.secret(project.status.token) if project and project.status else None
            if project and project.status and token and not self._has_trusted(found):
                link = None if self.settings.url is None else f"{self.settings.url}/builds/{build}"
                said = (status.state, hidden.apply(status.description), status.step, link)
                try:
                    send(message(project.status, token, found, *said))
                    told += 1
                except Unheard as unheard:
                    if unheard.again:
                        raise Retry(str(unheard), delay=unheard.after) from unheard
                    logger.warning("%s: %s does not take its status: %s", found.words, project.status.url, unheard)
            store.drop_status(status.id)
        return told

    def _has_trusted(self, build: Build) -> bool:
        """Whether the build is untrusted and a trusted one reports about the same commit."""
        wanted = {"project": build.project, "commit": build.commit, "trusted": True, "limit": 1}
        return not build.trusted and bool(self.builds(**wanted))

    # Sweeping

    def sweep(self, store: Store, everything: bool = False) -> None:
        """What nobody looks after: ends without a builder, folders without a build, words that were not told (B3, B5)."""
        self.hold_folder()
        self._write_ends(store)
        store.tell_untold()
        now = self.app.clock.monotonic()
        if everything or now >= self._next_purge:
            self._next_purge = now + PURGE_EVERY
            self.purge(store)
            store.forget_deliveries()
            if self.settings.keep is not None:
                self._forget(store, self.settings.keep)

    def _write_ends(self, store: Store) -> None:
        """Files and jobs agree afterwards: a build whose builder wrote how its job ended needs nothing but this look."""
        agreed: list[int] = []
        for ended in store.ended_builds():
            result = self._read_completed(ended)
            if result is not None and result.job_id is None and not ended.begun:
                result = None  # an older Holdfast wrote it, and no builder of this job has begun
            if ended.completed and (result is None or result.outcome == ended.outcome):
                agreed.append(ended.job_id)
            elif result is None:
                if not ended.begun or (self.path(ended.job_id) / COMPLETED).exists():
                    remove(self.path(ended.job_id))  # it is of another build: a restored database gives ids out again
                self._end(store, ended)
                steps, told = _cut_short(store.build(ended.id, 0).steps)
                store.complete_build(ended.job_id, 0, steps, [*told, last_words(ended.outcome)])
            else:
                result = result if result.outcome == ended.outcome else self._correct(store, ended, result)
                told, names = [last_words(ended.outcome)], result.condition_names
                store.complete_build(ended.job_id, 0, _steps_of(result), told, condition_names=names)
        if agreed:
            store.agree_on_builds(agreed)

    def _correct(self, store: Store, ended: EndedBuild, found: BuildResult) -> BuildResult:
        why = f"Its builder wrote `{found.outcome}`, but its job ended `{ended.outcome}`: {ended.error or 'no reason given'}"
        return builder.correct_end(self.path(ended.job_id), found, ended.outcome, why, store.now())

    def _end(self, store: Store, ended: EndedBuild) -> BuildResult:
        when = "before it was finished" if ended.begun else "before a builder began"
        why = f"The build ended {when}: {ended.error or ended.outcome}"
        return builder.end_without_builder(self.path(ended.job_id), self._owner(ended), ended.outcome, why, store.now())

    def purge(self, store: Store) -> None:
        """Remove folders that belong to no build: of a job before a retry, left in the middle, or of a job before a restore (B5)."""
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return
        jobs = sorted(int(name) for name in names if name.isascii() and name.isdigit())
        for first in range(0, len(jobs), TOGETHER):
            some = jobs[first : first + TOGETHER]
            known = store.build_jobs(some)  # after the list: a folder in it is older than what this says
            for job in some:
                over, current = known.get(job, (True, False))
                if current and not over:
                    self._remove_foreign(store, job)
                left = job in known or not (self.path(job) / COMPLETED).exists()
                if over and not current and left:
                    logger.warning("Folder %s belongs to no build; it is removed.", self.path(job))
                    remove(self.path(job))
        remove_leftovers(self.folder, self.app.clock.now() - timedelta(seconds=LEFTOVER))

    def _remove_foreign(self, store: Store, job: int) -> None:
        """The folder of an active build has `completed` of another one, if a restored database gave the id out again."""
        path = self.path(job)
        build = store.build_of_job(job, 0) if (path / COMPLETED).exists() else None
        if build is not None and build.active and self._read_completed(build) is None:
            logger.warning("Folder %s is of another build than %s; it is removed.", path, build.words)
            remove_foreign(path)

    def _forget(self, store: Store, keep: float) -> None:
        for build, job in store.old_builds(keep):
            remove(self.path(job))
            store.drop_build(build, job)
            self._drop_from_memory(build)


def _counted(project: Project, delivery: Delivery) -> NewDelivery:
    return NewDelivery(
        project=project.name,
        forge=delivery.forge,
        id=delivery.id,
        body=delivery.body,
        labels=delivery.labels,
        default_branch=delivery.default_branch,
    )


def disk_shortage(folder: Path, reserve: int) -> str | None:
    """Return why no build starts in this folder; None if its disk has room."""
    free = free_bytes(str(folder.absolute()))
    if free >= reserve:
        return None
    return (
        f"only {free:,} bytes are free on the disk of {folder}, and `disk_reserve` in [builds] keeps {reserve:,}. "
        "Free some, or lower it. Waiting builds look again within five minutes."
    )


def limit_words(group_parent: str | None) -> str:
    """What keeps the memory and the processes of a build within their limits."""
    if group_parent is not None:
        return f"the kernel keeps memory and processes, in control groups below {group_parent}"
    return "memory and processes are measured, because the worker may make no control groups (cgroup v2)"


def secret_in(secret: Secret, root: Path, environment: Mapping[str, str]) -> str | None:
    """What stands in a variable or file; None if nothing does."""
    if secret.env is not None:
        return environment.get(secret.env) or None
    try:
        return (root / (secret.file or "")).read_text("utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


class Steps:
    """What a builder says about the steps of its build, on its way into the store."""

    def __init__(self, store: Store, job_id: int, attempt: int) -> None:
        self._store, self._job_id, self._attempt = store, job_id, attempt
        self._known: dict[str, BuildStep] = {}

    def begin(self) -> None:
        """The folder is there."""
        self._store.begin_build(self._job_id, self._attempt)

    def tell(self, change: StepChange) -> None:
        step = self._known.get(change.step) or BuildStep(change.step, change.state.value)
        done = STEP_STATES[change.state].done
        began = change.state in (StepState.START, StepState.READY) and step.start_time is None
        step = structs.replace(
            step,
            state=change.state.value,
            hidden=change.hidden,
            reason=change.reason,
            start_time=change.time if began else step.start_time,
            log_start=change.log_size if began else step.log_start,
            end_time=change.time if done else None,
            log_end=change.log_size if done else None,
        )
        self._known[change.step] = step
        words = step_words(step)
        told = [words] if words is not None and (began or done) else []
        self._store.tell_steps(self._job_id, self._attempt, list(self._known.values()), told)


def _steps_of(result: BuildResult) -> list[BuildStep] | None:
    """None if it knows of none: those that are known stay."""
    return [
        BuildStep(
            step.name,
            step.state.value,
            step.start_time,
            step.end_time,
            step.hidden,
            step.reason,
            step.log_start,
            step.log_end,
        )
        for step in result.details
    ] or None


def _cut_short(steps: Sequence[BuildStep]) -> tuple[list[BuildStep], list[Telling]]:
    """Steps whose builder is gone, and what the forge is to be told of those that it had begun."""
    ended = [
        step if STEP_STATES[StepState(step.state)].done else structs.replace(step, state=_end_of(step))
        for step in steps
    ]
    changed = [step for step, before in zip(ended, steps, strict=True) if step != before]
    return ended, [words for step in changed if (words := step_words(step)) is not None]


def _end_of(step: BuildStep) -> str:
    return (StepState.SKIP_BY_ERROR if step.state == StepState.DORMANT else StepState.ERROR).value
