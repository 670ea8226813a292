"""Q2, Q3, Q4: queues and their operators, job types and what nobody handles."""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast import App, Conflict, Fixed, Invalid, NotFound
from holdfast.stores.contract import QueueDeclared, Store
from tests.by_hand import WorkerByHand, add

Make = Callable[..., App]


def declared(app: App, queue: str = "mail", **options: Any) -> Any:
    @app.queue(queue).job(name="send", **options)
    def send(to: str = "") -> str:
        return to

    return send


def by_name(store: Store, name: str = "mail") -> Any:
    return next(row for row in store.queues() if row.name == name)


@pytest.mark.claim("Q2")
def test_a_paused_queue_starts_nothing_until_it_is_resumed(app: Make) -> None:
    holdfast = app()
    send = declared(holdfast)
    send.enqueue("a")
    held = WorkerByHand(holdfast.store, ["send"])
    call = held.claim_one()
    send.enqueue("b")

    holdfast.pause("mail")

    assert held.succeed(call) == 0  # what runs goes on
    assert holdfast.run_until_idle() == 0
    assert app().run_until_idle() == 0  # for everybody, and after a restart
    holdfast.resume("mail")
    assert holdfast.run_until_idle() == 1


@pytest.mark.claim("Q2")
def test_pausing_twice_is_pausing_once_and_others_go_on(app: Make) -> None:
    holdfast = app()
    declared(holdfast)

    @holdfast.queue("post").job
    def scan() -> None: ...

    declared_again = app()
    scan.enqueue()
    for _ in range(2):
        holdfast.pause("mail")
    assert by_name(holdfast.store).paused
    assert holdfast.run_until_idle() == 1
    holdfast.resume("mail")
    assert not by_name(declared_again.store).paused
    for name in ("pause", "resume"):
        with pytest.raises(NotFound, match="There is no queue `nowhere`"):
            getattr(holdfast, name)("nowhere")


@pytest.mark.claim("Q2")
def test_a_limit_below_one_is_none_and_is_the_default(store: Store) -> None:
    assert by_name(store).throttle_limit < 1


@pytest.mark.claim("Q2")
def test_what_an_operator_set_wins_over_the_code_until_it_is_reset(store: Store, instance: str) -> None:
    def declare(limit: float) -> None:
        store.register([QueueDeclared("mail", f"{instance}_mail", throttle_limit=limit)], [])

    declare(10)
    assert by_name(store).throttle_limit == 10
    store.limit("mail", 5, "ann")
    store.pause("mail", True, "ann")
    declare(20)  # a restart with other code
    row = by_name(store)
    assert (row.throttle_limit, row.declared_limit, row.paused) == (5, 20, True)

    store.limit("mail", None, "ann")

    assert by_name(store).throttle_limit == 20
    with pytest.raises(NotFound, match="nowhere"):
        store.limit("nowhere", 5, "ann")


@pytest.mark.claim("Q2")
def test_the_job_types_of_a_queue_are_registered_in_the_database(app: Make) -> None:
    holdfast = app()
    declared(holdfast)

    @holdfast.queue("mail").job
    def scan() -> None: ...

    holdfast.find()
    types = app().store.types()
    assert {name: row.queue for name, row in types.items()} == {"send": "mail", "scan": "mail"}


@pytest.mark.claim("Q3")
def test_a_type_keeps_its_defaults_and_what_it_has(app: Make) -> None:
    holdfast = app()
    options: dict[str, Any] = {
        "timeout": 5.5,
        "retries": 7,
        "retry": Fixed(3),
        "priority": 12.5,
        "throttle_factor": 0.5,
    }
    options |= {"time_windows": ["01:00-02:00"], "on_crash": "timeout", "max_crashes": 9, "labels": ["gpu"]}
    send = declared(holdfast, **options)

    holdfast.find()
    row = app().store.types()["send"]

    assert (row.default_timeout, row.default_retries, row.default_priority, row.default_throttle_factor) == (
        5.5,
        7,
        12.5,
        0.5,
    )
    assert (row.default_time_windows, row.on_crash, row.max_crashes, row.labels) == (
        ("01:00-02:00",),
        "timeout",
        9,
        ("gpu",),
    )
    assert (row.has_handler, row.has_retry_handler, row.has_response_handler) == (True, False, False)
    assert row.retry is not None
    assert '"to"' in (row.schema or "")
    send.retry_handler(lambda job, error: None)
    assert holdfast.store.types()["send"].has_retry_handler


@pytest.mark.claim("Q3")
def test_a_job_overrides_any_default_and_keeps_its_own_copy(app: Make) -> None:
    old = app()
    send = declared(old, timeout=5, retries=1, priority=50, throttle_factor=2)
    plain = send.enqueue()
    own = send.using(timeout=6, retries=0, priority=1, throttle_factor=3, time_windows=["00:00-12:00"]).enqueue()

    new = app()
    declared(new, timeout=99, retries=9, priority=9, throttle_factor=9)
    new.find()

    for job, values in ((plain, (5, 1, 50, 2, ())), (own, (6, 0, 1, 3, ("00:00-12:00",)))):
        found = new.get(job.id)
        assert (found.timeout, found.retries, found.priority, found.throttle_factor, found.time_windows) == values


@pytest.mark.claim("Q3")
def test_creating_a_job_by_name_registers_its_type(app: Make) -> None:
    holdfast = app()
    holdfast.queue("mail")

    job = holdfast.enqueue("mail", "unheard_of", {"anything": [1, None]}, job_key="k", priority=3)

    assert (job.queue, job.job_type, job.job_key, job.payload, job.priority) == (
        "mail",
        "unheard_of",
        "k",
        {"anything": [1, None]},
        3,
    )
    row = holdfast.store.types()["unheard_of"]
    assert (row.queue, row.has_handler, row.schema, row.default_timeout, row.default_retries) == (
        "mail",
        False,
        None,
        30,
        3,
    )
    assert holdfast.enqueue("mail", "unheard_of", {}).id > job.id


@pytest.mark.claim("Q3")
def test_by_name_a_stored_types_defaults_and_schema_hold_without_its_code(app: Make) -> None:
    code, caller = app(), app()
    declared(code, priority=7, timeout=8, retries=9)
    code.find()

    job = caller.enqueue("mail", "send", {"to": "a"})

    assert (job.priority, job.timeout, job.retries) == (7, 8, 9)
    for payload in ({"to": 5}, {"nobody": "a"}):
        with pytest.raises(Invalid, match=r"send: argument `(to|nobody)`"):
            caller.enqueue("mail", "send", payload)
    assert len(caller.find()) == 1
    assert code.run_until_idle() == 1


@pytest.mark.claim("Q3")
def test_a_type_belongs_to_one_queue(app: Make) -> None:
    holdfast, caller = app(), app()
    declared(holdfast)
    holdfast.queue("post")
    holdfast.find()

    for each in (holdfast, caller):
        with pytest.raises(Conflict, match="Job type `send` belongs to queue `mail`, not to `post`"):
            each.enqueue("post", "send", {"to": "a"})
        with pytest.raises(NotFound, match="There is no queue `nowhere`"):
            each.enqueue("nowhere", "another", {})

    assert holdfast.find() == []
    assert "another" not in holdfast.store.types()


@pytest.mark.claim("Q3")
def test_code_that_declares_a_type_elsewhere_moves_it_for_new_jobs_only(app: Make) -> None:
    old, new = app(), app()
    living = declared(old).using(job_key="k").enqueue("old")
    send = declared(new, "post")
    fresh = send.enqueue("new")
    same = send.using(job_key="k").enqueue("dup")

    assert (living.refresh().queue, fresh.queue) == ("mail", "post")
    assert (same.id, same.duplicate) == (living.id, True)
    with pytest.raises(Conflict, match="belongs to queue `post`"):
        app().enqueue("mail", "send", {"to": "x"})
    assert new.run_until_idle() == 2  # the living one ends where it is
    assert (living.refresh().queue, living.refresh().result) == ("mail", "old")


@pytest.mark.claim("Q3")
def test_the_same_type_twice_in_one_program_is_a_conflict(app: Make) -> None:
    holdfast = app()
    declared(holdfast)

    with pytest.raises(Conflict, match="Job type `send` is declared twice"):
        declared(holdfast, "post")


@pytest.mark.claim("Q4")
def test_a_job_that_nobody_handles_waits_unharmed(app: Make) -> None:
    holdfast, caller = app(), app()
    send = declared(holdfast)
    caller.queue("mail")
    lonely = caller.enqueue("mail", "nobody", {}, priority=1)
    job = send.enqueue("a")

    for _ in range(3):
        holdfast.run_until_idle()

    found = lonely.refresh()
    assert (found.state, found.attempt, found.error) == ("initial", 0, None)
    assert job.refresh().outcome == "success"

    @caller.queue("mail").job
    def nobody() -> str:
        return "somebody"

    assert caller.run_until_idle() == 1
    assert lonely.refresh().result == "somebody"


@pytest.mark.claim("Q4")
def test_a_worker_claims_only_types_it_handles(store: Store) -> None:
    other, own = add(store, "print", priority=1), add(store)
    worker = WorkerByHand(store, ["send"])

    assert [call.id for call in worker.claim(10)] == [own.id]
    assert WorkerByHand(store, []).claim(10) == []
    assert store.get(other.id).state == "initial"


@pytest.mark.claim("Q2")
def test_a_queue_declared_after_the_first_operation_is_there_for_the_next(app: Make) -> None:
    holdfast = app()
    declared(holdfast).enqueue("a")

    @holdfast.queue("post").job
    def scan() -> int:
        return 1

    job = scan.enqueue()
    assert holdfast.run_until_idle() == 2
    assert job.refresh().result == 1
