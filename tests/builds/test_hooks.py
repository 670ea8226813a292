"""The hooks over HTTP: who is let in, what counts once, and what is refused."""

import hashlib
import hmac
import json
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest
from litestar.testing import TestClient

from holdfast import App
from holdfast.builds.project import BuildSettings, Project, Secret
from holdfast.builds.sending import Facts, delivery
from holdfast.builds.webhooks import LONGEST_BODY
from holdfast.web import hooks
from holdfast.web.app import create
from tests.builds.making import Repository
from tests.builds.yard import FAILING, QUICK, SECRET, Yard

ADDRESS = "http://localhost:8765"
COMMIT = "ab" * 20
HOOK = "/hooks/github/demo"
Client = TestClient[Any]
HOOKS = {name: Secret("HOOK_SECRET") for name in ("github", "gitlab", "generic")} | {"gitea": Secret("NOT_SET")}


@pytest.fixture
def here(yard: Callable[..., Yard]) -> Yard:
    return yard(hooks=HOOKS, public_badge=True)


@pytest.fixture
def client(here: Yard) -> Iterator[Client]:
    """A forge: it has no token."""
    with TestClient(create(here.app, projects=here.projects), base_url=ADDRESS) as opened:
        yield opened


def send(client: Client, event: str = "push", forge: str = "github", secret: str = SECRET, **facts: Any) -> Any:
    identity = facts.pop("identity", f"delivery of {event} {facts}")
    headers, body = delivery(forge, event, Facts(**{"commit": COMMIT, **facts}), secret, identity)
    return client.post(f"/hooks/{forge}/demo", content=body, headers=headers)


def signed(body: bytes, secret: str = SECRET) -> dict[str, str]:
    digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return {"X-Hub-Signature-256": f"sha256={digest}", "X-GitHub-Event": "push", "X-GitHub-Delivery": digest[:20]}


async def slowly(asgi: Any) -> int:
    """The status that somebody gets who sends the beginning of a body and then nothing."""
    parts, statuses = [{"type": "http.request", "body": b"{", "more_body": True}], list[int]()

    async def receive() -> Any:
        if parts:
            return parts.pop()
        await anyio.sleep_forever()

    async def answer(message: Any) -> None:
        statuses.append(message.get("status"))

    headers = [(b"host", b"localhost:8765"), (b"x-github-event", b"push")]
    scope = {"type": "http", "method": "POST", "path": HOOK, "raw_path": HOOK.encode(), "query_string": b""}
    scope |= {"headers": headers, "scheme": "http", "http_version": "1.1", "root_path": "", "asgi": {"version": "3.0"}}
    await asgi({**scope, "client": ("127.0.0.1", 9), "server": ("127.0.0.1", 8765)}, receive, answer)
    return statuses[0]


@pytest.mark.claim("B1")
@pytest.mark.parametrize("forge", ["github", "gitlab", "generic"])
def test_a_signed_push_makes_a_build(client: Client, here: Yard, forge: str) -> None:
    answer = send(client, forge=forge, branch="topic", message="A change")
    assert answer.status_code == 202
    told = answer.json()
    assert (told["how"], told["build_state"], told["commit"], told["branch"]) == (
        "new",
        "Freshly received",
        COMMIT,
        "topic",
    )
    assert [build.id for build in here.projects.builds()] == [told["id"]]
    assert here.app.history(told["job_id"])


@pytest.mark.claim("B4")
def test_the_same_commit_joins_reports_and_is_built_anew(client: Client, here: Yard, repository: Repository) -> None:
    commit = repository.commit(QUICK)
    answers = [send(client, commit=commit, identity=f"d-{number}") for number in range(2)]
    assert [(answer.status_code, answer.json()["how"]) for answer in answers] == [(202, "new"), (200, "joined")]
    here.app.run_until_idle()
    reported = send(client, commit=commit, identity="d-3")
    assert (reported.status_code, reported.json()["how"], reported.json()["outcome"]) == (200, "reported", "success")
    assert reported.json()["build_state"] == "Completed-Cached"
    labelled = send(client, "label", commit=commit)
    assert (labelled.status_code, labelled.json()["how"]) == (202, "again")


@pytest.mark.claim("B4")
def test_a_closed_pull_request_ends_its_build_and_a_merged_one_does_not(client: Client, here: Yard) -> None:
    one, two = (
        send(client, "pull_request", commit=name * 40, number=number).json() for name, number in (("1", 1), ("2", 2))
    )
    assert send(client, "closed", number=1).json()["ended"] == {"branch": None, "pull_request": 1}
    send(client, "merged", number=2)
    assert here.app.get(one["job_id"]).outcome == "aborted"
    assert here.app.get(two["job_id"]).state == "initial"


@pytest.mark.parametrize(("event", "said"), [("ping", "pong"), ("delete", "ended"), ("closed", "ended")])
def test_what_makes_no_build_is_taken_too(client: Client, here: Yard, event: str, said: str) -> None:
    answer = send(client, event)
    assert (answer.status_code, said in answer.json()) == (200, True)
    assert here.projects.builds() == []


def test_other_events_are_accepted_and_ignored_by_name(client: Client) -> None:
    answer = client.post(HOOK, content=b"{}", headers=signed(b"{}") | {"X-GitHub-Event": "star"})
    assert (answer.status_code, answer.json()["ignored"]) == (200, "`star` is not acted on")


def test_a_strangers_pull_request_waits_for_a_maintainers_label_and_gets_no_secrets(client: Client, here: Yard) -> None:
    assert "maintainer" in send(client, "pull_request", fork=True).json()["ignored"]
    told = send(client, "label", fork=True).json()
    assert (told["how"], told["trusted"]) == ("new", False)
    newer = send(client, "synchronize", fork=True, commit="cd" * 20)
    assert "maintainer" in newer.json()["ignored"], "the label was for the commit before"


class TestWhoIsLetIn:
    """Attacks: each must fail, and none says more than the others. One server for all: nothing of them comes to a database."""

    @pytest.fixture(scope="class")
    @classmethod
    def here(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
        root = tmp_path_factory.mktemp("hooks")
        with App("sqlite://:memory:") as app:
            yield Yard(app, root, Repository(root / "repository"), hooks=HOOKS)

    @pytest.fixture(scope="class")
    @classmethod
    def client(cls, here: Yard) -> Iterator[Client]:
        with TestClient(create(here.app, projects=here.projects), base_url=ADDRESS) as opened:
            yield opened

    def refused(self, here: Yard, answer: Any, status: int = 401) -> None:
        assert answer.status_code == status
        assert here.projects.builds() == []
        if status == 401:
            assert answer.json()["detail"] == ""

    def test_not_without_a_signature(self, client: Client, here: Yard) -> None:
        self.refused(here, client.post(HOOK, content=b"{}", headers={"X-GitHub-Event": "push"}))

    def test_not_with_another_secret(self, client: Client, here: Yard) -> None:
        self.refused(here, send(client, secret="guess"))

    def test_not_with_an_empty_secret(self, client: Client, here: Yard) -> None:
        self.refused(here, send(client, secret=""))

    def test_not_with_an_altered_body(self, client: Client, here: Yard) -> None:
        headers, body = delivery("github", "push", Facts(commit=COMMIT), SECRET, "d")
        self.refused(here, client.post(HOOK, content=body.replace(b"ab", b"cd"), headers=headers))

    def test_not_with_sha1(self, client: Client, here: Yard) -> None:
        headers, body = delivery("github", "push", Facts(commit=COMMIT), SECRET, "d")
        digest = hmac.new(SECRET.encode(), body, hashlib.sha1).hexdigest()
        for given in ({"X-Hub-Signature": f"sha1={digest}"}, {"X-Hub-Signature-256": f"sha1={digest}"}):
            bare = {name: value for name, value in headers.items() if name != "X-Hub-Signature-256"}
            self.refused(here, client.post(HOOK, content=body, headers={**bare, **given}))

    def test_not_where_the_signature_is_of_another_forge(self, client: Client, here: Yard) -> None:
        headers, body = delivery("github", "push", Facts(commit=COMMIT), SECRET, "d")
        self.refused(here, client.post("/hooks/gitlab/demo", content=body, headers=headers))

    @pytest.mark.parametrize(
        "path", ["/hooks/github/nothing", "/hooks/nothing/demo", "/hooks/gitea/demo", "/hooks/github/%2e%2e"]
    )
    def test_a_hook_without_a_secret_does_not_exist(self, client: Client, here: Yard, path: str) -> None:
        headers, body = delivery("github", "push", Facts(commit=COMMIT), SECRET, "d")
        answer = client.post(path, content=body, headers=headers)
        self.refused(here, answer, 404)
        assert answer.json()["detail"] == "There is no such hook."

    def test_a_project_that_is_not_there_answers_as_one_without_a_secret(self, client: Client) -> None:
        here, there = (client.post(f"/hooks/gitea/{name}", content=b"{}") for name in ("demo", "nothing"))
        assert (here.status_code, here.json()) == (there.status_code, there.json())

    def test_nothing_but_post(self, client: Client, here: Yard) -> None:
        for method in ("GET", "PUT", "DELETE"):
            self.refused_plainly(client.request(method, HOOK))

    def refused_plainly(self, answer: Any) -> None:
        assert answer.status_code == 401
        assert "demo" not in answer.text

    def test_a_huge_body_is_not_read(self, client: Client, here: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(hooks, "LONGEST_BODY", 1000)
        body = b"{" + b" " * 1000 + b"}"
        self.refused(here, client.post(HOOK, content=body, headers=signed(body)), 413)
        self.refused(here, client.post(HOOK, content=iter([body]), headers=signed(body)), 413)
        assert LONGEST_BODY == 25 * 1024 * 1024

    def test_a_body_that_does_not_come_is_not_waited_for(self, here: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(hooks, "PATIENCE", 0.05)
        status = anyio.run(slowly, create(here.app, projects=here.projects))
        assert status == 408
        assert here.projects.builds() == []

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"[]",
            b"{",
            b"\xff\xfe",
            b'{"ref": {}}',
            b'{"x":' * 5000,
            b'{"ref": "refs/heads/--x", "after": "' + COMMIT.encode() + b'"}',
            b'{"ref": "refs/heads/main", "after": NaN}',
            b'{"ref": "refs/heads/main", "after": "' + COMMIT.encode() + b'", "ref": "refs/heads/other"}',
            b'{"ref": "refs/heads/main", "after": "\\ud800"}',
            b'{"ref": ' + b"9" * 100_000 + b"}",
        ],
    )
    def test_an_odd_body_is_refused_with_the_reason(self, client: Client, here: Yard, body: bytes) -> None:
        answer = client.post(HOOK, content=body, headers=signed(body))
        self.refused(here, answer, 400)
        assert answer.json()["detail"]

    @pytest.mark.parametrize("branch", ["a\nb", "--upload-pack=touch x", "a b", "x..y", "\x00"])
    def test_a_branch_that_is_none_is_refused(self, client: Client, here: Yard, branch: str) -> None:
        self.refused(here, send(client, branch=branch), 400)


class TestWhatIsTaken:
    """Attacks that a database sees: on both."""

    def test_a_delivery_counts_once(self, client: Client, here: Yard, repository: Repository) -> None:
        first = send(client, identity="d-1")
        here.projects.abort(first.json()["id"])
        again = send(client, identity="d-1")
        assert (again.status_code, again.json()["code"]) == (409, "conflict")
        assert here.projects.look(first.json()["id"]).job_id == first.json()["job_id"]
        assert send(client, identity="d-2").json()["how"] == "again"

    @pytest.mark.parametrize("event", ["closed", "delete", "label"])
    def test_what_ends_or_repeats_a_build_counts_once_under_whatever_id(
        self, client: Client, here: Yard, event: str
    ) -> None:
        """The signature covers the body; who has seen it can send it with another id, and another event."""
        facts = Facts(commit=COMMIT, branch="topic", number=7)

        def come(event: str, identity: str, **changed: str) -> Any:
            headers, body = delivery("github", event, facts, SECRET, identity)
            return client.post(HOOK, content=body, headers={**headers, **changed})

        asks = "push" if event == "delete" else "pull_request"
        build = come(asks, "d-1").json()["id"]
        assert come(event, "d-2").status_code in (200, 202)
        if event == "label":
            here.projects.abort(build)
        else:
            assert come(asks, "d-3").json()["how"] == "again"  # it is open again
        before = here.projects.look(build)
        for identity in ("d-4", ""):
            again = come(event, "d-2", **{"X-GitHub-Delivery": identity})
            assert (again.status_code, again.json()["code"]) == (409, "conflict")
        assert here.projects.look(build) == before
        assert here.app.get(before.job_id).final is (event == "label")
        assert come(event, "d-5").status_code in (200, 202)  # said once more by the forge: with another time in it

    @pytest.mark.parametrize("said", [{"closed": True, "pull_request": 2**70}, {"closed": True, "branch": "a\0b"}])
    def test_what_no_database_takes_is_refused_too(self, client: Client, here: Yard, said: dict[str, Any]) -> None:
        body = json.dumps(said).encode()
        assert client.post("/hooks/generic/demo", content=body, headers=signed(body)).status_code == 400

    @pytest.mark.parametrize("forge", ["generic", "gitlab"])
    def test_the_name_of_a_person_is_only_what_can_be_shown(self, client: Client, here: Yard, forge: str) -> None:
        answer = send(client, forge=forge, author="E\0v\x1b[2Je")
        assert answer.status_code == 202
        assert here.projects.look(answer.json()["id"]).author == "E v [2Je"

    def test_a_branch_with_a_shells_words_is_only_a_name(
        self, client: Client, here: Yard, repository: Repository
    ) -> None:
        repository.commit('[steps.test]\nrun = ["echo branch is $HOLDFAST_BRANCH"]\n')
        repository.git("branch", "$(touch${IFS}owned)")
        answer = send(client, commit=repository.git("rev-parse", "HEAD"), branch="$(touch${IFS}owned)")
        here.app.run_until_idle()
        build = here.projects.look(answer.json()["id"])
        assert build.outcome == "success", here.log(build)
        assert not list(here.root.rglob("owned"))


@pytest.mark.claim("B8")
class TestBadges:
    def test_a_public_badge_says_how_the_last_build_went(
        self, client: Client, here: Yard, repository: Repository
    ) -> None:
        assert "unknown" in client.get("/badges/demo.svg").text
        here.build(repository.commit(QUICK))
        answer = client.get("/badges/demo.svg?branch=main")
        assert ("success" in answer.text, answer.headers["content-type"]) == (True, "image/svg+xml")
        assert "unknown" in client.get("/badges/demo.svg?branch=other").text

    def test_a_strangers_branch_of_the_same_name_does_not_show(
        self, client: Client, here: Yard, repository: Repository
    ) -> None:
        ours = here.build(repository.commit(QUICK))
        strange = here.ask(repository.commit(FAILING), pull_request=5, stranger=True).build
        here.app.run_until_idle()
        assert here.projects.look(strange.id).branch == ours.branch == "main"
        for query in ("", "?branch=main"):
            assert "success" in client.get(f"/badges/demo.svg{query}").text
        found = here.projects.latest("demo", "main")
        assert found is not None
        assert found.id == ours.id

    def test_a_badge_that_is_not_public_is_as_good_as_not_there(self, client: Client, here: Yard) -> None:
        hidden = Project(name="hidden", repository="https://x/y")
        here.projects.settings = BuildSettings(projects={"demo": here.demo, "hidden": hidden})
        answers = [client.get(f"/badges/{name}.svg") for name in ("hidden", "nothing")]
        assert [answer.status_code for answer in answers] == [401, 401]
        assert json.loads(answers[0].text) == json.loads(answers[1].text)
