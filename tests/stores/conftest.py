"""After every test of a store the invariants hold over whatever the test left behind.

On PostgreSQL an instance costs a tenth of a second to make, so one that a test has used is emptied and used again.
"""

from collections.abc import Iterator

import psycopg
import pytest

from tests.conftest import names
from tests.invariants import check_invariants

EMPTIED = (
    *(
        "ready",
        "aside",
        "bucket",
        "waiting",
        "parked",
        "undecided",
        "held",
        "hold",
        "lease",
        "key",
        "job",
        "archive",
        "attempt",
        "log",
        "audit",
        "abort",
    ),
    *("dead", "ended", "worker", "duty", "type", "breaker", "firing", "schedule", "part", "routine"),
    *("step", "publication", "run", "trigger"),
)
QUEUE_TABLES = (
    "select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid where i.inhparent = to_regclass(%s)"
)


@pytest.fixture(scope="session")
def used_instances() -> list[str]:
    return []


@pytest.fixture
def instance(request: pytest.FixtureRequest, used_instances: list[str]) -> Iterator[str]:
    """An instance with nothing in it, perhaps set up already, with at most the queue `mail`."""
    url = request.getfixturevalue("url") if "url" in request.fixturenames else ""
    if not url.startswith("postgresql"):
        yield next(names)
        return
    name = used_instances.pop() if used_instances else next(names)
    yield name
    if empty(url, name):
        used_instances.append(name)


def empty(url: str, name: str) -> bool:
    """Take everything out, past the law. False if the instance is not as every other test expects it."""
    with psycopg.connect(url, autocommit=True) as connection:
        tables = [row[0] for row in connection.execute(QUEUE_TABLES, [f"{name}__job"])]
        if tables != [f"{name}_mail"]:
            return False
        statements = ["set session_replication_role = replica"]  # no triggers
        statements += [f"delete from {name}__{table}" for table in EMPTIED]
        statements += [
            f"update {name}__queue set claim_order = 'priority', declared_limit = 0, set_limit = null, paused = false, throttler = null"
        ]
        statements += [f"select setval('{name}__job_id', 1, false)"]
        connection.execute("; ".join(statements).encode())
        return True


@pytest.fixture(autouse=True)
def invariants(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test may leave nothing behind that breaks them, unless it is marked so."""
    if not {"url", "instance"} <= set(request.fixturenames):
        yield
        return
    url, instance = request.getfixturevalue("url"), request.getfixturevalue("instance")
    yield
    if request.node.get_closest_marker("broken_on_purpose") is None:
        check_invariants(url, instance)
