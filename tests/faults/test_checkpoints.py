"""A checkpoint outlives the worker that saved it."""

from pathlib import Path

import pytest

from holdfast import Progress
from tests.faults.fleet import make_app, until, worker


@pytest.mark.fault(1, "kill -9 after a checkpoint")
@pytest.mark.claim("R8", "R1", "C3")
def test_another_worker_finds_the_checkpoint_of_a_killed_one(url: str, instance: str, tmp_path: Path) -> None:
    with make_app(url, instance) as app:
        gate = tmp_path / "gate"
        job = app.job_types["resume"].enqueue(path=str(gate))
        with worker(url, tmp_path, name=instance) as first:
            until(lambda: job.log() and job.refresh().progress, what="it has said where it is")
            (row,) = until(lambda: saved(app.store.rows("job", {"id": job.id})), what="it is saved")  # type: ignore
            first.kill()
        assert row["checkpoint"] == '{"page":7}'
        with worker(url, tmp_path, name=instance):
            ended = job.wait(60)
        assert (ended.outcome, ended.result, ended.attempt, ended.failures) == ("success", {"page": 7}, 2, 0)
        assert ended.progress == Progress(0.7, "seven pages")
        assert [(line.attempt, line.text) for line in ended.log()] == [(1, "saving")]


def saved(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return [row for row in rows if row["checkpoint"] is not None]
