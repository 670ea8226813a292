"""Plays the forge: the headers and the body that it would send about a repository, signed with the hook's secret."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.builds.webhooks import SIGNED_ID, content_with_id, signature, standard_signature
from holdfast.errors import Invalid, backticked, quoted

EVENTS = ("push", "tag", "delete", "pull_request", "synchronize", "label", "closed", "merged", "ping")
NOTHING = "0" * 40


class Facts(Struct, frozen=True, kw_only=True):
    """What a delivery is about."""

    commit: str
    before: str = NOTHING
    branch: str = "main"
    tag: str = "v1"
    number: int = 1
    label: str = "rebuild"
    fork: bool = False
    repository: str = "local/repository"
    default_branch: str | None = None
    message: str = ""
    author: str = "somebody"


def delivery(
    forge: str, event: str, facts: Facts, secret: str, identity: str, now: datetime
) -> tuple[dict[str, str], bytes]:
    """Headers and body. Bodies of two ids differ where the forge signs the body alone."""
    if event not in EVENTS:
        raise Invalid(f"There is no event {backticked(event)} to send; known are {', '.join(EVENTS)}.")
    headers, content = WRITERS[forge](event, facts, identity)
    body = msgspec.json.encode(content)
    signed = SIGNED[forge](secret, body, identity, now)
    return {"Content-Type": "application/json", "User-Agent": "holdfast-hooks", **headers, **signed}, body


def _github(event: str, facts: Facts, identity: str) -> tuple[dict[str, str], dict[str, Any]]:
    name = {"push": "push", "tag": "push", "delete": "push", "ping": "ping"}.get(event, "pull_request")
    content = _as_github(event, facts, "synchronize", "labeled")
    content |= {"delivery": identity}  # in the place of the times that a forge writes into its bodies
    return {"X-GitHub-Event": name, "X-GitHub-Delivery": identity}, content


def _gitea(event: str, facts: Facts, identity: str) -> tuple[dict[str, str], dict[str, Any]]:
    name = {"push": "push", "tag": "push", "delete": "delete", "ping": "ping"}.get(event, "pull_request")
    content = _as_github(event, facts, "synchronized", "label_updated")
    if event == "delete":
        gone = {"ref": facts.branch, "ref_type": "branch", "pusher_type": "user"}
        content = {**gone, "repository": content["repository"]}
    content |= {"delivery": identity}
    return {"X-Gitea-Event": name, "X-Gitea-Delivery": identity}, content


def _as_github(event: str, facts: Facts, synchronised: str, labelled: str) -> dict[str, Any]:
    repository = {"full_name": facts.repository, "default_branch": facts.default_branch}
    if event == "ping":
        return {"zen": "Somebody is there.", "repository": repository}
    if event in ("push", "tag", "delete"):
        commit = {"id": facts.commit, "message": facts.message, "author": {"name": facts.author}}
        gone = event == "delete"
        return {
            "ref": f"refs/tags/{facts.tag}" if event == "tag" else f"refs/heads/{facts.branch}",
            "before": facts.commit if gone else facts.before,
            "after": NOTHING if gone else facts.commit,
            "created": not gone and facts.before == NOTHING,
            "deleted": gone,
            "head_commit": None if gone else commit,
            "commits": [] if gone else [commit],
            "repository": repository,
            "pusher": {"name": facts.author},
        }
    actions = {"pull_request": "opened", "synchronize": synchronised, "label": labelled}
    head = {"full_name": "somebody/fork"} if facts.fork else repository
    return {
        "action": actions.get(event, "closed"),
        "number": facts.number,
        "pull_request": {
            "head": {"ref": facts.branch, "sha": facts.commit, "repo": head},
            "base": {"ref": "main", "sha": facts.before, "repo": repository},
            "title": facts.message,
            "merged": event == "merged",
            "labels": [{"name": facts.label}] if event == "label" else [],
            "user": {"login": facts.author},
        },
        "repository": repository,
        **({"label": {"name": facts.label}} if event == "label" else {}),
    }


def _gitlab(event: str, facts: Facts, identity: str) -> tuple[dict[str, str], dict[str, Any]]:
    names = {"push": "Push Hook", "delete": "Push Hook", "tag": "Tag Push Hook", "ping": "Ping Hook"}
    headers = {"X-Gitlab-Event": names.get(event, "Merge Request Hook"), "X-Gitlab-Event-UUID": identity}
    if event in names:
        gone = event == "delete"
        return headers, {
            "object_kind": "tag_push" if event == "tag" else "push",
            "ref": f"refs/tags/{facts.tag}" if event == "tag" else f"refs/heads/{facts.branch}",
            "before": facts.commit if gone else facts.before,
            "after": NOTHING if gone else facts.commit,
            "checkout_sha": None if gone else facts.commit,
            "commits": [] if gone else [{"id": facts.commit, "message": facts.message}],
            "user_username": facts.author,
            "project": {"default_branch": facts.default_branch},
            "delivery": identity,
        }
    actions = {"pull_request": "open", "closed": "close", "merged": "merge"}
    return headers, {
        "object_kind": "merge_request",
        "project": {"default_branch": facts.default_branch},
        "delivery": identity,
        "user": {"username": facts.author},
        "object_attributes": {
            "iid": facts.number,
            "source_branch": facts.branch,
            "target_branch": "main",
            "source_project_id": 2 if facts.fork else 1,
            "target_project_id": 1,
            "action": actions.get(event, "update"),
            "oldrev": facts.before if event == "synchronize" else None,
            "last_commit": {"id": facts.commit, "message": facts.message},
            "title": facts.message,
        },
        "changes": {"labels": {"previous": [], "current": [{"title": facts.label}]}} if event == "label" else {},
    }


def _generic(event: str, facts: Facts, identity: str) -> tuple[dict[str, str], dict[str, Any]]:
    about: dict[str, Any] = {"commit": facts.commit, "title": facts.message, "author": facts.author}
    if event == "tag":
        about["tag"] = facts.tag
    else:
        about["branch"] = facts.branch
    if event in ("pull_request", "synchronize", "label", "closed", "merged"):
        about["pull_request"] = facts.number
    about["closed"] = event in ("closed", "merged", "delete")
    name = "ping" if event == "ping" else "pull_request" if "pull_request" in about else "push"
    return {"X-Holdfast-Event": name, "X-Holdfast-Delivery": identity}, about


WRITERS: Mapping[str, Callable[[str, Facts, str], tuple[dict[str, str], dict[str, Any]]]] = {
    "github": _github,
    "gitlab": _gitlab,
    "gitea": _gitea,
    "generic": _generic,
}


def _github_signature(secret: str, body: bytes, identity: str, now: datetime) -> dict[str, str]:
    return {"X-Hub-Signature-256": f"sha256={signature(secret, body)}"}


def _gitlab_signature(secret: str, body: bytes, identity: str, now: datetime) -> dict[str, str]:
    """With a signing token a signature, else the secret token itself."""
    if not secret.startswith("whsec_"):
        return {"X-Gitlab-Token": secret}
    moment = str(int(now.timestamp()))
    made = standard_signature(secret, content_with_id(identity, moment, body))
    return {"Webhook-Id": identity, "Webhook-Timestamp": moment, "Webhook-Signature": f"v1,{made}"}


def _gitea_signature(secret: str, body: bytes, identity: str, now: datetime) -> dict[str, str]:
    return {"X-Gitea-Signature": signature(secret, body)}


def _generic_signature(secret: str, body: bytes, identity: str, now: datetime) -> dict[str, str]:
    if not SIGNED_ID.fullmatch(identity):
        raise Invalid(
            f"The delivery id {quoted(identity)} cannot be signed. Use at most 200 letters, digits, `.`, `_`, `:` and `-`."
        )
    moment = str(int(now.timestamp()))
    made = signature(secret, content_with_id(identity, moment, body))
    return {"X-Holdfast-Timestamp": moment, "X-Holdfast-Signature": f"sha256={made}"}


SIGNED: Mapping[str, Callable[[str, bytes, str, datetime], dict[str, str]]] = {
    "github": _github_signature,
    "gitlab": _gitlab_signature,
    "gitea": _gitea_signature,
    "generic": _generic_signature,
}
