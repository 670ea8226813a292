"""A commit status in the words of each forge: what to send where.

- GitHub, Gitea and Forgejo know `pending`, `success`, `failure` and `error`; GitLab has words of its own.
- A generic receiver gets Holdfast's own words.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct

from holdfast.builds.build import Build
from holdfast.builds.project import StatusSettings

LONGEST = 140  # characters of a description on GitHub
STATES: Mapping[str, Mapping[str, str]] = {
    "github": {"failed": "failure", "aborted": "error"},
    "gitea": {"failed": "failure", "aborted": "error"},
    "gitlab": {"error": "failed", "aborted": "canceled"},
    "generic": {},
}


class Message(Struct, frozen=True):
    """One request to a forge."""

    url: str
    headers: dict[str, str]
    body: bytes


def message(
    settings: StatusSettings,
    token: str,
    build: Build,
    state: str,
    description: str,
    step: str | None,
    link: str | None,
) -> Message:
    """The request that sets a status of a build's commit, or of one of its steps."""
    context = f"holdfast/{build.project}" + (f"/{step}" if step else "")
    short = description if len(description) <= LONGEST else description[: LONGEST - 1] + "…"
    said = STATES[settings.forge].get(state, state)
    url, headers, fields = _ADDRESSED[settings.forge](settings, token, build, context)
    body: dict[str, Any] = {"state": said, "description": short, **fields}
    if link is not None:
        body["target_url"] = link
    headers |= {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "holdfast"}
    return Message(url, headers, msgspec.json.encode(body))


Addressed = tuple[str, dict[str, str], dict[str, Any]]


def _github(settings: StatusSettings, token: str, build: Build, context: str) -> Addressed:
    url = f"{settings.url}/repos/{quote(settings.repository)}/statuses/{build.commit}"
    return url, {"Authorization": f"Bearer {token}"}, {"context": context}


def _gitea(settings: StatusSettings, token: str, build: Build, context: str) -> Addressed:
    url = f"{settings.url}/repos/{quote(settings.repository)}/statuses/{build.commit}"
    return url, {"Authorization": f"token {token}"}, {"context": context}


def _gitlab(settings: StatusSettings, token: str, build: Build, context: str) -> Addressed:
    url = f"{settings.url}/projects/{quote(settings.repository, safe='')}/statuses/{build.commit}"
    ref = {"ref": build.branch or build.tag} if build.branch or build.tag else {}
    return url, {"PRIVATE-TOKEN": token}, {"name": context, **ref}


def _generic(settings: StatusSettings, token: str, build: Build, context: str) -> Addressed:
    told = {"project": build.project, "commit": build.commit, "branch": build.branch, "build": build.id}
    return settings.url, {"Authorization": f"Bearer {token}"}, {"context": context, **told}


_ADDRESSED = {"github": _github, "gitea": _gitea, "gitlab": _gitlab, "generic": _generic}
