"""A real repository, a signed push, a server and a builder as processes, and everybody who watches."""

import urllib.error
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.builds.webhooks import FORGES
from tests.builds.site import Installation, Watcher, begun, on_either
from tests.builds.yard import QUICK, SECRET, until
from tests.cli.terminal import Answer, called_here

ODD_NAMES = (
    *("nothing", "log", "completed", "..", "%2e%2e", "%252e%252e", "%00", "..%5ccompleted", "%2fetc%2fpasswd"),
    *("%2e%2e%2fcompleted", "%252e%252e%252fcompleted", "report%2f..%2f..%2flog", "report%00", "work-"),
)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """For all tests here."""
    yield from on_either(request, tmp_path_factory)


@pytest.fixture(autouse=True)
def _both_run(site: Installation) -> None:
    assert site.server
    assert site.builder


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


@pytest.mark.claim("B1")
@pytest.mark.parametrize("forge", FORGES)
def test_hooks_send_sends_what_the_server_believes_as_often_as_it_is_called(
    site: Installation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], forge: str
) -> None:
    commit = site.repository.commit(QUICK, {"forge": forge})
    cli = called_here(monkeypatch, site.root, capsys)
    monkeypatch.setenv("HOOK_SECRET", SECRET)

    def send(*options: str) -> Answer:
        about = ("--repo", site.repository.path, "--commit", commit, "--to", site.address)
        return cli("hooks", "send", forge, "demo", *about, *options)

    first, second, third = send("--delivery", "d-1", "--json"), send("--json"), send("--delivery", "d-1")
    assert (first.json["how"], second.json["id"]) == ("new", first.json["id"])
    assert second.json["how"] in ("joined", "reported")
    assert (third.code, "`holdfast builds retry" in third.err) == (4, True)
