"""Whether a delivery comes from the forge, and what it asks for: without a server, a store or a clock."""

import base64
import hashlib
import hmac
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast import Invalid
from holdfast.builds.forges import Ended, Ignored, Ping, Wanted
from holdfast.builds.labels import PullRequestLabels
from holdfast.builds.webhooks import FORGES, Delivery, read, signature, signed

NOW = datetime(2026, 1, 1, tzinfo=UTC)
COMMIT, BEFORE, NOTHING = "ab" * 20, "cd" * 20, "0" * 40
SAMPLES = Path(__file__).parents[3] / "shared" / "data" / "webhooks" / "github"


def delivered(forge: str, event: str, body: Any, **headers: str) -> Delivery:
    name = {"github": "x-github-event", "gitlab": "x-gitlab-event", "gitea": "x-gitea-event"}.get(
        forge, "x-holdfast-event"
    )
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read(forge, {name: event, **headers}, text)


def asked(forge: str, event: str, body: Any) -> Any:
    return delivered(forge, event, body).asks


def pull(**more: Any) -> dict[str, Any]:
    repo = {"full_name": "me/demo"}
    tip = {"ref": "changes", "sha": COMMIT, "repo": repo}
    request = {"head": tip, "base": {**tip, "ref": "main"}, "title": "A change", "user": {"login": "ada"}}
    return {"action": more.pop("action", "opened"), "number": 7, "pull_request": {**request, **more}}


def header_of(forge: str, secret: str, body: bytes) -> dict[str, str]:
    """As the forge signs."""
    digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return {
        "github": {"x-hub-signature-256": f"sha256={digest}"},
        "gitlab": {"x-gitlab-token": secret},
        "gitea": {"x-gitea-signature": digest},
        "generic": {"x-holdfast-signature": f"sha256={digest}"},
    }[forge]


@pytest.mark.claim("B1")
class TestSignatures:
    @pytest.mark.parametrize("forge", FORGES)
    def test_who_knows_the_secret_is_believed(self, forge: str) -> None:
        assert signed(forge, "s3cret", header_of(forge, "s3cret", b"{}"), b"{}", NOW)

    @pytest.mark.parametrize("forge", FORGES)
    def test_another_secret_is_not(self, forge: str) -> None:
        assert not signed(forge, "s3cret", header_of(forge, "other", b"{}"), b"{}", NOW)

    @pytest.mark.parametrize("forge", ["github", "gitea", "generic"])
    def test_an_altered_body_is_not(self, forge: str) -> None:
        assert not signed(forge, "s3cret", header_of(forge, "s3cret", b"{}"), b"{ }", NOW)

    @pytest.mark.parametrize("forge", FORGES)
    def test_no_header_is_not(self, forge: str) -> None:
        assert not signed(forge, "s3cret", {}, b"{}", NOW)

    @pytest.mark.parametrize("forge", FORGES)
    def test_an_empty_secret_signs_nothing(self, forge: str) -> None:
        assert not signed(forge, "", header_of(forge, "", b"{}"), b"{}", NOW)

    @pytest.mark.parametrize("forge", ["github", "gitea", "generic"])
    def test_sha1_is_not_looked_at(self, forge: str) -> None:
        digest = hmac.new(b"s3cret", b"{}", hashlib.sha1).hexdigest()
        for name in ("x-hub-signature", *header_of(forge, "s3cret", b"{}"), "x-hub-signature-256"):
            for given in (digest, f"sha1={digest}", f"sha256={digest}"):
                assert not signed(forge, "s3cret", {name: given}, b"{}", NOW)

    @pytest.mark.parametrize("given", ["", "sha256=", "sha256=é", "sha512=aa", "sha256=" + "a" * 63, "\udcff"])
    def test_a_signature_of_another_form_is_not_one(self, given: str) -> None:
        assert not signed("github", "s3cret", {"x-hub-signature-256": given}, b"{}", NOW)

    def test_githubs_digest_needs_its_name_before_it(self) -> None:
        assert not signed("github", "s3cret", {"x-hub-signature-256": signature("s3cret", b"{}")}, b"{}", NOW)


class TestGitLabsSigningToken:
    secret = "whsec_" + base64.b64encode(b"k" * 24).decode()

    def headers(self, moment: datetime, body: bytes = b"{}", key: bytes = b"k" * 24) -> dict[str, str]:
        at = str(int(moment.timestamp()))
        digest = hmac.new(key, f"id-1.{at}.".encode() + body, hashlib.sha256).digest()
        made = f"v1,{base64.b64encode(digest).decode()}"
        return {"webhook-id": "id-1", "webhook-timestamp": at, "webhook-signature": f"v1,AAAA {made}"}

    def test_signs_id_time_and_body(self) -> None:
        assert signed("gitlab", self.secret, self.headers(NOW), b"{}", NOW)

    @pytest.mark.parametrize("body", [b"[]", b"{} "])
    def test_does_not_sign_another_body(self, body: bytes) -> None:
        assert not signed("gitlab", self.secret, self.headers(NOW), body, NOW)

    def test_is_not_made_with_another_key(self) -> None:
        assert not signed("gitlab", self.secret, self.headers(NOW, key=b"other"), b"{}", NOW)

    def test_is_old_after_five_minutes(self) -> None:
        assert not signed("gitlab", self.secret, self.headers(NOW), b"{}", datetime(2026, 1, 1, 0, 6, tzinfo=UTC))

    def test_a_token_beside_a_wrong_signature_does_not_help(self) -> None:
        headers = self.headers(NOW, key=b"other") | {"x-gitlab-token": self.secret}
        assert not signed("gitlab", self.secret, headers, b"{}", NOW)

    @pytest.mark.parametrize("moment", ["", "now", "-1", "١٢٣", "9" * 50])
    def test_a_time_that_is_none_is_refused(self, moment: str) -> None:
        assert not signed("gitlab", self.secret, self.headers(NOW) | {"webhook-timestamp": moment}, b"{}", NOW)


@pytest.mark.claim("B1")
class TestPush:
    @pytest.mark.parametrize("forge", ["github", "gitea"])
    def test_asks_for_its_commit(self, forge: str) -> None:
        body = {
            "ref": "refs/heads/main",
            "before": BEFORE,
            "after": COMMIT,
            "head_commit": {"id": COMMIT, "message": "One\n\ntwo"},
        }
        wanted = asked(forge, "push", body | {"pusher": {"name": "ada"}})
        assert wanted == Wanted(commit=COMMIT, ref="refs/heads/main", branch="main", title="One", author="ada")

    @pytest.mark.parametrize("forge", ["github", "gitea"])
    def test_of_a_tag_asks_for_the_commit_it_points_at(self, forge: str) -> None:
        wanted = asked(forge, "push", {"ref": "refs/tags/v1", "after": BEFORE, "head_commit": {"id": COMMIT}})
        assert (wanted.commit, wanted.tag, wanted.branch) == (COMMIT, "v1", None)

    @pytest.mark.parametrize("forge", ["github", "gitea"])
    def test_that_deletes_a_branch_ends_it(self, forge: str) -> None:
        body = {"ref": "refs/heads/main", "before": COMMIT, "after": NOTHING, "deleted": True, "head_commit": None}
        assert asked(forge, "push", body) == Ended(branch="main")

    def test_of_a_new_branch_without_a_head_commit_takes_what_it_has(self) -> None:
        assert asked("github", "push", {"ref": "refs/heads/new", "after": COMMIT}).commit == COMMIT

    def test_of_gitea_has_an_event_of_its_own_for_a_deleted_branch_or_tag(self) -> None:
        assert asked("gitea", "delete", {"ref": "x", "ref_type": "branch"}) == Ended(branch="x")
        assert asked("gitea", "delete", {"ref": "refs/heads/x", "ref_type": "branch"}) == Ended(branch="x")
        assert asked("gitea", "delete", {"ref": "v1", "ref_type": "tag"}) == Ended(tag="v1")
        assert isinstance(asked("gitea", "delete", {"ref": "x", "ref_type": "branch", "sha": COMMIT}), Ignored)

    @pytest.mark.parametrize("forge", ["github", "gitea", "gitlab"])
    def test_that_deletes_a_tag_is_ignored(self, forge: str) -> None:
        event = "Tag Push Hook" if forge == "gitlab" else "push"
        assert asked(forge, event, {"ref": "refs/tags/v1", "after": NOTHING}) == Ignored("a tag was deleted")

    def test_of_notes_is_ignored(self) -> None:
        assert isinstance(asked("github", "push", {"ref": "refs/notes/x", "after": COMMIT}), Ignored)

    def test_on_gitlab_asks_for_what_it_checks_out(self) -> None:
        body = {"ref": "refs/tags/v1", "after": BEFORE, "checkout_sha": COMMIT, "user_username": "ada"}
        body["commits"] = [{"id": COMMIT, "message": "One"}]
        wanted = asked("gitlab", "Tag Push Hook", body)
        assert (wanted.commit, wanted.tag, wanted.title, wanted.author) == (COMMIT, "v1", "One", "ada")

    def test_on_gitlab_may_delete_too(self) -> None:
        body = {"ref": "refs/heads/x", "after": NOTHING, "checkout_sha": None, "commits": []}
        assert asked("gitlab", "Push Hook", body) == Ended(branch="x")

    def test_of_a_generic_hook_needs_a_commit_only(self) -> None:
        assert asked("generic", "", {"commit": COMMIT}) == Wanted(commit=COMMIT, ref="HEAD")
        assert asked("generic", "push", {"commit": COMMIT, "branch": "main"}).branch == "main"
        assert asked("generic", "", {"ref": "refs/heads/main", "after": COMMIT}).branch == "main"


@pytest.mark.claim("B1")
class TestPullRequest:
    @pytest.mark.parametrize("action", ["opened", "reopened", "synchronize"])
    def test_of_github_asks_for_its_head(self, action: str) -> None:
        wanted = asked("github", "pull_request", pull(action=action))
        assert (wanted.commit, wanted.branch, wanted.pull_request) == (COMMIT, "changes", 7)
        assert (wanted.ref, wanted.stranger, wanted.labels) == ("refs/pull/7/head", False, None)

    def test_of_gitea_calls_it_synchronized(self) -> None:
        assert asked("gitea", "pull_request_sync", pull(action="synchronized")).commit == COMMIT

    @pytest.mark.parametrize("merged", [True, False])
    def test_that_is_closed_ends(self, merged: bool) -> None:
        assert asked("github", "pull_request", pull(action="closed", merged=merged)) == Ended(
            pull_request=7, merged=merged
        )

    def test_with_a_label_names_it(self) -> None:
        body = pull(action="labeled") | {"label": {"name": "rebuild"}}
        assert asked("github", "pull_request", body).labels == ("rebuild",)

    @pytest.mark.parametrize("action", ["label_updated", "label_cleared", "opened", "edited", "synchronized", "closed"])
    def test_of_gitea_says_all_labels_that_it_has(self, action: str) -> None:
        body = pull(action=action, labels=[{"name": "bug"}, {"name": "rebuild"}], updated_at="2026-01-01T00:00:00Z")
        found = delivered("gitea", "pull_request", body)
        assert found.labels == PullRequestLabels(7, ("bug", "rebuild"), NOW)

    def test_of_gitea_asks_by_its_labels_only_where_they_changed(self) -> None:
        labels = [{"name": "rebuild"}]
        assert asked("gitea", "pull_request", pull(action="label_updated", labels=labels)).labels == ("rebuild",)
        assert asked("gitea", "pull_request", pull(action="synchronized", labels=labels)).labels is None
        assert isinstance(asked("gitea", "pull_request", pull(action="label_cleared", labels=[])), Ignored)

    @pytest.mark.parametrize("forge", ["github", "gitlab", "generic"])
    def test_of_other_forges_says_what_changed(self, forge: str) -> None:
        assert delivered(forge, "star", {}).labels is None

    @pytest.mark.parametrize(
        "head", [{"repo": None}, {"repo": {"full_name": "you/demo"}}, {"repo": {}}, {"ref": "refs/pull/7/head"}]
    )
    def test_from_elsewhere_is_a_strangers(self, head: dict[str, Any]) -> None:
        body = pull()
        body["pull_request"]["head"] = body["pull_request"]["head"] | head
        assert asked("github", "pull_request", body).stranger

    def test_of_gitea_that_anybody_may_push_is_a_strangers(self) -> None:
        assert asked("gitea", "pull_request", pull(flow=1)).stranger

    @pytest.mark.parametrize(("action", "more"), [("open", {}), ("reopen", {}), ("update", {"oldrev": BEFORE})])
    def test_of_gitlab_asks_for_its_last_commit(self, action: str, more: dict[str, str]) -> None:
        wanted = asked("gitlab", "Merge Request Hook", self.merge(action=action, **more))
        assert (wanted.commit, wanted.ref, wanted.pull_request) == (COMMIT, "refs/merge-requests/3/head", 3)
        assert not wanted.stranger

    def test_of_gitlab_from_another_project_is_a_strangers(self) -> None:
        assert asked("gitlab", "Merge Request Hook", self.merge(action="open", source_project_id=9)).stranger

    def test_of_gitlab_with_a_new_label_names_it(self) -> None:
        body = self.merge(action="update")
        body["changes"] = {
            "labels": {"previous": [{"title": "bug"}], "current": [{"title": "bug"}, {"title": "rebuild"}]}
        }
        assert asked("gitlab", "Merge Request Hook", body).labels == ("rebuild",)

    @pytest.mark.parametrize("action", ["close", "merge"])
    def test_of_gitlab_that_is_closed_ends(self, action: str) -> None:
        found = asked("gitlab", "Merge Request Hook", self.merge(action=action))
        assert found == Ended(pull_request=3, merged=action == "merge")

    def merge(self, **more: Any) -> dict[str, Any]:
        request = {"iid": 3, "source_branch": "changes", "source_project_id": 1, "target_project_id": 1}
        return {"object_attributes": {**request, "last_commit": {"id": COMMIT}, "title": "A change", **more}}


class TestOtherEvents:
    def test_a_ping_is_a_ping(self) -> None:
        known_by = delivered("github", "ping", {"zen": "…"}).id
        digest = known_by.removeprefix("sha256:")
        assert delivered("github", "ping", {"zen": "…"}) == Delivery("github", known_by, "ping", Ping(), digest)

    @pytest.mark.parametrize(
        ("forge", "event"), [("github", "star"), ("gitlab", "Wiki Page Hook"), ("gitea", "fork"), ("generic", "party")]
    )
    def test_are_ignored_by_name(self, forge: str, event: str) -> None:
        found = delivered(forge, event, {"anything": [1, None]})
        assert isinstance(found.asks, Ignored)
        assert event in found.asks.why

    @pytest.mark.parametrize("action", ["edited", "assigned", "unlabeled"])
    def test_of_a_pull_request_are_ignored_by_name(self, action: str) -> None:
        assert action in asked("github", "pull_request", pull(action=action)).why

    def test_no_event_is_named_too(self) -> None:
        assert "names no event" in asked("github", "", {}).why


class TestOddBodies:
    @pytest.mark.parametrize(
        "body", [b"", b"[]", b"null", b"{", b'{"ref": 1}', b"\xff", b"[" * 100_000, b'{"x":' * 100_000]
    )
    def test_are_refused_with_the_reason(self, body: bytes) -> None:
        with pytest.raises(Invalid, match=r"cannot be read"):
            asked("github", "push", body)

    @pytest.mark.parametrize(
        "commit", ["", "HEAD", "abc123", NOTHING[:-1] + "g", "--upload-pack=x", COMMIT.upper(), COMMIT + "\n"]
    )
    def test_a_commit_that_is_none_is_refused(self, commit: str) -> None:
        with pytest.raises(Invalid, match="Commit"):
            asked("github", "push", {"ref": "refs/heads/main", "after": commit})

    @pytest.mark.parametrize(
        "branch", ["--force", "a\nb", "a b", "../x", "a..b", "/x", "x.lock", "a\x00", "x" * 300, "a\u202eb", "@", "a~1"]
    )
    def test_a_branch_that_git_would_refuse_is_refused(self, branch: str) -> None:
        with pytest.raises(Invalid, match="Branch"):
            asked("github", "push", {"ref": f"refs/heads/{branch}", "after": COMMIT})

    @pytest.mark.parametrize("branch", ["$(reboot)", "a;b", "`x`", "feature/ä", "-x"[1:]])
    def test_a_branch_that_only_a_shell_would_mind_is_a_name(self, branch: str) -> None:
        assert asked("github", "push", {"ref": f"refs/heads/{branch}", "after": COMMIT}).branch == branch

    @pytest.mark.parametrize("number", [0, -1, 2**40])
    def test_a_pull_request_has_a_number(self, number: int) -> None:
        with pytest.raises(Invalid, match="Pull request"):
            asked("github", "pull_request", pull() | {"number": number})

    def test_a_title_is_one_line_without_what_moves_a_cursor(self) -> None:
        body = {
            "ref": "refs/heads/main",
            "after": COMMIT,
            "head_commit": {"id": COMMIT, "message": "a\x1b[2Jb\nc" + "d" * 500},
        }
        assert asked("github", "push", body).title == "a [2Jb"

    def test_a_form_holds_the_same_json(self) -> None:
        headers = {"content-type": "application/x-www-form-urlencoded", "x-github-event": "push"}
        body = b"payload=%7B%22ref%22%3A%22refs%2Fheads%2Fmain%22%2C%22after%22%3A%22" + COMMIT.encode() + b"%22%7D"
        assert read("github", headers, body).asks.commit == COMMIT
        with pytest.raises(Invalid, match="payload"):
            read("github", headers, b"other=1")


class TestTheIdOfADelivery:
    @pytest.mark.parametrize(
        ("forge", "header"),
        [
            ("github", "x-github-delivery"),
            ("gitlab", "x-gitlab-event-uuid"),
            ("gitea", "x-forgejo-delivery"),
            ("generic", "x-holdfast-delivery"),
        ],
    )
    def test_is_the_forges(self, forge: str, header: str) -> None:
        assert delivered(forge, "star", {}, **{header: "d-1"}).id == "d-1"

    def test_is_the_bodys_where_there_is_none(self) -> None:
        assert delivered("generic", "star", {}).id == delivered("generic", "star", {}).id
        assert delivered("generic", "star", {}).id != delivered("generic", "star", {"a": 1}).id


class TestTheDefaultBranch:
    @pytest.mark.parametrize("where", ["repository", "project"])
    def test_is_said_by_the_forge(self, where: str) -> None:
        assert delivered("github", "star", {where: {"default_branch": "trunk"}}).default_branch == "trunk"

    @pytest.mark.parametrize(
        "said", [{}, {"repository": None}, {"repository": {"default_branch": "--x"}}, {"project": 7}]
    )
    def test_is_none_where_it_is_not_said_or_no_name(self, said: dict[str, Any]) -> None:
        assert delivered("github", "star", said).default_branch is None


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the samples are not here")
@pytest.mark.parametrize(
    "sample", sorted(SAMPLES.glob("*.json")) if SAMPLES.is_dir() else [], ids=lambda path: path.stem
)
def test_what_github_really_sends_is_understood(sample: Path) -> None:
    name = sample.stem
    found = asked("github", name.partition(".")[0], sample.read_bytes())
    expected = {"ping": Ping, "push": Ignored, "pull_request.closed": Ended}.get(name, Wanted)
    assert isinstance(found, expected)
