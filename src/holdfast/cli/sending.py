"""What `holdfast hooks send` does: read the repository, sign, send, and read the answer."""

import os
import subprocess
import urllib.error
import urllib.request
import uuid
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.builds.sending import NOTHING, Facts, delivery
from holdfast.cli.command import Call
from holdfast.cli.projects import settings_of
from holdfast.clock import Clock
from holdfast.errors import Invalid, NotFound, Unavailable, backticked
from holdfast.projects import secret_in
from holdfast.workflows.definition import nearest

PATIENCE = 30.0  # seconds
EXITS = {400: 2, 401: 1, 404: 3, 409: 4, 503: 5}


class Answer(Struct, frozen=True):
    """What the server said."""

    status: int
    body: dict[str, Any]

    @property
    def exit_code(self) -> int:
        return 0 if self.status < 300 else EXITS.get(self.status, 1)


def secret(call: Call, forge: str, project: str, variable: str | None) -> str:
    """The hook's secret, from where the settings say it stands."""
    if variable is not None:
        found = os.environ.get(variable)
        if not found:
            raise Invalid(f"--secret-env: there is nothing in environment variable {variable}.")
        return found
    call.settings()  # tells what is wrong elsewhere in the file
    known = settings_of(call)
    if known is None:
        raise Invalid(
            "There is no settings file with projects here. Name it with --config, or the secret with --secret-env."
        )
    settings, root = known
    named = settings.projects.get(project)
    if named is None:
        raise NotFound(
            f"There is no project {backticked(project)} in the settings.{nearest(project, list(settings.projects))}"
        )
    where = named.hooks.get(forge)
    if where is None:
        raise NotFound(
            f'Project `{project}` has no hook of {forge}. Give it a secret: {forge} = {{ secret_env = "…" }}.'
        )
    found = secret_in(where, root, os.environ)
    if found is None:
        raise Invalid(f"There is nothing in {where.words}, where the secret of project `{project}` should be.")
    return found


def facts(repo: Path, commit: str, branch: str | None, **more: Any) -> Facts:
    """What git knows of the repository."""
    whole = _git(repo, "rev-parse", "--verify", "--end-of-options", f"{commit}^{{commit}}")
    title, author = _git(repo, "log", "-1", "--format=%s%n%an", whole).split("\n", 1)
    here = branch or _git(repo, "symbolic-ref", "--short", "-q", "HEAD", may_fail=True) or "main"
    before = _git(repo, "rev-parse", "--verify", "-q", f"{whole}^", may_fail=True) or NOTHING
    default = _git(repo, "symbolic-ref", "--short", "-q", "refs/remotes/origin/HEAD", may_fail=True)
    known = {"default_branch": default.removeprefix("origin/") or None, **more}
    return Facts(commit=whole, before=before, branch=here, message=title, author=author, **known)


def _git(repo: Path, *arguments: str, may_fail: bool = False) -> str:
    try:
        done = subprocess.run(["git", "-C", str(repo), *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise Invalid("git is not installed, or not on PATH. `hooks send` asks it about the repository.") from None
    if done.returncode and not may_fail:
        said = done.stderr.strip().splitlines()
        raise Invalid(
            f"{repo}: git says: {said[-1] if said else 'nothing'}. Is it a repository with commits? Name one with --repo."
        )
    return done.stdout.strip()


def send(forge: str, project: str, event: str, about: Facts, key: str, to: str, identity: str | None) -> Answer:
    """Send it; `Unavailable` if nobody answers."""
    headers, body = delivery(forge, event, about, key, identity or str(uuid.uuid4()), Clock().now())
    if not to.startswith(("http://", "https://")):
        raise Invalid(f"--to {to}: give the address of a server, as in http://127.0.0.1:8765.")
    url = f"{to.rstrip('/')}/hooks/{forge}/{project}"
    try:
        request = urllib.request.Request(url, data=body, headers=headers, method="POST")
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return Answer(answer.status, _json(answer.read()))
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, _json(error.read()))
    except (OSError, ValueError) as error:
        raise Unavailable(
            f"No server answers at {url}: {error}. Start `holdfast dev` or `holdfast serve`, or correct --to."
        ) from error


def _json(body: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.DecodeError:
        return {"detail": body.decode("utf-8", "replace")[:500]}


def told(answer: Answer) -> str:
    """The answer as a sentence."""
    body = answer.body
    if answer.status >= 300:
        return f"Refused with {answer.status}: {body.get('detail') or body.get('title') or 'no reason given'}"
    if "build_state" in body:
        return f"Build {body['id']} of {body['project']} ({body['how']}): {body['build_state']}, job {body['job_id']}."
    said = next((f"{name}: {body[name]}" for name in ("ignored", "ended", "pong") if name in body), "nothing to do")
    return f"Taken, {said}."
