"""`/healthz` and `/readyz`, which a load balancer asks."""

import os

import psycopg
import pytest
from litestar.testing import TestClient

from holdfast import App
from holdfast.web.app import create
from tests.postgres_server import Server
from tests.web.conftest import ADDRESS, Client


@pytest.mark.claim("C7")
def test_a_server_is_not_ready_while_its_database_takes_no_writes(postgres: Server) -> None:
    database = f"health_{os.getpid()}"
    app = App(postgres.create(database))
    try:
        with (
            TestClient(create(app), base_url=ADDRESS) as client,
            psycopg.connect(postgres.url(), autocommit=True) as operator,
        ):

            def read_only(value: str) -> None:
                operator.execute(f"alter database {database} set default_transaction_read_only = {value}".encode())
                operator.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", [database]
                )

            assert client.get("/readyz").json() == {"status": "ok"}
            read_only("on")
            answers = [client.get("/readyz") for _ in range(3)]  # the first may be told of the lost connection
            assert [(answer.status_code, answer.json()) for answer in answers] == [(503, {"status": "unavailable"})] * 3
            assert client.get("/healthz").status_code == 200
            read_only("off")
            assert 200 in [client.get("/readyz").status_code for _ in range(3)]
    finally:
        app.close()
        postgres.drop(database)


def test_both_answer_to_head_without_a_token(stranger: Client) -> None:
    for path in ("/healthz", "/readyz"):
        answer = stranger.head(path)
        assert (answer.status_code, answer.headers["content-length"]) == (200, str(len(stranger.get(path).content)))
