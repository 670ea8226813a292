"""`@app.around` wraps every attempt, whoever calls the handler."""

import asyncio
import contextvars
import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import WAIT, App, Failed, Invalid, NoDelay, Retry, current_job
from holdfast.worker.around import WrappedHandler

TENANT: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")
WAYS = ("thread", "loop", "process", "process loop")


@pytest.fixture
def holdfast(app: Callable[..., App]) -> App:
    return app()


def handled(app: App, way: str, body: Callable[[dict[str, Any]], Any], **options: Any) -> Any:
    """A job type whose handler does this in that way."""

    def plain(tenant: str = "", fail: str = "") -> Any:
        return body({"tenant": tenant, "fail": fail})

    async def awaited(tenant: str = "", fail: str = "") -> Any:
        await asyncio.sleep(0)
        return body({"tenant": tenant, "fail": fail})

    isolation = {"isolation": "process"} if "process" in way else {}
    return app.queue("mail").job(name="send", **isolation, **options)(awaited if "loop" in way else plain)


@pytest.mark.parametrize("way", WAYS)
def test_an_around_sees_the_job_and_the_handler_sees_what_it_set(holdfast: App, way: str) -> None:
    @holdfast.around
    def with_tenant(job: Any) -> Iterator[None]:
        assert (job.id, job.attempt, job.job_key) == (current_job().id, current_job().attempt, "k")
        token = TENANT.set(f"{job.payload['tenant']} by {job.job_type}")
        yield
        TENANT.reset(token)

    send = handled(holdfast, way, lambda _: [TENANT.get(), current_job().id, os.getpid()])
    job = send.using(job_key="k").enqueue(tenant="ada")
    holdfast.run_until_idle()

    tenant, number, process = job.unwrap(5)
    assert (tenant, number) == ("ada by send", job.id)
    assert (process != os.getpid()) == ("process" in way)
    assert TENANT.get() == "nobody"


@pytest.mark.parametrize("way", WAYS)
def test_several_nest_in_the_order_of_their_declaration(holdfast: App, way: str, tmp_path: Path) -> None:
    said = tmp_path / "said"

    def say(text: str) -> None:
        with said.open("a") as file:
            file.write(text + "\n")

    @holdfast.around
    def outer(job: Any) -> Iterator[None]:
        say("outer begins")
        yield
        say("outer ends")

    @holdfast.around
    def inner(job: Any) -> Iterator[None]:
        say("inner begins")
        try:
            yield
        except ValueError as error:
            say(f"inner saw {error}")
            raise
        finally:
            say("inner ends")

    def body(given: dict[str, Any]) -> None:
        say("handler")
        if given["fail"]:
            raise ValueError(given["fail"])

    send = handled(holdfast, way, body, retries=0)
    well, badly = send.enqueue(), send.enqueue(fail="boo")
    holdfast.run_until_idle()

    assert said.read_text().splitlines() == [
        *("outer begins", "inner begins", "handler", "inner ends", "outer ends"),
        *("outer begins", "inner begins", "handler", "inner saw boo", "inner ends"),
    ]
    assert (well.refresh().outcome, badly.refresh().outcome) == ("success", "error")
    assert str(badly.refresh().error) == "boo"
    assert "in body" in (badly.attempts()[0].traceback or "")


@pytest.mark.parametrize("way", WAYS)
def test_an_around_may_turn_what_the_handler_raised_into_something_else(holdfast: App, way: str) -> None:
    @holdfast.around
    def translate(job: Any) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            raise Failed(f"not worth a retry: {error}") from error
        except KeyError:
            pass  # as with contextlib: what is swallowed has not happened

    def body(given: dict[str, Any]) -> Any:
        raise {"value": ValueError("boo"), "key": KeyError("k")}[given["fail"]]

    send = handled(holdfast, way, body)
    failed, swallowed = send.enqueue(fail="value"), send.enqueue(fail="key")
    holdfast.run_until_idle()

    assert (failed.refresh().outcome, str(failed.refresh().error)) == ("failed", "not worth a retry: boo")
    assert (swallowed.refresh().outcome, swallowed.refresh().result) == ("success", None)


@pytest.mark.parametrize("way", WAYS)
def test_an_around_that_raises_before_it_yields_ends_the_attempt_with_that_error(holdfast: App, way: str) -> None:
    @holdfast.around
    def locked_out(job: Any) -> Iterator[None]:
        if job.attempt == 1:
            raise Retry("not yet", delay=0)
        yield

    send = handled(holdfast, way, lambda _: "called")
    job = send.enqueue()
    assert holdfast.run_until_idle() == 2

    assert (job.refresh().result, job.refresh().failures) == ("called", 1)
    assert str(job.attempts()[0].error) == "not yet"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("yields", [0, 2])
def test_an_around_must_yield_exactly_once(holdfast: App, way: str, yields: int) -> None:
    @holdfast.around
    def odd(job: Any) -> Iterator[None]:
        for _ in range(yields):
            yield

    send = handled(holdfast, way, lambda _: "called", retries=0)
    job = send.enqueue()
    holdfast.run_until_idle()

    error = job.refresh().error
    assert error is not None
    assert error.type == "Invalid"
    assert ("odd` did not yield" if yields == 0 else "odd` yielded twice") in str(error)
    assert "exactly once" in str(error)


def test_a_runtime_error_of_the_handler_stays_what_it_is(holdfast: App) -> None:
    @holdfast.around
    def around(job: Any) -> Iterator[None]:
        yield

    def body(_: Any) -> Any:
        raise RuntimeError("mine")

    job = handled(holdfast, "thread", body, retries=0).enqueue()
    holdfast.run_until_idle()

    assert (job.refresh().error.type, str(job.refresh().error)) == ("RuntimeError", "mine")


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_async_arounds_wrap_async_handlers_beside_plain_ones(holdfast: App, isolation: str) -> None:
    @holdfast.around
    def plain(job: Any) -> Iterator[None]:
        token = TENANT.set(TENANT.get() + " plain")
        yield
        TENANT.reset(token)

    @holdfast.around
    async def awaited(job: Any) -> AsyncIterator[None]:
        await asyncio.sleep(0)
        token = TENANT.set(TENANT.get() + " awaited")
        try:
            yield
        except ValueError as error:
            await asyncio.sleep(0)
            raise Failed(f"{TENANT.get()}: {error}") from error
        TENANT.reset(token)

    @holdfast.queue("mail").job(isolation=isolation)
    async def send(fail: bool = False) -> str:
        await asyncio.sleep(0)
        if fail:
            raise ValueError("boo")
        return TENANT.get()

    well, badly = send.enqueue(), send.enqueue(fail=True)
    holdfast.run_until_idle()

    assert well.refresh().result == "nobody plain awaited"
    assert (badly.refresh().outcome, str(badly.refresh().error)) == ("failed", "nobody plain awaited: boo")


@pytest.mark.parametrize("yields", [0, 2])
def test_an_async_around_must_yield_exactly_once(holdfast: App, yields: int) -> None:
    @holdfast.around
    async def odd(job: Any) -> AsyncIterator[None]:
        for _ in range(yields):
            yield

    job = handled(holdfast, "loop", lambda _: "called", retries=0).enqueue()
    holdfast.run_until_idle()

    assert ("odd` did not yield" if yields == 0 else "odd` yielded twice") in str(job.refresh().error)


def test_an_async_around_beside_a_plain_handler_is_refused_when_a_worker_is_made(holdfast: App) -> None:
    @holdfast.around
    async def awaited(job: Any) -> AsyncIterator[None]:
        yield

    handled(holdfast, "thread", lambda _: None)
    with pytest.raises(Invalid, match=r"`.*awaited` is `async def`, and `send` has a plain handler"):
        holdfast.run_until_idle()
    with pytest.raises(Invalid, match="Write the around with `def`"):
        holdfast.worker()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.claim("R3")
def test_response_handlers_are_wrapped_too(holdfast: App, way: str) -> None:
    @holdfast.around
    def with_tenant(job: Any) -> Iterator[None]:
        token = TENANT.set(job.payload["tenant"])
        yield
        TENANT.reset(token)

    send = handled(holdfast, way, lambda _: WAIT)

    def answered(job: Any, response: Any) -> Any:
        return [TENANT.get(), response, current_job().attempt]

    async def awaited(job: Any, response: Any) -> Any:
        await asyncio.sleep(0)
        return answered(job, response)

    send.response_handler(awaited if "loop" in way else answered)
    job = send.using(job_key="k").enqueue(tenant="ada")
    holdfast.run_until_idle()
    holdfast.complete("send", "k", result="yes")
    holdfast.run_until_idle()

    assert job.refresh().result == ["ada", "yes", 2]


def test_a_payload_that_no_longer_converts_is_seen_by_the_arounds(holdfast: App) -> None:
    seen: list[str] = []

    @holdfast.around
    def track(job: Any) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            seen.append(type(error).__name__)
            raise

    @holdfast.queue("mail").job
    async def send(n: int) -> None: ...

    @holdfast.queue("mail").job
    def scan(n: int) -> None: ...

    jobs = [send.enqueue(n=1), scan.enqueue(n=1)]
    other = App(holdfast.db_config, name=holdfast.name, clock=holdfast.clock)
    other.around(track)

    @other.queue("mail").job(name="send")
    async def send_of_today(n: list[str]) -> None: ...

    @other.queue("mail").job(name="scan")
    def scan_of_today(n: list[str]) -> None: ...

    other.run_until_idle()
    other.close()
    assert [job.refresh().error.kind for job in jobs] == ["payload", "payload"]
    assert len(seen) == 2


@pytest.mark.parametrize("way", WAYS)
def test_a_live_worker_wraps_as_well_and_a_timeout_passes_through_the_around(holdfast: App, way: str) -> None:
    holdfast.clock = type(holdfast.clock).__base__()

    @holdfast.around
    def with_tenant(job: Any) -> Iterator[None]:
        token = TENANT.set(job.payload["tenant"])
        try:
            yield
        finally:
            TENANT.reset(token)

    send = handled(holdfast, way, lambda _: TENANT.get(), retry=NoDelay())

    @holdfast.queue("mail").job(timeout=0.05, retries=0)
    async def stuck(tenant: str) -> None:
        await asyncio.sleep(60)

    with holdfast.worker(concurrency=4):
        jobs = [send.enqueue(tenant=f"t{number}") for number in range(10)]
        assert [job.unwrap(30) for job in jobs] == [f"t{number}" for number in range(10)]
        assert stuck.enqueue(tenant="x").wait(30).error.kind == "timeout"


def test_what_cannot_be_an_around_is_refused_where_it_is_declared(holdfast: App) -> None:
    with pytest.raises(Invalid, match="is no generator function"):
        holdfast.around(lambda job: None)

    def too_many(job: Any, more: Any) -> Iterator[None]:
        yield

    with pytest.raises(Invalid, match="must take one argument, the job"):
        holdfast.around(too_many)


@pytest.mark.parametrize("way", WAYS)
def test_a_handler_knows_its_job_without_arounds_too(holdfast: App, way: str) -> None:
    job = handled(holdfast, way, lambda _: current_job().id).enqueue()
    holdfast.run_until_idle()

    assert job.refresh().result == job.id


def test_an_app_without_arounds_has_its_handlers_as_they_are(holdfast: App) -> None:
    send = handled(holdfast, "thread", lambda _: None)
    assert holdfast.handlers == {"send": send.handler}
    assert holdfast.handlers["send"] is send.handler

    @holdfast.around
    def around(job: Any) -> Iterator[None]:
        yield

    assert isinstance(holdfast.handlers["send"], WrappedHandler)
    assert around(None) is not None  # the function is still the function
