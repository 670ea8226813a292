"""A real repository, a signed push, a server and a builder as processes: watched, ended, built again, superseded, and killed."""

import signal
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.builds.making import Repository
from tests.builds.site import Installation, Watcher, installation
from tests.builds.yard import QUICK, SECRET, until
from tests.cli.terminal import called_here

ODD_NAMES = (
    *("nothing", "log", "completed", "..", "%2e%2e", "%252e%252e", "%00", "..%5ccompleted", "%2fetc%2fpasswd"),
    *("%2e%2e%2fcompleted", "%252e%252e%252fcompleted", "report%2f..%2f..%2flog", "report%00", "work-"),
)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """For all tests here: a test that kills one of its processes starts another in its place."""
    root = tmp_path_factory.mktemp("site")
    on_sqlite = request.param == "sqlite"
    url = f"sqlite:///{root}/jobs.db" if on_sqlite else request.getfixturevalue("prepared").new()
    with installation(root, url, "site", Repository(root / "repository")) as made:
        yield made


@pytest.fixture(autouse=True)
def _both_run(site: Installation) -> None:
    assert site.server
    assert site.builder


def begun(site: Installation, told: dict[str, Any]) -> None:
    """Wait until the build of a delivery waits for the gate."""
    until(lambda: "while [ ! -e" in site.log(told["job_id"]), what="the build runs")


@pytest.mark.claim("B1", "B9")
def test_a_push_is_built_and_everybody_who_watches_sees_the_same(site: Installation) -> None:
    commit, gate = site.gated()
    told = site.push(commit)
    early = Watcher(site, told["id"])
    begun(site, told)
    until(lambda: b"first line" in early.text, what="the first watcher sees it live")
    late = Watcher(site, told["id"])
    until(lambda: b"first line" in late.text, what="who comes late sees what was there")
    gate.touch()
    seen = early.saw()
    assert seen == late.saw() == Watcher(site, told["id"]).saw()
    assert seen.index("first line") < seen.index("last line") < seen.index("second")
    found = site.until_over(told["id"])
    assert (found["outcome"], found["build_state"]) == ("success", "Completed-Cached")
    assert found["steps"] == {"first": "SUCCESS", "second": "SUCCESS"}
    _downloaded(site, told["id"])
    listed = site.holdfast("builds", "list", "--limit", "1")[0]
    assert {name: listed[name] for name in ("id", "job_id", "build_state", "outcome", "steps")} == {
        name: found[name] for name in ("id", "job_id", "build_state", "outcome", "steps")
    }


def _downloaded(site: Installation, build: int) -> None:
    """Its output is served as a download, and nothing else is (B7)."""
    with site.request(f"/api/v1/builds/{build}/outputs/report") as answer:
        assert answer.read().startswith(b"report ")
        assert answer.headers["content-disposition"] == 'attachment; filename="report"'
        assert answer.headers["x-content-type-options"] == "nosniff"
    for name in ODD_NAMES:
        with pytest.raises(urllib.error.HTTPError) as refused:
            site.request(f"/api/v1/builds/{build}/outputs/{name}")
        assert refused.value.code in (400, 404), name
        refused.value.close()


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


@pytest.mark.claim("B4")
def test_a_pull_request_that_was_closed_ends_its_build_though_the_server_is_killed(site: Installation) -> None:
    told = site.push(site.gated()[0], "pull_request", number=3)
    begun(site, told)
    site.push(told["commit"], "closed", number=3)
    site.kill(site.server)
    assert site.until_over(told["id"])["outcome"] == "aborted"


def test_a_second_instance_does_not_start_on_the_folder_of_the_first(
    site: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "holdfast.toml"
    text = (site.root / "holdfast.toml").read_text()
    text = text.replace(f'instance = "{site.instance}"', 'instance = "other"')
    settings.write_text(text.replace('folder = "builds"', f'folder = "{site.root}/builds"'))
    cli, refusal = called_here(monkeypatch, tmp_path, capsys), "holds the builds of another instance"
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    for command in (("serve", "--port", "0"), ("worker",)):
        refused = cli(*command, "--config", settings)
        assert (refused.code, refusal in refused.err) == (4, True), command
    assert site.start("dev", "--port", "0", "--config", str(settings)).wait(60) == 4
    assert refusal in (site.root / "dev.log").read_text()
