"""A build's result belongs to its commit and its context: trust, event, branch and tag (B1, B4). Requests come as signed webhooks."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from litestar.testing import TestClient

from holdfast.builds.build import Build, BuildState
from holdfast.builds.project import Secret
from holdfast.web.app import create
from tests.builds.forge import Forge
from tests.builds.making import Repository
from tests.builds.test_hooks import ADDRESS, HOOKS, send
from tests.builds.yard import FAILING, QUICK, Yard, until
from tests.raw_sql import RawSql

PUBLISHES = """
[steps.test]
run = ["mkdir -p out", "echo built for $HOLDFAST_EVENT $HOLDFAST_BRANCH with ${TOKEN:-no token} | tee out/art"]
outputs = { art = "out/art" }
[steps.publish]
after = ["test"]
if = "branch == 'main' and event == 'push'"
run = ["echo published $HOLDFAST_BRANCH"]
"""
SAYS_ITS_BRANCH = """
[steps.test]
run = ["mkdir -p out", "echo built for $HOLDFAST_BRANCH with ${TOKEN:-no token} | tee out/art"]
outputs = { art = "out/art" }
"""


@pytest.fixture
def here(yard: Callable[..., Yard]) -> Yard:
    return yard(hooks=HOOKS, public_badge=True, strangers="label", secrets={"TOKEN": Secret("TOKEN")})


@pytest.fixture
def forge(here: Yard) -> Iterator[Forge]:
    with TestClient(create(here.app, projects=here.projects), base_url=ADDRESS) as client:
        yield Forge(here, client)


def steps(build: Build) -> dict[str, str]:
    return {step.name: step.state for step in build.steps}


def strange(**more: Any) -> dict[str, Any]:
    """Facts of a pull request from another repository, whose branch has the name of ours."""
    return {"fork": True, "branch": "main", "number": 5, **more}


@pytest.mark.claim("B1", "B4")
class TestATrustedRequest:
    """Trust is a part of the context."""

    @pytest.mark.parametrize("build_file", [PUBLISHES, SAYS_ITS_BRANCH], ids=["conditions", "no-conditions"])
    def test_takes_no_result_of_an_untrusted_build(
        self, here: Yard, forge: Forge, repository: Repository, build_file: str
    ) -> None:
        commit = repository.commit(build_file)
        theirs = forge.built("label", commit, **strange())
        assert (theirs["code"], theirs["how"], theirs["trusted"]) == (202, "new", False)
        ours = forge.built("push", commit)
        assert (ours["code"], ours["how"], ours["trusted"]) == (202, "new", True)
        assert (ours["id"] != theirs["id"], ours["job_id"] != theirs["job_id"]) == (True, True)

        found = here.projects.look(theirs["id"])
        assert (found.trusted, found.event, found.branch, found.pull_request) == (False, "pull_request", "main", 5)
        assert forge.output(found.id).endswith("main with no token")
        assert "with no token" in forge.log(found.id)
        found = here.projects.look(ours["id"])
        assert (found.trusted, found.event, found.branch, found.pull_request) == (True, "push", "main", None)
        assert forge.output(found.id).endswith("main with t0ken")
        assert "with no token" not in forge.log(found.id)
        assert steps(found).get("publish", "SUCCESS") == "SUCCESS"
        assert ("published main" in forge.log(found.id)) == ("publish" in steps(found))
        assert (forge.badge("main"), forge.link("main")) == ("success", found.id)

        again = forge.send("label", commit, **strange())
        assert (again["code"], again["how"], again["id"]) == (202, "again", theirs["id"])
        assert forge.send("push", commit)["how"] == "reported"
        assert here.app.run_until_idle()

    def test_joins_no_untrusted_build_that_waits_or_runs(
        self, here: Yard, forge: Forge, repository: Repository
    ) -> None:
        commit = here.gated()
        theirs = forge.send("label", commit, **strange())
        waits = forge.send("push", commit, branch="next")
        assert (waits["code"], waits["how"], waits["id"] != theirs["id"]) == (202, "new", True)
        with here.app.worker(concurrency=2):
            until(lambda: "first line" in here.log(theirs["id"]), what="the untrusted build runs")
            runs = forge.send("push", commit)
            assert (runs["code"], runs["how"], runs["trusted"]) == (202, "new", True)
            assert len({each["job_id"] for each in (theirs, waits, runs)}) == 3
            here.open()
            until(lambda: not any(build.active for build in here.projects.builds()), what="all are done")
        keys = [here.app.get(each["job_id"]).job_key for each in (theirs, waits, runs)]
        assert keys == [f"demo:{commit}", f"demo:{commit}:{waits['id']}", f"demo:{commit}:{runs['id']}"]
        assert [here.projects.look(each["id"]).trusted for each in (theirs, waits, runs)] == [False, True, True]

    def test_leaves_its_result_and_its_secrets_to_no_untrusted_one(
        self, here: Yard, forge: Forge, repository: Repository
    ) -> None:
        commit = repository.commit(SAYS_ITS_BRANCH)
        ours = forge.built("push", commit)
        theirs = forge.built("label", commit, **strange())
        assert (theirs["code"], theirs["how"], theirs["trusted"]) == (202, "new", False)
        assert forge.output(theirs["id"]).endswith("with no token")
        assert forge.link("main") == ours["id"]

    def test_gets_a_retry_of_its_own_build(self, here: Yard, forge: Forge, repository: Repository) -> None:
        commit = repository.commit(SAYS_ITS_BRANCH)
        theirs, ours = forge.built("label", commit, **strange()), forge.built("push", commit)
        for each, token in ((theirs, "no token"), (ours, "t0ken")):
            again = here.projects.retry(each["id"])
            here.app.run_until_idle()
            assert again.job_id > ours["job_id"]
            assert forge.output(each["id"]).endswith(f"with {token}")


@pytest.mark.claim("B4", "B8")
class TestAnotherBranch:
    def test_runs_the_steps_whose_condition_holds_there(self, here: Yard, forge: Forge, repository: Repository) -> None:
        commit = repository.commit(PUBLISHES)
        first = forge.built("push", commit, branch="feature")
        assert steps(here.projects.look(first["id"])) == {"test": "SUCCESS", "publish": "IGNORED"}
        second = forge.built("push", commit, branch="main")
        assert (second["code"], second["how"], second["branch"]) == (202, "new", "main")
        assert steps(here.projects.look(second["id"])) == {"test": "SUCCESS", "publish": "SUCCESS"}
        assert "published main" in forge.log(second["id"])
        assert "published" not in forge.log(first["id"])
        assert forge.output(second["id"]) == "built for push main with t0ken"
        assert forge.output(first["id"]) == "built for push feature with t0ken"
        assert [forge.badge(branch) for branch in ("feature", "main", "other")] == ["success", "success", "unknown"]
        assert (forge.link("feature"), forge.link("main")) == (first["id"], second["id"])

    @pytest.mark.parametrize("build_file", [QUICK, FAILING], ids=["success", "failed"])
    def test_gets_the_result_where_no_condition_reads_it(
        self, here: Yard, forge: Forge, repository: Repository, build_file: str
    ) -> None:
        commit, outcome = repository.commit(build_file), "success" if build_file == QUICK else "failed"
        first = forge.built("push", commit, branch="feature")
        second = forge.send("push", commit, branch="main")
        assert (second["code"], second["how"], second["outcome"]) == (200, "reported", outcome)
        assert (second["id"], second["job_id"]) == (first["id"], first["job_id"])
        assert here.projects.look(first["id"]).branch == "feature"
        assert [forge.badge(branch) for branch in ("feature", "main", "other")] == [outcome, outcome, "unknown"]
        assert forge.link("main") == forge.link("feature") == first["id"]
        newer = forge.built("push", repository.commit(QUICK, {"more": "text"}), branch="feature")
        assert (forge.link("main"), forge.link("feature")) == (first["id"], newer["id"])
        assert (forge.badge("main"), forge.badge("feature")) == (outcome, "success")

    def test_that_goes_back_to_an_older_commit_shows_that_one(
        self, here: Yard, forge: Forge, repository: Repository
    ) -> None:
        one, two = repository.commit(QUICK), repository.commit(FAILING)
        first, second = forge.built("push", one), forge.built("push", two)
        assert (forge.badge("main"), forge.link("main")) == ("failed", second["id"])
        assert forge.send("push", one)["how"] == "reported"
        assert (forge.badge("main"), forge.link("main")) == ("success", first["id"])

    @pytest.mark.parametrize(
        ("event", "condition", "how"),
        [
            ("tag", "tag like 'v*'", "new"),
            ("tag", "branch == 'main'", "new"),
            ("tag", "env.MODE == 'quick' or commit", "reported"),
            ("pull_request", "event == 'push'", "new"),
            ("pull_request", "not (branch like 'm*' and project)", "reported"),
            ("pull_request", "trusted", "reported"),
        ],
    )
    def test_is_one_difference_of_three(
        self, here: Yard, forge: Forge, repository: Repository, event: str, condition: str, how: str
    ) -> None:
        commit = repository.commit(f'[steps.one]\nrun = ["true"]\nif = "{condition}"\n')
        forge.built("push", commit)
        asked = forge.send(event, commit)
        assert asked["how"] == how
        assert asked["event"] == ("push" if how == "reported" else event)

    def test_builds_a_commit_whose_build_file_could_not_be_read_for_itself(
        self, here: Yard, forge: Forge, repository: Repository
    ) -> None:
        commit = repository.commit("this is no TOML")
        first, second = (forge.built("push", commit, branch=branch) for branch in ("feature", "main"))
        assert (first["how"], second["how"]) == ("new", "new")
        assert forge.send("push", commit, branch="main")["how"] == "reported"

    def test_has_an_active_build_of_its_own_and_each_is_aborted_alone(
        self, here: Yard, forge: Forge, repository: Repository
    ) -> None:
        commit = repository.commit(QUICK)
        first, second = (forge.send("push", commit, branch=branch) for branch in ("feature", "main"))
        assert (second["how"], second["id"] != first["id"]) == ("new", True)
        assert [forge.send("push", commit, branch=branch)["id"] for branch in ("feature", "main")] == [
            first["id"],
            second["id"],
        ]
        here.projects.abort(first["id"])
        here.stands(first["id"], BuildState.CACHED)
        here.stands(second["id"], BuildState.RECEIVED)
        here.app.run_until_idle()
        here.stands(second["id"], BuildState.CACHED)
        assert (forge.badge("feature"), forge.badge("main")) == ("aborted", "success")


@pytest.mark.claim("B4")
def test_webhooks_that_come_at_once_make_one_build_for_each_context(
    here: Yard, forge: Forge, repository: Repository
) -> None:
    commit = repository.commit(QUICK)
    asked: list[tuple[str, dict[str, Any]]] = [
        ("push", {"branch": "main"}),
        ("push", {"branch": "next"}),
        ("tag", {}),
        ("label", strange()),
    ]

    def deliver(at: int) -> Any:
        event, facts = asked[at % len(asked)]
        return send(forge.client, event, commit=commit, identity=f"delivery {at}", **facts).json()

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(deliver, range(24)))
    assert sorted(each["how"] for each in answers) == ["joined"] * 20 + ["new"] * 4
    assert len({each["id"] for each in answers}) == len({each["job_id"] for each in answers}) == 4
    here.app.run_until_idle()
    assert {build.outcome for build in here.projects.builds()} == {"success"}


@pytest.mark.claim("B1")
def test_a_build_is_listed_with_its_context(here: Yard, forge: Forge, repository: Repository) -> None:
    commit = repository.commit(QUICK)
    for event, facts in (("push", {}), ("tag", {}), ("pull_request", {}), ("label", strange(branch="evil"))):
        forge.send(event, commit, **facts)
    found = forge.client.get("/api/v1/builds", headers=forge.headers).json()["items"]
    assert [(each["trusted"], each["event"], each["branch"], each["tag"]) for each in reversed(found)] == [
        (True, "push", "main", None),
        (True, "tag", None, "v1"),
        (True, "pull_request", "main", None),
        (False, "pull_request", "evil", None),
    ]


@pytest.mark.claim("B4")
class TestARowOfAnOlderHoldfast:
    """Its context stands in its columns. Whose code ran for it, and what conditions read, is not known."""

    def older(self, sql: RawSql, build: int) -> None:
        sql("update {build} set context = null, condition_names = null where id = :id", id=build)
        sql("delete from {build_ref} where build = :id", id=build)

    def test_lends_its_result_to_no_request(
        self, here: Yard, forge: Forge, repository: Repository, sql: RawSql
    ) -> None:
        commit = repository.commit(QUICK)
        first = forge.built("push", commit)
        self.older(sql, first["id"])
        found = here.projects.look(first["id"])
        assert (found.trusted, found.event, found.branch, found.outcome) == (True, "push", "main", "success")
        assert (forge.badge("main"), forge.link("main")) == ("success", found.id)
        assert (here.projects.result(found) is not None, "hello" in forge.log(found.id)) == (True, True)
        again = forge.built("push", commit)
        assert (again["how"], again["id"] != first["id"]) == ("new", True)
        assert (forge.badge("main"), forge.link("main")) == ("success", again["id"])
        assert forge.send("push", commit, branch="next")["id"] == again["id"]

    def test_is_joined_by_no_request(self, here: Yard, forge: Forge, repository: Repository, sql: RawSql) -> None:
        commit = repository.commit(QUICK)
        first = forge.send("push", commit)
        self.older(sql, first["id"])
        second = forge.send("push", commit)
        assert (second["how"], second["id"] != first["id"]) == ("new", True)
        here.app.run_until_idle()
        assert [build.outcome for build in here.projects.builds()] == ["success", "success"]

    def test_that_an_older_builder_completes_lends_its_result_to_its_own_context(
        self, here: Yard, forge: Forge, repository: Repository, sql: RawSql
    ) -> None:
        commit = repository.commit(QUICK)
        first = forge.built("push", commit)
        sql("update {build} set condition_names = null")
        assert forge.send("push", commit)["id"] == first["id"]
        assert forge.send("push", commit, branch="next")["how"] == "new"
        here.app.run_until_idle()
