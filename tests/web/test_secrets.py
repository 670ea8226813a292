"""Arguments marked secret reach the handler and nobody else."""

import base64
import json
import logging
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from litestar.testing import TestClient

from holdfast import WAIT, App, Invalid, Job, current_job
from holdfast.clock import MovableClock
from holdfast.jobs.job import JobError
from holdfast.web.app import create
from tests.cli.terminal import Call
from tests.raw_sql import RawSql
from tests.web.conftest import ADDRESS, Client, token

PASSWORD = "correct horse battery staple"
PARTS = (PASSWORD[:8], PASSWORD[-8:])
PAGE = {"Accept": "text/html"}


@pytest.fixture
def vault(shop: App) -> App:
    """A job type that says everything it knows, and fails with it."""

    @shop.queue("mail").job(retries=0, secrets=("password",))
    def log_in(user: str, password: str) -> None:
        current_job().log(f"{user} logs in with {password}")
        logging.getLogger("shop").warning("password %s", password)
        current_job().progress(0.5, password)
        raise RuntimeError(f"{user} may not log in with {password}")

    return shop


def enqueue(client: Client) -> int:
    body = {"queue": "mail", "job_type": "log_in", "payload": {"user": "ada", "password": PASSWORD}}
    answer = client.post("/api/v1/jobs", json=body)
    assert PASSWORD not in answer.text
    found: int = answer.json()["id"]
    return found


def test_the_api_shows_no_secret(vault: App, client: Client) -> None:
    job = enqueue(client)
    vault.run_until_idle()
    paths = ("", "/history", "/attempts", "/explain", "/log", "/events")
    said = [client.get(f"/api/v1/jobs/{job}{path}").text for path in paths]
    said += [client.get(f"/api/v1/{path}").text for path in ("jobs", "jobs?status=dead", "types", "types/log_in")]
    said += [client.get(path, headers=PAGE).text for path in ("/", "/jobs", f"/jobs/{job}")]
    assert [text for text in said if PASSWORD in text] == []
    shown = client.get(f"/api/v1/jobs/{job}").json()
    assert shown["payload"] == {"user": "ada", "password": "[secret]"}
    assert shown["error"]["message"] == "ada may not log in with [secret]"
    assert "ada logs in with [secret]" in client.get(f"/api/v1/jobs/{job}/log").text
    assert "[secret]" in said[-1]


def test_a_filter_does_not_tell_what_a_secret_begins_with(vault: App, client: Client) -> None:
    enqueue(client)
    assert client.get("/api/v1/jobs", params={"error": "correct"}).json()["items"] == []


def test_the_handler_and_a_retry_by_hand_have_the_secret(vault: App, client: Client) -> None:
    job = enqueue(client)
    vault.run_until_idle()
    again = client.post(f"/api/v1/jobs/{job}/retry").json()["id"]
    assert vault.get(again).payload["password"] == PASSWORD


def test_a_program_without_the_code_hides_it_too(vault: App, client: Client, app: Callable[..., App]) -> None:
    job = enqueue(client)
    other = app()
    assert other.get(job).shown_payload()["password"] == "[secret]"


def test_a_schedules_template_is_redacted(vault: App, client: Client) -> None:
    body = {"queue": "mail", "job_type": "log_in", "payload": {"user": "ada", "password": PASSWORD}, "every": 3600}
    assert PASSWORD not in client.put("/api/v1/schedules/hourly", json=body).text
    assert PASSWORD not in client.get("/api/v1/schedules").text


def test_the_command_line_shows_no_secret(vault: App, client: Client, cli: Call, url: str, instance: str) -> None:
    job = str(enqueue(client))
    vault.run_until_idle()
    for arguments in (
        ["show", job],
        ["show", job, "--json"],
        ["list", "--json"],
        ["log", job],
        ["attempts", job, "--json"],
    ):
        answer = cli("jobs", *arguments, "--url", url, "--instance", instance)
        assert answer.code == 0
        assert PASSWORD not in answer.out + answer.err


def test_schedules_and_the_archive_show_no_secret_on_the_command_line(
    vault: App, client: Client, clock: MovableClock, cli: Call, url: str, instance: str
) -> None:
    bank = vault.workflow("bank", secrets=["password"])
    bank.step(name="rest")(lambda task: None)
    bank.submit("monday", {"password": PASSWORD})
    enqueue(client)
    vault.run_until_idle()
    clock.advance(vault.archive_after + 60)
    payload = json.dumps({"user": "ada", "password": PASSWORD})
    for arguments in (
        ["workflows", "show", "bank", "monday", "--json"],
        ["schedules", "add", "hourly", "mail", "log_in", payload, "--every", "3600", "--json"],
        ["schedules", "list", "--json"],
        ["archive"],
        ["archive", "--export", "-"],
        ["archive", "--export", "-", "--runs"],
    ):
        answer = cli(*arguments, "--url", url, "--instance", instance)
        assert (answer.code, PASSWORD in answer.out + answer.err) == (0, False)
        assert "[secret]" in answer.out or arguments == ["archive"]


def test_only_the_payload_in_the_database_has_it(vault: App, client: Client, sql: RawSql) -> None:
    enqueue(client)
    vault.run_until_idle()
    for table in ("attempt", "log", "audit", "type"):
        stored = sql(f"select * from {{{table}}}")
        assert PASSWORD not in str(stored), table


def said_in(sql: RawSql) -> str:
    """Everything that is stored about jobs, but for their payloads."""
    jobs = sql("select progress, progress_text, error from {job}")
    return str([jobs, *(sql(f"select * from {{{table}}}") for table in ("attempt", "log"))])


def test_no_part_of_a_secret_is_left_where_a_text_is_cut(shop: App, sql: RawSql) -> None:
    @shop.queue("mail").job(retries=0, secrets=("password",))
    def log_in(password: str) -> None:
        current_job().log("x" * 9_991 + password)
        logging.getLogger("shop").warning("x" * 9_991 + password)
        current_job().progress(0.5, "x" * 991 + password)
        raise RuntimeError("x" * 9_991 + password + "x" * 19_991)

    log_in.enqueue(password=PASSWORD)
    shop.run_until_idle()
    said = said_in(sql)
    assert said.count("xxx[") > 2
    assert [part for part in PARTS if part in said] == []


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_secret_is_found_in_its_written_forms_too(shop: App, sql: RawSql, isolation: str) -> None:
    @shop.queue("mail").job(retries=0, secrets=("password",), isolation=isolation)
    def log_in(password: str) -> None:
        current_job().log(json.dumps({"password": password}))
        raise KeyError(password)

    log_in.enqueue(password=f"'{PASSWORD}\"\n")
    shop.run_until_idle()
    said = said_in(sql)
    assert "[secret]" in said
    assert PASSWORD not in said


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_secret_is_found_in_encodings_and_in_the_name_of_a_type(shop: App, sql: RawSql, isolation: str) -> None:
    @shop.queue("mail").job(retries=0, secrets=("password", "pin"), isolation=isolation)
    def log_in(password: str, pin: int) -> None:
        current_job().log(base64.b64encode(f"ada:{password}".encode()).decode())
        current_job().log(f"https://ada:{quote(password)}@example.org")
        logging.getLogger("shop").warning("%r for pin %s of 17390", password.encode(), pin)
        raise type(f"Wrong{password}", (Exception,), {})(f"pin {pin}")

    password = f"ö{PASSWORD}"
    job = log_in.enqueue(password=password, pin=739)
    shop.run_until_idle()
    said = said_in(sql)
    found = job.refresh()
    assert found.error == JobError("Wrong[secret]", "pin [secret]", "exception")
    assert "b'[secret]' for pin [secret] of 17390" in said
    encoded = (base64.b64encode(password.encode()[3:-3]).decode(), quote(password), repr(password.encode())[2:-1])
    assert [form for form in (password, *encoded) if form in said] == []


def test_a_result_shows_no_secret_and_programs_get_it(
    shop: App, client: Client, cli: Call, url: str, instance: str, clock: MovableClock
) -> None:
    @shop.queue("mail").job(secrets=("password", "pin"))
    def log_in(password: str, pin: int) -> dict[str, Any]:
        return {"said": f"it is {password}", password: [pin, 17390]}

    job = log_in.enqueue(password=PASSWORD, pin=739)
    shop.run_until_idle()
    assert job.refresh().result == {"said": f"it is {PASSWORD}", PASSWORD: [739, 17390]}
    shown = {"said": "it is [secret]", "[secret]": ["[secret]", 17390]}
    assert client.get(f"/api/v1/jobs/{job.id}").json()["result"] == shown
    asked = ["--url", url, "--instance", instance]
    assert cli("jobs", "show", job.id, "--json", *asked).json["result"] == shown
    said = [client.get(f"/jobs/{job.id}", headers=PAGE).text, cli("jobs", "show", job.id, *asked).out]
    clock.advance(shop.archive_after + 60)
    shop.run_until_idle()
    cli("archive", *asked)
    said += [cli("archive", "--export", "-", *asked).out, client.get("/api/v1/jobs?archive=true").text]
    assert "[secret]" in said[-2]
    assert [text for text in said if PASSWORD in text] == []


def test_what_a_task_returns_is_stored_without_the_secrets_of_its_run(shop: App, sql: RawSql) -> None:
    bank = shop.workflow("bank", secrets=["password"])
    bank.step(name="log_in")(lambda task: {"used": task.params["password"]})
    bank.submit("monday", {"password": PASSWORD})
    shop.run_until_idle()
    assert "used" in str(sql("select result from {job} where run is not null"))
    assert PASSWORD not in str(sql("select result from {job}"))


def test_what_an_outside_system_answers_is_shown_without_secrets(shop: App, client: Client) -> None:
    @shop.queue("mail").job(secrets=("password",))
    def log_in(password: str) -> object:
        return WAIT

    job = log_in.enqueue(password=PASSWORD)
    shop.run_until_idle()
    answer = client.post(f"/api/v1/jobs/{job.id}/complete", json={"result": {"was": PASSWORD}})
    assert answer.status_code < 300, answer.text
    assert PASSWORD not in answer.text + client.get(f"/api/v1/jobs/{job.id}").text


def test_a_retry_handler_that_fails_tells_no_secret(shop: App, sql: RawSql) -> None:
    @shop.queue("mail").job(secrets=("password",))
    def log_in(password: str) -> None:
        raise RuntimeError("not today")

    @log_in.retry_handler
    def again(job: Job, error: JobError) -> Any:
        raise RuntimeError(f"no more of {job.payload['password']}")

    job = log_in.enqueue(password=PASSWORD)
    shop.run_until_idle()
    assert "no more of [secret]" in str(job.refresh().error)
    assert PASSWORD not in said_in(sql)


def test_a_stored_secret_that_does_not_fit_any_more_is_not_told(app: Callable[..., App], sql: RawSql) -> None:
    for kind in (str, int):
        shop = app()

        def log_in(password: Any) -> None: ...

        log_in.__annotations__["password"] = kind
        declared = shop.queue("mail").job(secrets=("password",))(log_in)
        if kind is str:
            declared.enqueue(password=PASSWORD * 2)
    shop.run_until_idle()
    said = said_in(sql)
    assert "password` must be int, got str" in said
    assert [part for part in PARTS if part in said] == []


def test_a_secret_that_is_no_argument_is_refused(shop: App) -> None:
    with pytest.raises(Invalid, match="no argument `passwort`"):

        @shop.queue("mail").job(secrets=("passwort",))
        def other(password: str) -> Any: ...


def test_secret_params_of_a_workflow_are_shown_to_nobody(shop: App, client: Client) -> None:
    bank = shop.workflow("bank", params={"password": "", "user": "ada"}, secrets=["password"])
    seen = []

    @bank.step()
    def unlock(task: Any) -> None:
        task.publish(password=task.params["password"])

    @bank.step(after=["unlock"], retries=0)
    def log_in(task: Any) -> None:
        seen.append(task.params["password"])
        current_job().log(f"{task.params['user']} has {task.params['password']}")
        raise RuntimeError(f"{task.params['password']} is wrong")

    shop.schedule("daily", every=86400, workflow=bank, request={"params": {"password": PASSWORD}})
    answer = client.post("/api/v1/workflows/bank", json={"trigger": "monday", "params": {"password": PASSWORD}})
    assert answer.json()["params"]["password"] == "[secret]"
    shop.run_until_idle()
    fired = client.post("/api/v1/schedules/daily/fire")
    shop.run_until_idle()
    task = client.get("/api/v1/workflows/bank/monday/steps/log_in/tasks").json()["items"][0]["id"]
    paths = (
        *("workflows/bank/monday", "workflows", "schedules", "jobs", f"jobs/{fired.json()['id']}", "events"),
        *(f"jobs/{task}{path}" for path in ("", "/attempts", "/log", "/events")),
    )
    said = [answer.text, fired.text, *(client.get(f"/api/v1/{path}").text for path in paths if path != "events")]
    said += [client.get(path, headers=PAGE).text for path in ("/workflows/bank/monday", "/schedules")]
    assert [text for text in said if PASSWORD in text] == []
    assert seen == [PASSWORD] * 2
    assert "ada has [secret]" in client.get(f"/api/v1/jobs/{task}/log").text
    assert shop.workflow_run("bank", "monday").params["password"] == PASSWORD


def test_a_worker_hides_the_params_of_tasks_that_it_made_itself(shop: App, sql: RawSql) -> None:
    """It does not read them anew."""
    bank = shop.workflow("bank", secrets=["password"])
    bank.step(name="unlock")(lambda task: None)
    bank.step(name="log_in", after=["unlock"])(lambda task: current_job().log(f"with {task.params['password']}"))
    with shop.worker():
        bank.submit("monday", {"password": PASSWORD}).wait(60)
    said = said_in(sql)
    assert "with [secret]" in said
    assert PASSWORD not in said


def test_secrets_of_a_workflow_are_names(shop: App) -> None:
    wrong = shop.workflow("wrong", secrets=[7])  # type: ignore[list-item]

    @wrong.step()
    def one(task: Any) -> None: ...

    with pytest.raises(Invalid, match="secrets"):
        wrong.submit("monday")


def declared(app: App, *secrets: str) -> Any:
    """A type that says its argument, by code that calls it secret or does not."""

    @app.queue("mail").job(retries=0, secrets=secrets)
    def log_in(user: str, password: str) -> str:
        current_job().log(f"{user} logs in with {password}")
        if user == "bob":
            raise RuntimeError(f"not with {password}")
        return password

    return log_in


def test_an_argument_that_was_secret_once_stays_hidden(
    app: Callable[..., App], cli: Call, url: str, instance: str, clock: MovableClock, sql: RawSql
) -> None:
    old = app()
    log_in = declared(old, "password")
    jobs = [log_in.enqueue(user=user, password=PASSWORD) for user in ("ada", "bob")]
    old.schedule("hourly", job=log_in, every=3600, payload={"user": "ada", "password": PASSWORD})
    old.store.queues()
    new = app()
    declared(new)
    new.run_until_idle()
    assert PASSWORD not in said_in(sql)
    assert new.get(jobs[0].id).result == PASSWORD
    with TestClient(create(new), base_url=ADDRESS) as client:
        client.headers["Authorization"] = f"Bearer {token(new)}"
        paths = [f"jobs/{job.id}{path}" for job in jobs for path in ("", "/attempts", "/log", "/history", "/explain")]
        said = [client.get(f"/api/v1/{path}").text for path in (*paths, "jobs", "types", "schedules")]
        said += [client.get(path, headers=PAGE).text for path in (f"/jobs/{jobs[0].id}", "/jobs", "/schedules")]
        assert client.get("/api/v1/types/log_in").json()["secrets"] == ["password"]
    asked = ["--url", url, "--instance", instance]
    said += [cli("jobs", "show", jobs[0].id, *asked).out, cli("schedules", "list", "--json", *asked).out]
    clock.advance(new.archive_after + 60)
    cli("archive", *asked)
    said += [cli("archive", "--export", "-", *asked).out]
    assert [text for text in said if PASSWORD in text] == []
    assert "[secret]" in said[-1]


def test_code_of_both_kinds_at_once_forgets_no_secret(app: Callable[..., App], sql: RawSql) -> None:
    for secrets in (["password"], [], ["user"], []):
        made = app()
        declared(made, *secrets)
        made.store.queues()
    assert set(app().secrets("log_in")) == {"password", "user"}


def test_an_error_about_an_argument_that_was_secret_once_does_not_tell_it(app: Callable[..., App], sql: RawSql) -> None:
    old = app()
    declared(old, "password").enqueue(user="ada", password=PASSWORD * 2)
    new = app()

    @new.queue("mail").job
    def log_in(user: str, password: int) -> None: ...

    new.run_until_idle()
    said = said_in(sql)
    assert "password` must be int, got str" in said
    assert [part for part in PARTS if part in said] == []


def test_a_param_that_was_secret_once_stays_hidden(app: Callable[..., App], sql: RawSql) -> None:
    """In runs of then, and in those that a schedule of then submits by code of now."""

    def declare(made: App, *secrets: str) -> Any:
        bank = made.workflow("bank", params={"password": ""}, secrets=secrets)
        bank.step(name="log_in")(lambda task: current_job().log(f"with {task.params['password']}"))
        return bank

    old = app()
    bank = declare(old, "password")
    bank.submit("monday", {"password": PASSWORD})
    old.schedule("daily", every=86400, workflow=bank, request={"params": {"password": PASSWORD}})
    old.store.queues()
    new = app()
    again = declare(new)
    new.schedule("daily", every=86400, workflow=again, request={"params": {"password": PASSWORD}})
    fired = new.fire_schedule("daily")
    new.run_until_idle()
    runs = new.workflow_runs("bank")
    assert [run.row.shown_params for run in runs] == [{"password": "[secret]"}] * 2
    assert fired.refresh().shown_payload()["params"] == "[secret]"
    assert said_in(sql).count("with [secret]") == 2
    assert PASSWORD not in said_in(sql)
    assert new.submit("bank", "tuesday", {"password": PASSWORD}).row.shown_params == {"password": "[secret]"}
