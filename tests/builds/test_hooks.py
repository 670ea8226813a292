"""The hooks over HTTP: who is let in, what counts once, and what is refused."""

import base64
import gzip
import hashlib
import hmac
import json
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping
from itertools import product
from typing import Any

import anyio
import httpx
import pytest
from litestar.testing import TestClient

from holdfast import App
from holdfast.builds import sending
from holdfast.builds.project import BuildSettings, Project, Secret
from holdfast.builds.sending import EVENTS, SIGNED, Facts
from holdfast.builds.webhooks import FORGES, LONGEST_BODY
from holdfast.clock import MovableClock
from holdfast.stores.contract import NewToken
from holdfast.web import gate, hook_bodies, hooks, secret
from holdfast.web.app import create
from tests.builds.making import Repository
from tests.builds.yard import FAILING, QUICK, SECRET, Yard
from tests.raw_sql import RawSql

ADDRESS = "http://localhost:8765"
COMMIT = "ab" * 20
HOOK = "/hooks/github/demo"
Client = TestClient[Any]
HOOKS = {name: Secret("HOOK_SECRET") for name in FORGES}
UNSET = {"gitea": Secret("NOT_SET"), "github": Secret(file="empty")}
NAMES = ("demo", "bare", "nothing")  # a project with hooks, one whose hooks have no secret, and none
ENDS = ("delete", "closed", "merged")
NOW = MovableClock().now()  # until a test moves its clock


@pytest.fixture
def here(yard: Callable[..., Yard]) -> Yard:
    return yard(hooks=HOOKS, public_badge=True)


@pytest.fixture
def client(here: Yard) -> Iterator[Client]:
    """A forge: it has no token."""
    with TestClient(create(here.app, projects=here.projects), base_url=ADDRESS) as opened:
        yield opened


def delivery(forge: str, event: str, facts: Facts, secret: str, identity: str) -> tuple[dict[str, str], bytes]:
    return sending.delivery(forge, event, facts, secret, identity, NOW)


def send(client: Client, event: str = "push", forge: str = "github", secret: str = SECRET, **facts: Any) -> Any:
    identity = facts.pop("identity", hashlib.sha256(f"{event} {facts}".encode()).hexdigest())
    headers, body = delivery(forge, event, Facts(**{"commit": COMMIT, **facts}), secret, identity)
    return client.post(f"/hooks/{forge}/demo", content=body, headers=headers)


def signature_of(forge: str, body: bytes) -> dict[str, str]:
    return SIGNED[forge](SECRET, body, "d", NOW)


def signed(body: bytes, secret: str = SECRET) -> dict[str, str]:
    digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return {"X-Hub-Signature-256": f"sha256={digest}", "X-GitHub-Event": "push", "X-GitHub-Delivery": digest[:20]}


def with_token(here: Yard) -> dict[str, str]:
    token = secret.new()
    here.app.store.add_token(NewToken(name=f"t{token[-9:]}", hash=secret.hashed(token), scope="read"), "tests")
    return {"Authorization": f"Bearer {token}"}


UNVERIFIED = {"x-hub-signature-256": f"sha256={'0' * 64}"}


async def slowly(
    asgi: Any, more: Callable[[], Awaitable[bytes]], path: str = HOOK, signature: Mapping[str, str] = UNVERIFIED
) -> int:
    """The status of a delivery whose body never ends; `more` is its next part, when it comes."""
    statuses = list[int]()

    async def receive() -> Any:
        return {"type": "http.request", "body": await more(), "more_body": True}

    async def answer(message: Any) -> None:
        statuses.append(message.get("status"))

    named = {"host": "localhost:8765", "x-github-event": "push", **signature}
    headers = [(name.encode(), value.encode()) for name, value in named.items()]
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
    scope |= {"headers": headers, "scheme": "http", "http_version": "1.1", "root_path": "", "asgi": {"version": "3.0"}}
    await asgi({**scope, "client": ("127.0.0.1", 9), "server": ("127.0.0.1", 8765)}, receive, answer)
    return statuses[0]


class Slow:
    """Bodies that never end."""

    def __init__(self, beginning: bytes = b"{") -> None:
        self.beginning = beginning
        self.sent = 0

    async def drip(self) -> bytes:
        """A byte every so often, for ever."""
        await anyio.sleep(0.005)
        self.sent += 1
        return b" "

    async def stop(self) -> bytes:
        """The beginning, and then nothing."""
        if self.sent:
            await anyio.sleep_forever()
        self.sent = 1
        return self.beginning


@pytest.mark.claim("B1")
@pytest.mark.parametrize("forge", FORGES)
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
    labelled = [send(client, "label", commit=commit, identity=f"d-{number}") for number in (4, 5)]
    assert [(answer.status_code, answer.json()["how"]) for answer in labelled] == [(202, "new"), (200, "joined")]
    assert labelled[0].json()["id"] != reported.json()["id"], "a pull request has a build of its own"
    here.app.run_until_idle()
    again = send(client, "label", commit=commit, identity="d-6")
    assert (again.status_code, again.json()["how"], again.json()["id"]) == (202, "again", labelled[0].json()["id"])
    assert here.projects.look(reported.json()["id"]).outcome == "success", "the build of the push stays as it is"


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
        with App("sqlite://:memory:", clock=MovableClock()) as app:
            made = Yard(app, root, Repository(root / "repository"), hooks=HOOKS)
            bare = Project(name="bare", repository="https://x/y", hooks=UNSET)
            made.projects.settings = BuildSettings(projects={"demo": made.demo, "bare": bare})
            (root / "empty").write_text("\n")
            yield made

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

    @pytest.mark.parametrize("forge", FORGES)
    def test_not_without_a_signature(self, client: Client, here: Yard, forge: str) -> None:
        headers, body = delivery(forge, "push", Facts(commit=COMMIT), SECRET, "d")
        bare = {name: value for name, value in headers.items() if name not in signature_of(forge, body)}
        assert len(bare) < len(headers)
        self.refused(here, client.post(f"/hooks/{forge}/demo", content=body, headers=bare))

    @pytest.mark.parametrize("forge", FORGES)
    @pytest.mark.parametrize("secret", ["", "guess", SECRET[:-1], SECRET.upper()])
    def test_not_with_another_secret_or_an_empty_one(self, client: Client, here: Yard, forge: str, secret: str) -> None:
        self.refused(here, send(client, forge=forge, secret=secret))

    @pytest.mark.parametrize("forge", ["github", "gitea", "generic"])  # GitLab's token says nothing of the body
    def test_not_with_an_altered_body(self, client: Client, here: Yard, forge: str) -> None:
        headers, body = delivery(forge, "push", Facts(commit=COMMIT), SECRET, "d")
        for altered in (body.replace(b"ab", b"cd"), body + b" ", body[:-1], b""):
            self.refused(here, client.post(f"/hooks/{forge}/demo", content=altered, headers=headers))

    def test_not_with_a_body_that_gitlab_did_not_sign(self, client: Client, here: Yard) -> None:
        headers, body = delivery("gitlab", "ping", Facts(commit=COMMIT), SECRET, "d")
        at = str(int(NOW.timestamp()))
        digest = hmac.new(SECRET.encode(), f"d.{at}.".encode() + body, hashlib.sha256).digest()
        headers |= {"webhook-id": "d", "webhook-timestamp": at}
        headers |= {"webhook-signature": f"v1,{base64.b64encode(digest).decode()}"}
        assert client.post("/hooks/gitlab/demo", content=body, headers=headers).status_code == 200
        altered = body.replace(b"ab", b"cd")
        self.refused(here, client.post("/hooks/gitlab/demo", content=altered, headers=headers))

    @pytest.mark.parametrize("forge", FORGES)
    def test_not_with_sha1(self, client: Client, here: Yard, forge: str) -> None:
        headers, body = delivery(forge, "push", Facts(commit=COMMIT), SECRET, "d")
        made = hmac.new(SECRET.encode(), body, hashlib.sha1)
        bare = {name: value for name, value in headers.items() if name not in signature_of(forge, body)}
        written = (made.hexdigest(), f"sha1={made.hexdigest()}", f"sha256={made.hexdigest()}")
        names = {*signature_of(forge, body), "X-Hub-Signature", "X-Hub-Signature-256", "X-Signature"}
        for name, given in product(sorted(names), written):
            self.refused(here, client.post(f"/hooks/{forge}/demo", content=body, headers={**bare, name: given}))

    def test_not_where_the_signature_is_of_another_forge(self, client: Client, here: Yard) -> None:
        headers, body = delivery("github", "push", Facts(commit=COMMIT), SECRET, "d")
        self.refused(here, client.post("/hooks/gitlab/demo", content=body, headers=headers))

    @pytest.mark.parametrize(
        "path",
        [
            *("/hooks/github/nothing", "/hooks/nothing/demo", "/hooks/github/%2e%2e"),
            *("/hooks/gitea/bare", "/hooks/github/bare", "/hooks/gitlab/bare"),
        ],
    )
    @pytest.mark.parametrize("secret", [SECRET, ""])
    def test_a_hook_without_a_secret_does_not_exist(self, client: Client, here: Yard, path: str, secret: str) -> None:
        """One that is not set, one that is empty, one that was never named."""
        headers, body = delivery(
            path.split("/")[2].replace("nothing", "github"), "push", Facts(commit=COMMIT), secret, "d"
        )
        answer = client.post(path, content=body, headers=headers)
        self.refused(here, answer)

    @pytest.mark.parametrize("forge", FORGES)
    def test_nothing_shows_whether_there_is_a_hook(self, client: Client, here: Yard, forge: str) -> None:
        headers, body = delivery(forge, "push", Facts(commit=COMMIT), "guess", "d")
        for sent in (headers, {}):
            answers = [client.post(f"/hooks/{forge}/{name}", content=body, headers=sent) for name in NAMES]
            assert len({(answer.status_code, answer.content) for answer in answers}) == 1
            self.refused(here, answers[0])

    @pytest.mark.parametrize("project", NAMES)
    def test_a_body_without_a_signature_is_not_read(self, here: Yard, project: str) -> None:
        for signature in ({}, {"x-hub-signature-256": ""}, {"x-hub-signature-256": "sha256=guess"}):
            slow = Slow()
            assert anyio.run(self.given_up, create(here.app, projects=here.projects), slow, project, signature) == 401
            assert not slow.sent

    @pytest.mark.parametrize("project", NAMES)
    def test_a_body_with_a_signature_is_read_whether_there_is_a_hook_or_not(
        self, here: Yard, monkeypatch: pytest.MonkeyPatch, project: str
    ) -> None:
        """Else the time of the answer would show it."""
        monkeypatch.setattr(gate, "BODY_WITHIN", 0.1)
        slow = Slow()
        assert anyio.run(self.given_up, create(here.app, projects=here.projects), slow, project) == 408
        assert slow.sent

    @pytest.mark.parametrize(("name", "most"), [("MOST_BODIES", 20), ("MOST_BYTES", 20_000)])
    def test_bodies_that_are_not_verified_have_limited_room(
        self, here: Yard, monkeypatch: pytest.MonkeyPatch, name: str, most: int
    ) -> None:
        """The oldest is refused: a delivery of a forge comes at once, and gets through."""
        headers, body = delivery("github", "ping", Facts(commit=COMMIT), SECRET, "d")
        monkeypatch.setattr(hook_bodies, name, most)
        asgi = create(here.app, projects=here.projects)
        assert anyio.run(self.crowd, asgi, headers, body) == [503] * 50 + [200]

    async def crowd(self, asgi: Any, headers: dict[str, str], body: bytes) -> list[int]:
        """The first fifty of a crowd of slow bodies that are refused, and a delivery beside it."""
        statuses = list[int]()

        async def attack() -> None:
            statuses.append(await slowly(asgi, Slow(b"{" * 1000).stop))

        transport = httpx.ASGITransport(app=asgi)
        async with (
            anyio.create_task_group() as tasks,
            httpx.AsyncClient(transport=transport, base_url=ADDRESS) as forge,
        ):
            for _ in range(100):
                tasks.start_soon(attack)
            with anyio.fail_after(60):
                while len(statuses) < 50:
                    await anyio.sleep(0.01)
                answer = await forge.post(HOOK, content=body, headers=headers)
            tasks.cancel_scope.cancel()
        return [*statuses[:50], answer.status_code]

    def test_nothing_but_post(self, client: Client, here: Yard) -> None:
        for method in ("GET", "PUT", "DELETE"):
            self.refused_plainly(client.request(method, HOOK))

    def refused_plainly(self, answer: Any) -> None:
        assert answer.status_code == 401
        assert "demo" not in answer.text

    def test_a_huge_body_is_not_read(self, client: Client, here: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
        for module in (hooks, hook_bodies):
            monkeypatch.setattr(module, "LONGEST_BODY", 1000)
        body = b"{" + b" " * 1000 + b"}"
        self.refused(here, client.post(HOOK, content=body, headers=signed(body)), 413)
        self.refused(here, client.post(HOOK, content=iter([body]), headers=signed(body)), 413)
        assert LONGEST_BODY == 25 * 1024 * 1024

    @pytest.mark.parametrize("kind", ["stop", "drip"])
    def test_a_body_that_does_not_end_is_not_waited_for(
        self, here: Yard, monkeypatch: pytest.MonkeyPatch, kind: str
    ) -> None:
        monkeypatch.setattr(gate, "BODY_WITHIN", 0.1)
        slow = Slow()
        assert anyio.run(self.given_up, create(here.app, projects=here.projects), slow, "demo", UNVERIFIED, kind) == 408
        assert slow.sent
        assert here.projects.builds() == []

    async def given_up(
        self, asgi: Any, slow: Slow, project: str, signature: Mapping[str, str] = UNVERIFIED, kind: str = "stop"
    ) -> int:
        with anyio.fail_after(30):
            return await slowly(asgi, getattr(slow, kind), f"/hooks/github/{project}", signature)

    def test_bodies_that_do_not_end_keep_nobody_else_waiting(self, here: Yard) -> None:
        """More of them than there are threads or connections to the database."""
        statuses = anyio.run(self.meanwhile, create(here.app, projects=here.projects), Slow())
        assert statuses == [200, 200, 401]

    async def meanwhile(self, asgi: Any, slow: Slow) -> list[int]:
        headers, body = delivery("github", "ping", Facts(commit=COMMIT), SECRET, "d")
        transport = httpx.ASGITransport(app=asgi)
        async with (
            anyio.create_task_group() as tasks,
            httpx.AsyncClient(transport=transport, base_url=ADDRESS) as other,
        ):
            for _ in range(200):
                tasks.start_soon(slowly, asgi, slow.drip)
            with anyio.fail_after(30):
                while slow.sent < 400:
                    await anyio.sleep(0)
                answers = [
                    await other.post(HOOK, content=body, headers=headers),
                    await other.get("/readyz"),
                    await other.get("/api/v1/jobs", headers={"Authorization": "Bearer hf_wrong"}),
                ]
            tasks.cancel_scope.cancel()
        return [answer.status_code for answer in answers]

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

    def test_a_compressed_body_is_not_unpacked(self, client: Client, here: Yard) -> None:
        """So no bomb goes off: it is as large as it came, and no JSON."""
        _, body = delivery("github", "push", Facts(commit=COMMIT), SECRET, "d")
        for packed in (gzip.compress(body), gzip.compress(body + b" " * 2 * LONGEST_BODY, 1)):
            headers = signed(packed) | {"Content-Encoding": "gzip", "Content-Type": "application/json"}
            self.refused(here, client.post(HOOK, content=packed, headers=headers), 400)

    @pytest.mark.parametrize("branch", ["a\nb", "--upload-pack=touch x", "a b", "x..y", "\x00"])
    def test_a_branch_that_is_none_is_refused(self, client: Client, here: Yard, branch: str) -> None:
        self.refused(here, send(client, branch=branch), 400)


class TestWhatIsTaken:
    """Attacks that a database sees: on both."""

    @pytest.mark.parametrize("event", [event for event in EVENTS if event != "ping"])
    def test_a_delivery_counts_once(self, client: Client, here: Yard, sql: RawSql, event: str) -> None:
        for number, forge in enumerate(FORGES, 1):
            facts = {"commit": str(number) * 40, "branch": f"of-{forge}", "tag": forge, "number": number}
            self.counts_once(client, here, sql, event, forge, facts)

    def counts_once(
        self, client: Client, here: Yard, sql: RawSql, event: str, forge: str, facts: dict[str, Any]
    ) -> None:
        """Also where it would do something once more: its build was called off, or what it ended has begun again."""

        def come(event: str, identity: str) -> Any:
            return send(client, event, forge, identity=identity, message=identity, **facts)

        asks = "push" if event == "delete" else "pull_request" if event in ENDS else event
        opened = come(asks, "d-1") if event in ENDS else None
        first = come(event, "d-2")
        assert (first.status_code, "ended" in first.json()) == ((202, False) if opened is None else (200, True))
        if opened is None:
            here.projects.abort(first.json()["id"])
        elif here.app.get(opened.json()["job_id"]).final:
            assert come(asks, "d-3").json()["how"] == "again"
        before = self.left(sql)
        again = come(event, "d-2")
        assert (again.status_code, again.json()["code"]) == (409, "conflict")
        assert self.left(sql) == before
        come("merged", "d-4")  # it says that there is no label: on Gitea one must be gone before it is new again
        before = self.left(sql)
        assert come(event, "d-5").status_code == first.status_code
        assert self.left(sql) != before

    def left(self, sql: RawSql) -> list[str]:
        """What deliveries leave behind."""
        looks = [f"select * from {{{table}}}" for table in ("delivery", "audit", "job", "abort")]
        return [str(row) for look in (*looks, "select id, job, lines, title from {build}") for row in sql(look)]

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


@pytest.mark.claim("B1")
class TestBodiesThatComeAgain:
    """The id of a delivery is not signed by most forges: the body counts once."""

    def unsigned(self, forge: str, event: str, body: bytes, identity: str) -> dict[str, str]:
        """The headers of a delivery whose id is not signed."""
        names = {"Push Hook": "X-Gitlab-Event"}
        headers = {names.get(event, f"X-{forge}-Event"): event, "X-Gitlab-Token": SECRET}
        if forge == "generic":
            headers["X-Holdfast-Event"] = event
        ids = {"gitlab": "Idempotency-Key", "generic": "X-Holdfast-Delivery"}
        headers[ids.get(forge, f"X-{forge}-Delivery")] = identity
        digest = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
        return headers | {"X-Hub-Signature-256": f"sha256={digest}", "X-Gitea-Signature": digest}

    def come(self, client: Client, forge: str, said: dict[str, Any], identity: str, event: str = "push") -> Any:
        body = json.dumps(said).encode()
        name = "Push Hook" if forge == "gitlab" else event
        return client.post(f"/hooks/{forge}/demo", content=body, headers=self.unsigned(forge, name, body, identity))

    def push(self, forge: str, **more: Any) -> dict[str, Any]:
        return {"ref": "refs/heads/topic", "after": COMMIT, "checkout_sha": COMMIT, **more}

    @pytest.mark.parametrize("forge", FORGES)
    def test_are_refused_under_any_id_also_where_a_build_would_begin_anew(
        self, client: Client, here: Yard, forge: str
    ) -> None:
        first = self.come(client, forge, self.push(forge), "d-1")
        assert first.status_code == 202
        here.projects.abort(first.json()["id"])
        for identity in ("d-1", "d-2", ""):
            again = self.come(client, forge, self.push(forge), identity)
            assert (again.status_code, again.json()["code"]) == (409, "conflict")
            assert f"`holdfast builds retry {first.json()['id']}`" in again.json()["detail"]
        assert [(build.id, build.job_id) for build in here.projects.builds()] == [
            (first.json()["id"], first.json()["job_id"])
        ]
        another = self.come(client, forge, self.push(forge, user_username="ada", title="later"), "d-3")
        assert (another.status_code, another.json()["how"]) == (202, "again")

    def test_are_refused_at_the_hook_of_another_forge_too(self, client: Client) -> None:
        assert self.come(client, "github", self.push("github"), "d-1").status_code == 202
        assert self.come(client, "gitea", self.push("gitea"), "d-2").status_code == 409

    @pytest.mark.parametrize("forge", ["github", "gitea"])
    @pytest.mark.parametrize("event", ["closed", "delete", "label"])
    def test_cannot_end_or_repeat_a_build_another_time(
        self, client: Client, here: Yard, event: str, forge: str
    ) -> None:
        facts = Facts(commit=COMMIT, branch="topic", number=7)

        def come(event: str, identity: str, **changed: str) -> Any:
            headers, body = delivery(forge, event, facts, SECRET, identity)
            sent = {name.lower(): value for name, value in {**headers, **changed}.items()}
            return client.post(f"/hooks/{forge}/demo", content=body, headers=sent)

        asks = "push" if event == "delete" else "pull_request"
        build = come(asks, "d-1").json()["id"]
        assert come(event, "d-2").status_code in (200, 202)
        if event == "label":
            here.projects.abort(build)
        else:
            assert come(asks, "d-3").json()["how"] == "again"  # it is open again
        before = here.projects.look(build)
        for identity in ("d-4", ""):
            again = come(event, "d-2", **{f"x-{forge}-delivery": identity})
            assert (again.status_code, again.json()["code"]) == (409, "conflict")
        assert here.projects.look(build) == before
        assert here.app.get(before.job_id).final is (event == "label")

    def test_count_again_after_ninety_days(self, client: Client, here: Yard, clock: MovableClock, sql: RawSql) -> None:
        def come(identity: str) -> int:
            return int(self.come(client, "github", self.push("github"), identity).status_code)

        assert come("d-1") == 202
        clock.advance(89 * 86400)
        here.projects.sweep(here.app.store, everything=True)
        assert come("d-2") == 409
        clock.advance(86401)
        assert come("d-1") == 200
        clock.advance(91 * 86400)
        here.projects.sweep(here.app.store, everything=True)
        assert [*sql("select * from {delivery}"), *sql("select * from {hook_body}")] == []

    def test_that_change_nothing_may_come_as_often_as_they_like(self, client: Client, here: Yard) -> None:
        for identity in ("d-1", "d-2"):
            ping = self.come(client, "github", {"zen": "Same again."}, identity, "ping")
            assert (ping.status_code, ping.json()["pong"]) == (200, "demo")
            notes = self.come(client, "github", {"ref": "refs/notes/x", "after": COMMIT}, identity)
            assert (notes.status_code, "ignored" in notes.json()) == (200, True)

    def test_that_were_refused_may_come_again(self, client: Client, here: Yard) -> None:
        here.projects.settings = BuildSettings(projects={})
        assert self.come(client, "github", self.push("github"), "d-1").status_code == 401
        here.projects.settings = BuildSettings(projects={"demo": here.demo})
        assert self.come(client, "github", self.push("github"), "d-1").status_code == 202


@pytest.mark.claim("B1")
class TestSignedIds:
    """A generic hook may sign the id and the time: then its body may come again."""

    def come(self, client: Client, identity: str, *, at: float = 0, said: bytes = b"", **changed: str) -> Any:
        moment = str(int(NOW.timestamp() + at))
        body = said or json.dumps({"commit": COMMIT, "branch": "topic"}).encode()
        digest = hmac.new(SECRET.encode(), f"{identity}.{moment}.".encode() + body, hashlib.sha256).hexdigest()
        headers = {"x-holdfast-delivery": identity, "x-holdfast-timestamp": moment}
        headers |= {"x-holdfast-signature": f"sha256={digest}", **changed}
        return client.post(
            "/hooks/generic/demo",
            content=body,
            headers={name: value for name, value in headers.items() if value != "-"},
        )

    def test_let_a_body_come_again(self, client: Client) -> None:
        answers = [self.come(client, identity) for identity in ("d-1", "d-2", "d-1")]
        assert [answer.status_code for answer in answers] == [202, 200, 409]
        assert answers[1].json()["how"] == "joined"
        assert "`holdfast builds retry" in answers[2].json()["detail"]

    @pytest.mark.parametrize(("at", "status"), [(-301, 401), (-299, 202), (299, 202), (301, 401)])
    def test_are_for_five_minutes(self, client: Client, at: float, status: int) -> None:
        assert self.come(client, "d-1", at=at).status_code == status

    @pytest.mark.parametrize(
        "changed",
        [
            {"x-holdfast-delivery": "d-2"},
            {"x-holdfast-delivery": "-"},
            {"x-holdfast-timestamp": str(int(NOW.timestamp()) + 1)},
            {"x-holdfast-timestamp": "-"},
            {"x-holdfast-timestamp": ""},
            {"x-holdfast-signature": "-"},
        ],
    )
    def test_cannot_be_changed_or_left_out(self, client: Client, here: Yard, changed: dict[str, str]) -> None:
        assert self.come(client, "d-1", **changed).status_code == 401
        assert here.projects.builds() == []

    @pytest.mark.parametrize("identity", ["{}", "a b", "'", "x" * 201])
    def test_are_plain_words(self, client: Client, identity: str) -> None:
        """So no body that was signed alone can pass for an id, a time and a body."""
        assert self.come(client, identity).status_code == 401

    def test_are_signed_by_hooks_send(self, client: Client) -> None:
        facts = Facts(commit=COMMIT)
        for identity, status in (("d-1", 202), ("d-2", 200), ("d-1", 409)):
            headers, body = delivery("generic", "push", facts, SECRET, identity)
            assert client.post("/hooks/generic/demo", content=body, headers=headers).status_code == status

    def test_of_gitlab_let_a_body_come_again(self, yard: Callable[..., Yard]) -> None:
        here = yard(hooks={"gitlab": Secret("SIGNING_TOKEN")})
        token = "whsec_" + base64.b64encode(b"k" * 24).decode()
        here.projects._environment = {"SIGNING_TOKEN": token}
        facts, found = Facts(commit=COMMIT), []
        _, body = delivery("gitlab", "push", facts, token, "d-0")
        with TestClient(create(here.app, projects=here.projects), base_url=ADDRESS) as client:
            for identity in ("d-1", "d-2", "d-1"):
                headers = {"X-Gitlab-Event": "Push Hook", **SIGNED["gitlab"](token, body, identity, NOW)}
                found.append(client.post("/hooks/gitlab/demo", content=body, headers=headers).status_code)
        assert found == [202, 200, 409]


@pytest.mark.claim("B1")
class TestLabelsOfGitea:
    """An event lists all labels that the pull request has; only a new one approves."""

    def come(self, client: Client, action: str, commit: str, *labels: str, **more: Any) -> Any:
        """An event about a stranger's pull request. Each body is another one."""
        tips = {"head": {"ref": "changes", "sha": commit * 40, "repo": {"full_name": "you/demo"}}}
        tips |= {"base": {"ref": "main", "sha": "0" * 40, "repo": {"full_name": "me/demo"}}}
        request = {**tips, "labels": [{"name": label} for label in labels], "updated_at": more.pop("at", None)}
        said = {"action": action, "number": 77, "pull_request": request, "nonce": more.pop("nonce", str(uuid.uuid4()))}
        body = json.dumps(said).encode()
        digest = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
        headers = {"X-Gitea-Event": more.pop("event", "pull_request"), "X-Gitea-Delivery": str(uuid.uuid4())}
        return client.post("/hooks/gitea/demo", content=body, headers={**headers, "X-Gitea-Signature": digest})

    def test_a_label_approves_the_commit_that_the_pull_request_has_and_no_later_one(
        self, client: Client, here: Yard
    ) -> None:
        assert "maintainer" in self.come(client, "opened", "a", "wip").json()["ignored"]
        approved = self.come(client, "label_updated", "a", "wip", "rebuild")
        assert (approved.status_code, approved.json()["trusted"]) == (202, False)
        assert "maintainer" in self.come(client, "synchronized", "b", "wip", "rebuild").json()["ignored"]
        for labels in (("rebuild",), ("rebuild", "bug"), ("bug",)):
            answer = self.come(client, "label_updated", "b", *labels)
            assert (answer.status_code, "ignored" in answer.json()) == (200, True)
        assert [build.commit for build in here.projects.builds()] == ["a" * 40]
        again = self.come(client, "label_updated", "b", "bug", "rebuild")
        assert (again.status_code, again.json()["commit"]) == (202, "b" * 40)

    def test_all_labels_are_new_where_none_were_known(self, client: Client) -> None:
        assert self.come(client, "label_updated", "a", "wip", "rebuild").status_code == 202
        assert "not new" in self.come(client, "label_updated", "a", "rebuild").json()["ignored"]

    @pytest.mark.parametrize(
        "action", ["opened", "synchronized", "reopened", "edited", "assigned", "closed", "reviewed"]
    )
    def test_every_event_of_the_pull_request_renews_what_is_known(self, client: Client, action: str) -> None:
        event = "pull_request_approved" if action == "reviewed" else "pull_request"
        self.come(client, action, "a", "rebuild", event=event)
        assert "not new" in self.come(client, "label_updated", "a", "rebuild", "wip").json()["ignored"]
        self.come(client, "label_cleared", "a")
        assert self.come(client, "label_updated", "a", "rebuild").status_code == 202

    def test_a_replayed_event_takes_no_label_away(self, client: Client, here: Yard) -> None:
        """Else the next change of another label would approve a commit without a review."""
        self.come(client, "opened", "a", nonce="once")
        self.come(client, "label_updated", "a", "rebuild")
        self.come(client, "synchronized", "b", "rebuild")
        assert self.come(client, "opened", "a", nonce="once").status_code == 409
        assert "ignored" in self.come(client, "label_updated", "b", "rebuild", "wip").json()
        assert [build.commit for build in here.projects.builds()] == ["a" * 40]

    def test_an_event_that_comes_late_neither_approves_nor_takes_labels_away(self, client: Client, here: Yard) -> None:
        early, late = "2026-01-01T10:00:00Z", "2026-01-01T11:00:00+01:00"
        later = "2026-01-01T10:00:01Z"
        self.come(client, "synchronized", "b", "rebuild", at=later)
        self.come(client, "opened", "a", at=early)
        assert "not new" in self.come(client, "label_updated", "b", "rebuild", "wip", at=later).json()["ignored"]
        self.come(client, "label_updated", "b", at=later)
        assert "not new" in self.come(client, "label_updated", "a", "rebuild", at=late).json()["ignored"]
        assert here.projects.builds() == []
        assert self.come(client, "label_updated", "b", "rebuild", at=later).status_code == 202

    def test_an_old_event_is_no_approval_once_it_counts_again(
        self, client: Client, here: Yard, clock: MovableClock
    ) -> None:
        def opened() -> Any:
            return self.come(client, "opened", "a", at="2026-01-01T10:00:00Z", nonce="once")

        opened()
        self.come(client, "label_updated", "a", "rebuild", at="2026-01-01T10:00:01Z")
        self.come(client, "synchronized", "b", "rebuild", at="2026-01-01T10:00:02Z")
        clock.advance(91 * 86400)
        assert opened().status_code == 200
        changed = self.come(client, "label_updated", "b", "rebuild", "wip", at="2026-04-02T10:00:00Z")
        assert "not new" in changed.json()["ignored"]

    def test_a_label_builds_a_commit_of_the_repository_anew_once(self, client: Client, here: Yard) -> None:
        facts = {"commit": COMMIT, "forge": "gitea", "number": 5}
        build = send(client, "pull_request", **facts).json()["id"]
        here.projects.abort(build)
        assert send(client, "label", **facts).json()["how"] == "again"
        here.projects.abort(build)
        assert "not new" in send(client, "label", **facts, identity="another").json()["ignored"]

    def test_a_gitea_at_the_hook_of_github_approves_nothing(self, client: Client, here: Yard) -> None:
        _, body = delivery("gitea", "label", Facts(commit=COMMIT, fork=True), SECRET, "d")
        answer = client.post(HOOK, content=body, headers=signed(body) | {"X-GitHub-Event": "pull_request"})
        assert answer.json()["ignored"] == "`pull_request label_updated` is not acted on"


@pytest.mark.claim("B4")
class TestTheEventDelete:
    def come(self, client: Client, said: dict[str, Any]) -> Any:
        body = json.dumps(said).encode()
        digest = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
        headers = {"X-Gitea-Event": "delete", "X-Gitea-Delivery": str(uuid.uuid4()), "X-Gitea-Signature": digest}
        return client.post("/hooks/gitea/demo", content=body, headers=headers)

    @pytest.mark.parametrize("ref", ["topic", "refs/heads/topic"])  # Gitea, Forgejo
    def test_of_gitea_ends_the_builds_of_the_branch(self, client: Client, here: Yard, ref: str) -> None:
        job = send(client, forge="gitea", branch="topic").json()["job_id"]
        other = send(client, forge="gitea", branch="other", commit="cd" * 20).json()["job_id"]
        answer = self.come(client, {"ref": ref, "ref_type": "branch", "pusher_type": "user"})
        assert (answer.status_code, answer.json()["ended"]) == (200, {"branch": "topic", "pull_request": None})
        assert (here.app.get(job).outcome, here.app.get(other).outcome) == ("aborted", None)

    def test_of_gitea_ends_the_build_of_a_tag(self, client: Client, here: Yard) -> None:
        job = send(client, "tag", "gitea", tag="v1").json()["job_id"]
        answer = self.come(client, {"ref": "v1", "ref_type": "tag", "pusher_type": "user"})
        assert answer.json()["ended"] == {"branch": None, "pull_request": None, "tag": "v1"}
        assert here.app.get(job).outcome == "aborted"

    def test_cannot_be_made_of_the_event_create(self, client: Client, here: Yard) -> None:
        """The name of an event is not signed."""
        job = send(client, forge="gitea", branch="topic").json()["job_id"]
        answer = self.come(client, {"ref": "topic", "ref_type": "branch", "sha": COMMIT})
        assert (answer.status_code, "ignored" in answer.json()) == (200, True)
        assert not here.app.get(job).final

    def test_of_github_is_ignored_because_a_push_says_the_same(self, client: Client) -> None:
        body = json.dumps({"ref": "topic", "ref_type": "branch", "pusher_type": "user"}).encode()
        answer = client.post(HOOK, content=body, headers=signed(body) | {"X-GitHub-Event": "delete"})
        assert answer.json()["ignored"] == "`delete` is not acted on"


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
        assert "success" in client.get("/badges/demo.svg").text, "without a branch it is the default one"

    def test_shows_an_outsider_nothing_of_another_branch_not_even_that_it_exists(
        self, client: Client, here: Yard, repository: Repository
    ) -> None:
        here.build(repository.commit(QUICK))
        other = here.ask(repository.commit(FAILING), branch="secret", ref="refs/heads/secret").build
        here.app.run_until_idle()
        assert here.projects.look(other.id).outcome == "failed"
        exists, nothing = (client.get(f"/badges/demo.svg?branch={branch}") for branch in ("secret", "absent"))
        assert exists.text.replace("secret", "absent") == nothing.text
        assert exists.headers == nothing.headers
        assert "failed" in client.get("/badges/demo.svg?branch=secret", headers=with_token(here)).text
        assert "success" in client.get("/badges/demo.svg", headers=with_token(here)).text

    def test_of_all_branches_is_public_if_the_project_says_so(
        self, yard: Callable[..., Yard], repository: Repository
    ) -> None:
        here = yard(public_badge="all")
        here.ask(repository.commit(QUICK), branch="topic", ref="refs/heads/topic")
        here.app.run_until_idle()
        with TestClient(create(here.app, projects=here.projects), base_url=ADDRESS) as client:
            assert "success" in client.get("/badges/demo.svg?branch=topic").text
            assert "success" in client.get("/badges/demo.svg").text, "no default branch is known"

    @pytest.mark.parametrize("forge", ["github", "gitea", "gitlab"])
    def test_goes_by_the_default_branch_that_the_forge_says(
        self, client: Client, here: Yard, repository: Repository, forge: str
    ) -> None:
        facts = {"forge": forge, "commit": repository.commit(QUICK), "default_branch": "trunk"}
        assert send(client, branch="trunk", **facts).status_code == 202
        here.app.run_until_idle()
        assert "success" in client.get("/badges/demo.svg?branch=trunk").text
        assert "unknown" in client.get("/badges/demo.svg?branch=main").text
        assert here.projects.default_branch(here.demo) == "trunk"

    def test_goes_by_the_setting_before_all(self, yard: Callable[..., Yard], repository: Repository) -> None:
        here = yard(public_badge=True, default_branch="release")
        here.build(repository.commit(QUICK))
        here.app.store.put_default_branch("demo", "main")
        with TestClient(create(here.app, projects=here.projects), base_url=ADDRESS) as client:
            assert "unknown" in client.get("/badges/demo.svg?branch=main").text
            here.ask(repository.commit(QUICK, {"x": "y"}), branch="release", ref="refs/heads/release")
            here.app.run_until_idle()
            assert "success" in client.get("/badges/demo.svg").text

    def test_shows_nothing_where_the_default_branch_is_not_known(self, client: Client, here: Yard) -> None:
        here.ask("ab" * 20)
        assert here.projects.default_branch(here.demo) is None
        main, none = (client.get(f"/badges/demo.svg?branch={branch}").text for branch in ("main", "none"))
        assert main.replace("main", "none") == none
        assert "unknown" in client.get("/badges/demo.svg").text

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
