"""A stage on PostgreSQL for all stories of a test process."""

import os
from collections.abc import Iterator

import pytest

from tests.postgres_server import Server
from tests.simulation.stages import PostgresStage
from tests.simulation.world import setting


@pytest.fixture(scope="session")
def on_postgres(postgres: Server) -> Iterator[PostgresStage]:
    stage = PostgresStage(setting(), postgres.create(f"sim_{os.getpid()}"))
    yield stage
    stage.close()
