"""I10: what the database says of a build and what lies in its folder agree.

A mark is written after the files that it speaks of (B3), so a file may be ahead of its mark while an attempt holds the job, or
after one that was lost; a mark is never ahead of its files.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from holdfast.worker.building.folder import COMPLETED, GENERATED, LOG, read_completed

Row = Mapping[str, Any]


def check_builds(builds: Iterable[Row], jobs: Mapping[int, Row], folder: Path) -> None:
    """Raises AssertionError naming the build. `jobs`: live and archived ones."""
    for build in builds:
        job, path = jobs.get(build["job"]), folder / str(build["job"])
        title = f"I10: build {build['id']} (job {build['job']})"
        assert job is not None, f"{title} has no job"
        if build["begun"]:
            assert (path / GENERATED).is_dir(), f"{title} has begun, and there is no `{GENERATED}`"
        if build["completed"]:
            missing = [name for name in (GENERATED, COMPLETED, LOG) if not (path / name).exists()]
            assert not missing, f"{title} is completed, and {missing} are missing"
            result = read_completed(path)
            assert result is not None, f"{title}: its `{COMPLETED}` cannot be read"
            said = result.commit, result.project, result.job_id
            assert said == (build["commit_id"], build["project"], build["job"]), f"{title}: its files are of {said}"
            # A job that was ended from outside at the last moment keeps the files its builder had written.
            if job["state"] == "final" and job["outcome"] != "aborted":
                assert result.outcome == job["outcome"], f"{title} is {job['outcome']}, its files say {result.outcome}"
        if job["state"] == "initial":
            assert not path.exists(), f"{title} was never begun, and its folder is there"
