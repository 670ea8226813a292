"""Queues: how full they are, their job types; pause, resume, limit, and the breakers of the types."""

from litestar import Router
from litestar.params import FromPath

from holdfast.errors import Invalid, quoted
from holdfast.stores.contract import TypeRow
from holdfast.web.pages.page import Form, Html, TheFrame, action, page
from holdfast.web.site import TheSite


@page("/queues")
def queues(frame: TheFrame, site: TheSite) -> Html:
    with site.reader() as store:
        seen, rows, types = store.glance(), store.queues(), store.types()
        breakers, workers = store.breakers(), store.workers()
    by_queue: dict[str, list[TypeRow]] = {row.name: [] for row in rows}
    for type_ in sorted(types.values(), key=lambda each: each.job_type):
        by_queue.setdefault(type_.queue, []).append(type_)
    return frame.show(
        "queues.html",
        seen.time,
        seen=seen,
        queues=rows,
        loads={load.name: load for load in seen.queues},
        types=by_queue,
        breakers={breaker.job_type: breaker for breaker in breakers},
        handled={name for worker in workers if not worker.stopping for name in worker.types},
    )


@action("/queues/{queue:str}/pause")
def pause(frame: TheFrame, site: TheSite, queue: FromPath[str]) -> Html:
    site.app.pause(queue, actor=frame.actor)
    return frame.go("/queues", f"Queue {queue} is paused: no job of it starts until it is resumed.")


@action("/queues/{queue:str}/resume")
def resume(frame: TheFrame, site: TheSite, queue: FromPath[str]) -> Html:
    site.app.resume(queue, actor=frame.actor)
    return frame.go("/queues", f"Queue {queue} is open again.")


@action("/queues/{queue:str}/limit")
def limit(frame: TheFrame, site: TheSite, queue: FromPath[str], data: Form) -> Html:
    if data.get("declared"):
        site.app.limit(queue, None, actor=frame.actor)
        return frame.go("/queues", f"Queue {queue} has the limit that the code declares.")
    wanted = _limit(data.get("limit", ""))
    site.app.limit(queue, wanted, actor=frame.actor)
    return frame.go("/queues", f"Queue {queue} has {f'a limit of {wanted:g}' if wanted >= 1 else 'no limit'}.")


def _limit(text: str) -> float:
    try:
        return float(text.strip() or 0)
    except ValueError:
        raise Invalid(f"throttle_limit {quoted(text)}: give a number, or nothing for no limit.") from None


@action("/types/{job_type:str}/reset")
def reset(frame: TheFrame, site: TheSite, job_type: FromPath[str]) -> Html:
    site.app.reset_breaker(job_type, actor=frame.actor)
    return frame.go("/queues", f"The breaker of {job_type} is closed; its jobs start again.")


router = Router("/", route_handlers=[queues, pause, resume, limit, reset])
