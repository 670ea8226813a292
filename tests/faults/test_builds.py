"""A server and a builder as processes are killed in the middle of builds: what was asked of them still happens."""

import signal
import urllib.error
from collections.abc import Iterator

import pytest

from tests.builds.site import Installation, Watcher, begun, on_either
from tests.builds.yard import QUICK, until


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """For all tests here: a test that kills one of its processes starts another in its place."""
    yield from on_either(request, tmp_path_factory)


@pytest.fixture(autouse=True)
def _both_run(site: Installation) -> None:
    assert site.server
    assert site.builder


@pytest.mark.fault(1, "kill -9 in the middle of a build")
@pytest.mark.claim("B3", "B5")
@pytest.mark.parametrize("killed", [("server",), ("builder",), ("server", "builder")], ids=" and ".join)
def test_a_kill_in_the_middle_of_a_build_loses_nothing(site: Installation, killed: tuple[str, ...]) -> None:
    commit, gate = site.gated()
    told = site.push(commit)
    begun(site, told)
    site.kill(*(getattr(site, which) for which in killed))
    assert site.build(told["id"])["build_state"] == "Building"
    gate.touch()
    found = site.until_over(told["id"])
    assert (found["outcome"], found["job_id"]) == ("success", told["job_id"])
    assert Watcher(site, told["id"]).saw().count("$ echo first line") == 1, "it ran again from scratch"


@pytest.mark.fault(1, "kill -9 after an abort was asked for")
@pytest.mark.claim("B3")
@pytest.mark.parametrize("killed", ["server", "builder"])
def test_a_kill_after_an_abort_was_asked_for_still_ends_the_build(site: Installation, killed: str) -> None:
    commit, _ = site.gated()
    told = site.push(commit)
    begun(site, told)
    builder = site.builder

    def is_asked_for() -> bool:
        builder.send_signal(signal.SIGSTOP)  # so that it cannot obey before it is killed
        try:
            site.request(f"/api/v1/builds/{told['id']}/abort", "POST").close()
        except urllib.error.HTTPError as refused:
            refused.close()
            if refused.code != 503:
                raise
            builder.send_signal(signal.SIGCONT)  # it was stopped in the middle of a write, which nobody gets past
            return False
        return True

    until(is_asked_for, what="the abort is stored while the builder stands still")
    if killed == "server":
        site.kill(site.server)
        builder.send_signal(signal.SIGCONT)
    else:
        site.kill(builder)
    found = site.until_over(told["id"])
    assert found["outcome"] == "aborted"
    folder = site.root / "builds" / str(told["job_id"])
    assert {path.name for path in folder.iterdir()} >= {"generated", "completed", "log"}
    assert "last line" not in site.log(told["job_id"])


@pytest.mark.fault(1, "kill -9 after a retry was asked for")
@pytest.mark.claim("B3")
@pytest.mark.parametrize("killed", ["server", "builder"])
def test_a_kill_after_a_retry_still_builds_again(site: Installation, killed: str) -> None:
    told = site.push(site.repository.commit(QUICK))
    site.until_over(told["id"])
    with site.request(f"/api/v1/builds/{told['id']}/retry", "POST"):
        pass
    site.kill(getattr(site, killed))
    found = site.until_over(told["id"])
    assert found["job_id"] > told["job_id"]
    assert found["outcome"] == "success"
    until(lambda: not (site.root / "builds" / str(told["job_id"])).exists(), what="the old folder is gone")


@pytest.mark.fault(1, "kill -9 after a newer commit came")
@pytest.mark.claim("B4")
@pytest.mark.parametrize(("killed", "number"), [("server", 1), ("builder", 2)])
def test_a_newer_commit_ends_the_older_build_whoever_is_killed(site: Installation, killed: str, number: int) -> None:
    older = site.push(site.gated()[0], "pull_request", number=number)
    begun(site, older)
    newer = site.push(site.repository.commit(QUICK), "synchronize", number=number)
    assert newer["superseded"] == [older["id"]]
    site.kill(getattr(site, killed))
    assert site.until_over(older["id"])["outcome"] == "aborted"
    assert site.until_over(newer["id"])["outcome"] == "success"


@pytest.mark.fault(1, "kill -9 after a pull request was closed")
@pytest.mark.claim("B4")
def test_a_pull_request_that_was_closed_ends_its_build_though_the_server_is_killed(site: Installation) -> None:
    told = site.push(site.gated()[0], "pull_request", number=3)
    begun(site, told)
    site.push(told["commit"], "closed", number=3)
    site.kill(site.server)
    assert site.until_over(told["id"])["outcome"] == "aborted"
