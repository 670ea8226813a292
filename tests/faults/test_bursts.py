"""Many webhooks at once, sent to a server in a process of its own that is killed in the middle: none is lost, none counts twice."""

import http.client
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from holdfast import App
from holdfast.builds.project import BuildSettings
from holdfast.builds.sending import Facts, delivery
from holdfast.clock import Clock, monotonic, sleep
from holdfast.projects import Projects
from tests.builds.making import Repository
from tests.builds.site import Installation, installation
from tests.builds.yard import QUICK, SECRET, until

PATIENCE = 100.0  # seconds in which a forge tries again
AT_ONCE = 40


@pytest.fixture
def site(tmp_path: Path, url: str, instance: str) -> Iterator[Installation]:
    root = tmp_path / "site"
    root.mkdir()
    with installation(root, url, instance, Repository(root / "repository")) as made:
        assert made.server
        yield made


class Forge:
    """Sends a delivery until it has an answer, as forges do."""

    def __init__(self, site: Installation) -> None:
        self.site, self.answered = site, 0

    def deliver(self, number: int) -> tuple[int, int, dict[str, Any]]:
        """How often it was sent, and what the answer was."""
        about = Facts(commit=f"{number:040x}")
        headers, body = delivery("github", "push", about, SECRET, f"d-{number}", Clock().now())
        ends, times = monotonic() + PATIENCE, 0
        while monotonic() < ends:
            times += 1
            try:
                connection = http.client.HTTPConnection(self.site.address.removeprefix("http://"), timeout=30)
                connection.request("POST", "/hooks/github/demo", body, headers)
                answer = connection.getresponse()
                told = json.loads(answer.read())
            except (OSError, http.client.HTTPException, ValueError):
                sleep(0.05)
                continue
            finally:
                connection.close()
            self.answered += 1
            if answer.status != 503:
                return times, answer.status, told
            assert told["detail"], "who is refused is told why"
        raise AssertionError(f"delivery {number} never had an answer")


def all_taken(site: Installation, answers: list[tuple[int, int, dict[str, Any]]]) -> None:
    """Each made one build with one job; who was not answered and sent again may hear that it had come."""
    assert {status for times, status, _ in answers if times == 1} == {202}
    assert {status for times, status, _ in answers if times > 1} <= {202, 409}
    with App(site.url, name=site.instance) as app:
        builds = Projects(app, BuildSettings(), site.root, {}, declares=False).builds(limit=1000)
        jobs = app.find(job_type="build", limit=1000)
    assert sorted(int(build.commit, 16) for build in builds) == list(range(1, len(answers) + 1))
    assert sorted(build.job_id for build in builds) == sorted(job.id for job in jobs)
    assert {told["job_id"] for _, status, told in answers if status == 202} <= {job.id for job in jobs}


def burst(site: Installation, count: int, killed_after: int | None) -> None:
    forge = Forge(site)
    with ThreadPoolExecutor(count if count < AT_ONCE else AT_ONCE) as pool:
        sent = [pool.submit(forge.deliver, number) for number in range(1, count + 1)]
        if killed_after is not None:
            until(lambda: forge.answered >= killed_after, what="some were answered")
            site.server.kill()
            site.server.wait(30)
            site.serve()
        all_taken(site, [each.result() for each in sent])


@pytest.mark.fault(1, "kill -9 of the server in the middle of a burst of webhooks")
@pytest.mark.claim("B1")
def test_a_burst_is_taken_whole_though_the_server_is_killed_in_the_middle(site: Installation) -> None:
    burst(site, 40, killed_after=10)


@pytest.mark.faults
@pytest.mark.claim("B1")
@pytest.mark.parametrize("killed_after", [None, 1, 60, 150])
def test_two_hundred_in_a_burst(site: Installation, killed_after: int | None) -> None:
    burst(site, 200, killed_after)


@pytest.mark.faults
@pytest.mark.claim("B1", "B5")
def test_a_burst_of_real_commits_is_built_though_server_and_builder_are_killed(site: Installation) -> None:
    commits = [site.repository.commit(QUICK) for _ in range(30)]
    assert site.builder
    told = [site.push(commit) for commit in commits]
    until(lambda: site.build(told[3]["id"])["outcome"], what="some are built")
    site.kill(site.server, site.builder)
    assert {site.until_over(each["id"])["outcome"] for each in told} == {"success"}
