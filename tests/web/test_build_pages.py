"""The pages of builds, on both databases and a real repository."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from litestar.testing import TestClient

from holdfast import App
from holdfast.web.app import create
from holdfast.web.pages import builds as pages
from tests.builds.making import Repository
from tests.builds.yard import Yard
from tests.web.conftest import ADDRESS, Browser, Client
from tests.web.test_pages import act, text

COLOURED = r"""
[steps.compile]
run = ["printf '\\033[31m<b>red</b>\\033[0m\\n'", "echo done > report.txt"]
outputs = { report = "report.txt" }
[steps.test]
after = ["compile"]
run = ["exit 3"]
[steps.never]
after = ["test"]
run = ["true"]
"""


@pytest.fixture
def yard(app: Callable[..., App], tmp_path: Path) -> Yard:
    (tmp_path / "yard").mkdir()
    return Yard(app(), tmp_path / "yard", Repository(tmp_path / "repository"))


@pytest.fixture
def browser(yard: Yard) -> Iterator[Browser]:
    with TestClient(create(yard.app, projects=yard.projects), base_url=ADDRESS) as client:
        yield Browser(client, yard.app)


def test_builds_are_listed_by_project_and_branch(browser: Browser, yard: Yard) -> None:
    first = yard.ask(yard.repository.commit("[steps.a]\nrun = []\n"), title="<b>one</b>").build
    second = yard.ask(yard.repository.commit("[steps.b]\nrun = []\n"), branch="next", ref="refs/heads/next").build

    def shown(query: str = "") -> list[int]:
        page = browser.client.get(f"/builds{query}").text
        return [int(each) for each in re.findall(r'<tr id="build-(\d+)"', page)]

    assert shown() == [second.id, first.id]
    assert shown("?project=demo&branch=next") == [second.id]
    assert shown("?state=Building") == []
    assert shown(f"?before={second.id}") == [first.id]
    assert "&lt;b&gt;one" in browser.client.get("/builds").text
    assert "known are" in text(browser, "/builds?state=odd", status=400)


@pytest.mark.claim("B4")
def test_a_build_shows_every_ref_that_asked_for_it(browser: Browser, yard: Yard) -> None:
    commit = yard.repository.commit("[steps.a]\nrun = []\n")
    for number in (5, 6):
        build = yard.ask(commit, pull_request=number, branch="fix", ref=f"refs/pull/{number}/head").build
    for page in (text(browser, "/builds"), text(browser, f"/builds/{build.id}")):
        assert "#5 fix" in page
    assert "#5 fix, #6 fix" in text(browser, f"/builds/{build.id}")
    refs = browser.client.get(f"/api/v1/builds/{build.id}").json()["refs"]
    assert [(each["ref"], each["pull_request"]) for each in refs] == [("refs/pull/5/head", 5), ("refs/pull/6/head", 6)]


def test_a_build_is_shown_with_its_steps_its_outputs_and_its_log_in_colours(browser: Browser, yard: Yard) -> None:
    build = yard.build(yard.repository.commit(COLOURED))
    page = browser.client.get(f"/builds/{build.id}").text
    assert '<span class="ink-red">&lt;b&gt;red&lt;/b&gt;</span>' in page
    assert f'href="/api/v1/builds/{build.id}/outputs/report"' in page
    log = browser.client.get(f"/api/v1/builds/{build.id}/log?follow=false")
    assert log.headers["content-type"] == "text/plain; charset=utf-8"
    said = text(browser, f"/builds/{build.id}")
    assert re.search(r"compile SUCCESS.* test FAILED.* never SKIP BY FAILED", said)
    assert f"build {build.id}" in text(browser, f"/jobs/{build.job_id}")


def test_the_commit_leads_to_the_forge_where_the_project_says_where_it_is(
    app: Callable[..., App], tmp_path: Path
) -> None:
    yard = Yard(app(), tmp_path, Repository(tmp_path / "repository"), web="https://forge.example.org/me/demo")
    build = yard.ask("ab" * 20).build
    with TestClient(create(yard.app, projects=yard.projects), base_url=ADDRESS) as client:
        page = Browser(client, yard.app).client.get(f"/builds/{build.id}").text
    assert f'href="https://forge.example.org/me/demo/commit/{build.commit}"' in page


def test_a_server_without_projects_shows_what_was_built_but_not_its_files(yard: Yard, app: Callable[..., App]) -> None:
    build = yard.build(yard.repository.commit(COLOURED))
    other = app()
    with TestClient(create(other), base_url=ADDRESS) as client:
        browser = Browser(client, other)
        assert f'<tr id="build-{build.id}"' in browser.client.get("/builds").text
        assert "compile SUCCESS" in text(browser, f"/builds/{build.id}")
        listed = browser.client.get("/api/v1/builds").json()["items"]
        assert [(each["id"], each["outcome"]) for each in listed] == [(build.id, "failed")]
        assert browser.client.get(f"/api/v1/builds/{build.id}").json()["outputs"] == []
        for path in ("log", "outputs/report"):
            assert browser.client.get(f"/api/v1/builds/{build.id}/{path}").status_code == 404


def test_a_log_goes_on_behind_what_is_known(browser: Browser, yard: Yard, monkeypatch: Any) -> None:
    build = yard.build(yard.repository.commit('[steps.a]\nrun = ["seq 1000 1500"]\n'))
    monkeypatch.setattr(pages, "MOST_LINES", 100)
    found: list[str] = []
    after = "0"
    while True:
        part = browser.client.get(f"/builds/{build.id}/log?after={after}").text
        lines = re.findall(r'<li data-id="(\d+)">([^<]*)</li>', part)
        if not lines:
            break
        found += [line for _, line in lines]
        after = lines[-1][0]
    assert found == [str(number) for number in range(1000, 1501)]


def test_a_page_begins_with_the_end_of_a_long_log(browser: Browser, yard: Yard, monkeypatch: Any) -> None:
    build = yard.build(yard.repository.commit('[steps.a]\nrun = ["seq 1000 1500"]\n'))
    monkeypatch.setattr(pages, "LAST_BYTES", 200)
    lines = re.findall(r'<li data-id="\d+">([^<]*)</li>', browser.client.get(f"/builds/{build.id}").text)
    assert "1500" in lines
    assert "1000" not in lines
    assert lines[0] in map(str, range(1000, 1501))


def test_a_build_is_aborted_and_built_again(browser: Browser, yard: Yard) -> None:
    build = yard.ask(yard.gated()).build
    assert f"Build {build.id} is aborted." in act(browser, f"/builds/{build.id}/abort")
    assert f"Build {build.id} again?" in act(browser, f"/builds/{build.id}/retry", status=200)
    assert "is built again." in act(browser, f"/builds/{build.id}/retry", sure="yes")
    assert "Freshly received" in text(browser, f"/builds/{build.id}")


def test_a_server_without_projects_says_so(client: Client) -> None:
    answer = client.get("/builds", headers={"Accept": "text/html"})
    assert "This server builds nothing" in answer.text
