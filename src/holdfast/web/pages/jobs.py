"""Jobs: the list with its filter, what is done to all of a filter together, and the search for one."""

from collections.abc import Callable, Iterator, Mapping

from litestar import Router
from msgspec import structs

from holdfast.errors import Conflict, HoldfastError, Invalid, NotFound, quoted
from holdfast.jobs.job import Job, Outcome, State
from holdfast.stores.contract import Filter, Store
from holdfast.web.pages import filters
from holdfast.web.pages.drawn import query
from holdfast.web.pages.page import Form, Frame, Html, TheFrame, action, page
from holdfast.web.site import Site, TheSite

PER_PAGE = 50
MOST_TOGETHER = 1000  # jobs that one press of a button changes
MOST_PAGES = 200  # that are looked through for them
SHOWN = 10
TABS: tuple[tuple[str, dict[str, str]], ...] = (
    ("All", {}),
    ("Pending", {"status": "pending"}),
    ("Running", {"status": "running"}),
    ("Failed, to be retried", {"status": "failed"}),
    ("Completed", {"status": "completed"}),
    ("Dead", {"status": "dead"}),
)
ALIVE = (State.INITIAL, State.RUNNING, State.ERROR)


@page("/jobs")
def jobs(frame: TheFrame, site: TheSite) -> Html:
    asked = dict(frame.request.query_params)
    return listed(frame, site, asked, archive=False)


def listed(frame: Frame, site: Site, asked: Mapping[str, str], archive: bool) -> Html:
    """The list with its filter, of jobs or of the archive."""
    wanted = filters.wanted(asked, PER_PAGE)
    if archive:
        wanted = structs.replace(wanted, archive=True, live=False)
    with site.reader() as store:
        found, now = store.page(wanted), store.now()
        queues, types = [row.name for row in store.queues()], sorted(store.types())
    chosen = filters.chosen(asked)
    state, status = wanted.state, wanted.status
    ended = state == State.FINAL or status in ("completed", "dead") or wanted.outcome is not None
    return frame.show(
        "jobs.html",
        now,
        title="Archive" if archive else "Jobs",
        path="/archive" if archive else "/jobs",
        archive=archive,
        jobs=found.jobs,
        cursor=found.before,
        complete=found.complete,
        before=wanted.before,
        chosen=chosen,
        more_fields=[field for field in filters.MORE if not archive or field[0] != "situation"],
        more_chosen=any(name in chosen for name, _, _ in filters.MORE) or "archive" in chosen,
        queues=queues,
        types=types,
        tabs=TABS,
        can_abort=filters.narrows(asked) and not ended and "archive" not in chosen,
        can_retry=filters.narrows(asked) and state not in ALIVE and status not in ("pending", "running", "failed"),
    )


@action("/jobs/together")
def together(frame: TheFrame, site: TheSite, data: Form) -> Html:
    """Abort or retry everything that a filter finds; asks first."""
    verb, chosen = data.get("verb", ""), filters.chosen(data)
    if verb not in ("abort", "retry"):
        raise Invalid(f"verb={quoted(verb)}: known are abort and retry.")
    if not filters.narrows(data):
        raise Invalid("Without a filter this would be about every job there is. Choose some first.")
    back = f"/jobs{query(chosen)}"
    if data.get("sure") != "yes":
        return _ask(frame, site, data, verb, back)
    act: Callable[[Job], object] = (
        (lambda job: site.app.abort(job.id, actor=frame.actor))
        if verb == "abort"
        else (lambda job: site.app.retry(job.id, actor=frame.actor))
    )
    done, refused, last = 0, 0, ""
    with site.reader() as store:
        fitting = list(_fitting(store, data, verb, MOST_TOGETHER))
    for job in fitting:
        try:
            act(job)
            done += 1
        except (Conflict, NotFound) as error:
            refused, last = refused + 1, str(error)
    said = f"{done} job{'s' * (done != 1)} {'aborted' if verb == 'abort' else 'retried as new jobs'}."
    if refused:
        said += f" {refused} could not be: {last}"
    if len(fitting) == MOST_TOGETHER:
        said += f" There may be more: {MOST_TOGETHER} are done at a time."
    return frame.go(back, said)


def _ask(frame: Frame, site: Site, data: Form, verb: str, back: str) -> Html:
    with site.reader() as store:
        found, now = list(_fitting(store, data, verb, MOST_TOGETHER + 1)), store.now()
    if not found:
        return frame.go(back, f"No job that fits can be {'aborted' if verb == 'abort' else 'retried'}.")
    many = f"the newest {MOST_TOGETHER:,} of more than as many" if len(found) > MOST_TOGETHER else f"{len(found):,}"
    chosen = ", ".join(f"{name}={value}" for name, value in filters.chosen(data).items())
    newest = max(job.id for job in found)
    sentence = (
        f"This aborts {many} jobs with {chosen}. Those that run are cancelled; none of them runs again."
        if verb == "abort"
        else f"This makes a new job for each of {many} ended jobs with {chosen}: same type, key and payload."
    )
    return frame.confirm(
        now,
        f"{verb.capitalize()} {many} jobs?",
        sentence,
        f"{verb.capitalize()} them",
        back,
        # What comes after this page was made was not seen, and is left alone.
        {**data, "newest": data.get("newest", str(newest))},
        jobs=found[:SHOWN],
    )


def _fitting(store: Store, data: Mapping[str, str], verb: str, most: int) -> Iterator[Job]:
    """The jobs of the filter that the verb can be applied to, newest first."""
    wanted: Filter = filters.wanted(data, PER_PAGE * 10)
    if data.get("newest"):
        wanted = structs.replace(wanted, before=filters.whole("newest", data["newest"]) + 1)
    if verb == "retry" and wanted.status is None and wanted.outcome is None:
        wanted = structs.replace(wanted, status="dead")
    found = 0
    for _ in range(MOST_PAGES):
        part = store.page(wanted)
        for job in part.jobs:
            if _may(job, verb):
                yield job
                found += 1
                if found == most:
                    return
        if part.before is None:
            return
        wanted = structs.replace(wanted, before=part.before)


def _may(job: Job, verb: str) -> bool:
    if verb == "abort":
        return not job.final
    return job.final and job.run is None and job.outcome in tuple(Outcome)


@page("/find")
def find(frame: TheFrame, site: TheSite) -> Html:
    """From what is typed at the top to a job: by its id, else by its key."""
    text = frame.asked("q")
    if text.isascii() and text.isdigit():
        try:
            with site.reader() as store:
                return frame.go(f"/jobs/{store.get(filters.whole('q', text)).id}", "")
        except HoldfastError:
            pass
    return frame.go(f"/jobs{query({'job_key': text, 'archive': 'yes' if text else ''})}", "")


router = Router("/", route_handlers=[jobs, together, find])
