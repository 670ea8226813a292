"""A real repository, a signed push, a server and a builder as processes: watched, ended, built again, superseded, and killed."""

import signal
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.builds.making import Repository
from tests.builds.site import Installation, Watcher, installation
from tests.builds.yard import GATED, QUICK, until

Killed = str


@pytest.fixture
def site(tmp_path: Path, url: str, instance: str, repository: Repository) -> Iterator[Installation]:
    root = tmp_path / "site"
    root.mkdir()
    with installation(root, url, instance, repository) as made:
        yield made


def gated(site: Installation, number: int = 0) -> str:
    return site.repository.commit(GATED.format(gate=site.gate), {"report.txt": f"report {number}"})


def begun(site: Installation, told: dict[str, Any]) -> None:
    """Wait until the build of a delivery waits for the gate."""
    until(lambda: "while [ ! -e" in site.log(told["job_id"]), what="the build runs")


@pytest.mark.claim("B1", "B9")
def test_a_push_is_built_and_everybody_who_watches_sees_the_same(site: Installation) -> None:
    site.serve()
    site.builder()
    told = site.push(gated(site))
    early = Watcher(site, told["id"])
    begun(site, told)
    until(lambda: b"first line" in early.text, what="the first watcher sees it live")
    late = Watcher(site, told["id"])
    until(lambda: b"first line" in late.text, what="who comes late sees what was there")
    site.gate.touch()
    seen = early.saw()
    assert seen == late.saw() == Watcher(site, told["id"]).saw()
    assert seen.index("first line") < seen.index("last line") < seen.index("second")
    found = site.until_over(told["id"])
    assert (found["outcome"], found["build_state"]) == ("success", "Completed-Cached")
    assert found["steps"] == {"first": "SUCCESS", "second": "SUCCESS"}
    with site.request(f"/api/v1/builds/{told['id']}/outputs/report") as answer:
        assert answer.read() == b"report 0"
        assert answer.headers["content-disposition"] == 'attachment; filename="report"'
        assert answer.headers["x-content-type-options"] == "nosniff"
    (listed,) = site.holdfast("builds", "list")
    assert {name: listed[name] for name in ("id", "job_id", "build_state", "outcome", "steps")} == {
        name: found[name] for name in ("id", "job_id", "build_state", "outcome", "steps")
    }


@pytest.mark.parametrize(
    "name",
    [
        "nothing",
        "..",
        "%2e%2e%2fcompleted",
        "%2e%2e",
        "..%5ccompleted",
        "log",
        "%00",
        "completed",
        "report%2f..%2f..%2flog",
    ],
)
def test_only_outputs_are_served(site: Installation, name: str) -> None:
    site.serve()
    site.builder()
    site.gate.touch()
    told = site.push(gated(site))
    site.until_over(told["id"])
    with pytest.raises(urllib.error.HTTPError) as refused:
        site.request(f"/api/v1/builds/{told['id']}/outputs/{name}")
    assert refused.value.code in (400, 404)
    refused.value.close()


@pytest.mark.fault(1, "kill -9 in the middle of a build")
@pytest.mark.claim("B3", "B5")
@pytest.mark.parametrize("killed", ["server", "builder", "both"])
def test_a_kill_in_the_middle_of_a_build_loses_nothing(site: Installation, killed: Killed) -> None:
    server, builder = site.serve(), site.builder()
    told = site.push(gated(site))
    begun(site, told)
    _kill(site, server, builder, killed)
    assert site.build(told["id"])["build_state"] == "Building"
    site.gate.touch()
    found = site.until_over(told["id"])
    assert (found["outcome"], found["job_id"]) == ("success", told["job_id"])
    assert Watcher(site, told["id"]).saw().count("$ echo first line") == 1, "it ran again from scratch"


@pytest.mark.fault(1, "kill -9 after an abort was asked for")
@pytest.mark.claim("B3")
@pytest.mark.parametrize("killed", ["server", "builder"])
def test_a_kill_after_an_abort_was_asked_for_still_ends_the_build(site: Installation, killed: Killed) -> None:
    server, builder = site.serve(), site.builder()
    told = site.push(gated(site))
    begun(site, told)
    builder.send_signal(signal.SIGSTOP)  # so that it cannot obey before it is killed
    with site.request(f"/api/v1/builds/{told['id']}/abort", "POST"):
        pass
    if killed == "builder":
        builder.kill()
        site.builder()
    else:
        server.kill()
        builder.send_signal(signal.SIGCONT)
        site.serve()
    found = site.until_over(told["id"])
    assert found["outcome"] == "aborted"
    assert {path.name for path in (site.root / "builds" / str(told["job_id"])).iterdir()} >= {
        "generated",
        "completed",
        "log",
    }
    assert "last line" not in site.log(told["job_id"])


@pytest.mark.claim("B3")
@pytest.mark.parametrize("killed", ["server", "builder"])
def test_a_kill_after_a_retry_still_builds_again(site: Installation, killed: Killed) -> None:
    server, builder = site.serve(), site.builder()
    told = site.push(site.repository.commit(QUICK))
    site.until_over(told["id"])
    with site.request(f"/api/v1/builds/{told['id']}/retry", "POST"):
        pass
    _kill(site, server, builder, killed)
    found = site.until_over(told["id"])
    assert found["job_id"] > told["job_id"]
    assert found["outcome"] == "success"
    until(lambda: not (site.root / "builds" / str(told["job_id"])).exists(), what="the old folder is gone")


@pytest.mark.claim("B4")
@pytest.mark.parametrize("killed", ["nobody", "server", "builder"])
def test_a_newer_commit_ends_the_older_build_whoever_is_killed(site: Installation, killed: Killed) -> None:
    server, builder = site.serve(), site.builder()
    older = site.push(gated(site, 1), "pull_request")
    begun(site, older)
    newer = site.push(site.repository.commit(QUICK), "synchronize")
    assert newer["superseded"] == [older["id"]]
    _kill(site, server, builder, killed)
    assert site.until_over(older["id"])["outcome"] == "aborted"
    assert site.until_over(newer["id"])["outcome"] == "success"


def _kill(site: Installation, server: Any, builder: Any, which: Killed) -> None:
    """`kill -9`, and another in its place."""
    if which in ("server", "both"):
        server.kill()
        server.wait(30)
        site.serve()
    if which in ("builder", "both"):
        builder.kill()
        builder.wait(30)
        site.builder()
