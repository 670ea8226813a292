"""What each forge's events ask for, read from as little of their bodies as that takes.

- GitHub, Gitea and Forgejo write the same things under the same names, but for some words. A label event of GitHub names
  the label; one of Gitea and Forgejo lists all labels, and `holdfast.builds.labels` finds the new one.
- A pull request whose commits are not in the repository itself is a stranger's.
- A commit is the commit also where a forge names the object of a tag.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from holdfast import strict_json
from holdfast.builds.context import event_of
from holdfast.builds.labels import PullRequestLabels
from holdfast.builds.names import NO_COMMIT, check_commit, check_ref, title_of
from holdfast.errors import Invalid

Body = TypeVar("Body", bound=Struct)
LONGEST_NAME = 100


class Wanted(Struct, frozen=True, kw_only=True):
    """A build of a commit."""

    commit: str
    ref: str  # what to fetch it by
    branch: str | None = None
    tag: str | None = None
    pull_request: int | None = None
    stranger: bool = False  # the commit is not in the repository itself
    labels: tuple[str, ...] | None = None  # of the pull request, if they are what changed: one may ask for a rebuild
    title: str = ""
    author: str = ""

    @property
    def event(self) -> str:
        """As a project names what it wants to be built for."""
        return event_of(self.pull_request, self.tag)


class Ended(Struct, frozen=True, kw_only=True):
    """A branch, a tag or a pull request is deleted or closed: its builds have no use."""

    branch: str | None = None
    tag: str | None = None
    pull_request: int | None = None
    merged: bool = False


class Ping(Struct, frozen=True):
    """The forge asks whether somebody is there."""


class Ignored(Struct, frozen=True):
    """Nothing to do; why."""

    why: str


Asks = Wanted | Ended | Ping | Ignored


class Commit(Struct, frozen=True):
    id: str | None = None
    message: str | None = None


class Person(Struct, frozen=True):
    login: str | None = None
    name: str | None = None
    username: str | None = None


class Repository(Struct, frozen=True):
    full_name: str | None = None


class Tip(Struct, frozen=True):
    ref: str = ""
    sha: str = ""
    repo: Repository | None = None


class Label(Struct, frozen=True):
    name: str | None = None
    title: str | None = None


class PullRequest(Struct, frozen=True):
    head: Tip
    base: Tip
    title: str | None = None
    merged: bool | None = False
    flow: int | None = 0  # of Gitea: 1 if it was pushed to `refs/for`, which everybody may
    labels: tuple[Label, ...] | None = None
    user: Person | None = None
    updated_at: Annotated[datetime, Meta(tz=True)] | None = None


class Push(Struct, frozen=True):
    ref: str
    after: str = ""
    deleted: bool | None = False
    head_commit: Commit | None = None
    pusher: Person | None = None


class PullRequestEvent(Struct, frozen=True):
    action: str
    number: int
    pull_request: PullRequest
    label: Label | None = None


BUILT = ("opened", "reopened", "synchronize", "synchronized")


class Deletion(Struct, frozen=True):
    """Of Gitea and Forgejo: the only event for a branch that is deleted."""

    ref: str
    ref_type: str
    sha: str | None = (
        None  # only the event for a new branch has one. The signature does not cover the name of the event
    )


def read_github(event: str, body: bytes) -> Asks:
    if event == "ping":
        return Ping()
    if event == "push":
        return _pushed(_decoded(body, Push))
    if event == "pull_request":
        said = _decoded(body, PullRequestEvent)
        return _pull_request(said, (said.label,) if said.action == "labeled" and said.label else None)
    return ignored(event)  # also `delete`: GitHub sends a push for that too


def read_gitea(event: str, body: bytes) -> Asks:
    if event == "ping":
        return Ping()
    if event == "push":
        return _pushed(_decoded(body, Push))
    if event == "delete":
        return _deletion(_decoded(body, Deletion))
    if event.startswith("pull_request"):
        said = _decoded(body, PullRequestEvent)
        return _pull_request(said, (said.pull_request.labels or ()) if said.action == "label_updated" else None)
    return ignored(event)


def labels_of_gitea(event: str, body: bytes) -> PullRequestLabels | None:
    """Return the labels that a pull request has; None if the event does not say them."""
    if not event.startswith("pull_request"):
        return None
    said = _decoded(body, PullRequestEvent)
    if said.pull_request.labels is None:
        return None
    return PullRequestLabels(_number(said.number), _names(said.pull_request.labels), said.pull_request.updated_at)


def _pushed(push: Push) -> Asks:
    if push.deleted or NO_COMMIT.fullmatch(push.after):
        return _deleted(push.ref)
    tip = push.head_commit or Commit()
    return _of_ref(push.ref, tip.id or push.after, tip.message, _who(push.pusher))


def _pull_request(event: PullRequestEvent, labels: Sequence[Label] | None) -> Asks:
    """`labels` are those that the event is about; None if it is about something else."""
    pull = event.pull_request
    if event.action == "closed":
        return Ended(pull_request=_number(event.number), merged=bool(pull.merged))
    if event.action not in BUILT and labels is None:
        return ignored(f"pull_request {event.action}")
    return Wanted(
        commit=check_commit(pull.head.sha),
        ref=f"refs/pull/{_number(event.number)}/head",
        branch=_branch_of(pull.head.ref),
        pull_request=event.number,
        stranger=_is_strange(pull),
        labels=None if labels is None else _names(labels),
        title=title_of(pull.title),
        author=_who(pull.user),
    )


def _deletion(said: Deletion) -> Asks:
    if said.sha is None and said.ref_type == "branch":
        return Ended(branch=check_ref(said.ref.removeprefix("refs/heads/")))
    if said.sha is None and said.ref_type == "tag":
        return Ended(tag=check_ref(said.ref.removeprefix("refs/tags/"), "Tag"))
    return Ignored("neither a branch nor a tag was deleted")


def _is_strange(pull: PullRequest) -> bool:
    """Whether somebody else's repository holds the commit, or anybody could have pushed it."""
    head, base = pull.head.repo or Repository(), pull.base.repo or Repository()
    inside = head.full_name is not None and head.full_name == base.full_name
    return not inside or bool(pull.flow) or pull.head.ref.startswith("refs/")


class GitLabPush(Struct, frozen=True):
    ref: str
    after: str = ""
    checkout_sha: str | None = None
    commits: tuple[Commit, ...] | None = ()
    user_username: str | None = None


class MergeRequest(Struct, frozen=True):
    iid: int
    source_branch: str = ""
    source_project_id: int | None = None
    target_project_id: int | None = None
    action: str | None = None
    oldrev: str | None = None
    last_commit: Commit | None = None
    title: str | None = None


class LabelChange(Struct, frozen=True):
    previous: tuple[Label, ...] | None = ()
    current: tuple[Label, ...] | None = ()


class Changes(Struct, frozen=True):
    labels: LabelChange | None = None


class MergeRequestEvent(Struct, frozen=True):
    object_attributes: MergeRequest
    changes: Changes | None = None
    user: Person | None = None


def read_gitlab(event: str, body: bytes) -> Asks:
    if event in ("Push Hook", "Tag Push Hook"):
        push = _decoded(body, GitLabPush)
        if NO_COMMIT.fullmatch(push.after):
            return _deleted(push.ref)
        commit = push.checkout_sha or push.after
        message = next((each.message for each in push.commits or () if each.id == commit), None)
        return _of_ref(push.ref, commit, message, _name(push.user_username))
    if event == "Merge Request Hook":
        return _merge_request(_decoded(body, MergeRequestEvent))
    return ignored(event)


def _merge_request(event: MergeRequestEvent) -> Asks:
    merge = event.object_attributes
    if merge.action in ("close", "merge"):
        return Ended(pull_request=_number(merge.iid), merged=merge.action == "merge")
    change = (event.changes or Changes()).labels or LabelChange()
    given = set(_names(change.current or ())) - set(_names(change.previous or ()))
    if not (merge.action in ("open", "reopen") or (merge.action == "update" and (merge.oldrev or given))):
        return ignored(f"merge_request {merge.action}")
    return Wanted(
        commit=check_commit((merge.last_commit or Commit()).id),
        ref=f"refs/merge-requests/{_number(merge.iid)}/head",
        branch=_branch_of(merge.source_branch),
        pull_request=merge.iid,
        stranger=merge.source_project_id is None or merge.source_project_id != merge.target_project_id,
        labels=None if merge.oldrev or merge.action != "update" else tuple(sorted(given)),
        title=title_of(merge.title),
        author=_who(event.user),
    )


class Plain(Struct, frozen=True):
    """What a generic hook may say; `ref` and `after` are git's own words for the same."""

    event: str = ""
    commit: str | None = None
    branch: str | None = None
    tag: str | None = None
    pull_request: int | None = None
    ref: str | None = None
    after: str | None = None
    closed: bool = False
    title: str | None = None
    author: str | None = None


def read_generic(event: str, body: bytes) -> Asks:
    said = _decoded(body, Plain)
    event = event or said.event or "push"
    if event == "ping":
        return Ping()
    if event not in ("push", "tag", "pull_request"):
        return ignored(event)
    if said.closed:
        number = None if said.pull_request is None else _number(said.pull_request)
        branch, tag = said.branch and check_ref(said.branch), said.tag and check_ref(said.tag, "Tag")
        return Ended(branch=branch or None, tag=tag or None, pull_request=number)
    commit = said.commit or said.after or ""
    if said.ref is not None and NO_COMMIT.fullmatch(commit):
        return _deleted(said.ref)
    if said.ref is not None and said.branch is None and said.tag is None and said.pull_request is None:
        return _of_ref(said.ref, commit, said.title, _name(said.author))
    branch, tag = said.branch and check_ref(said.branch), said.tag and check_ref(said.tag, "Tag")
    return Wanted(
        commit=check_commit(commit),
        ref=f"refs/heads/{branch}" if branch else f"refs/tags/{tag}" if tag else "HEAD",
        branch=branch or None,
        tag=tag or None,
        pull_request=None if said.pull_request is None else _number(said.pull_request),
        title=title_of(said.title),
        author=_name(said.author),
    )


class Home(Struct, frozen=True):
    default_branch: str | None = None


class Homed(Struct, frozen=True):
    """Where a body says what it is about: GitLab calls it the project."""

    repository: Home | None = None
    project: Home | None = None


def default_branch(body: bytes) -> str | None:
    """Return the default branch of the repository that an event is about, if the body says it."""
    try:
        said = msgspec.json.decode(body, type=Homed)
        homes = [home.default_branch for home in (said.repository, said.project) if home is not None]
        return next((check_ref(branch) for branch in homes if branch), None)
    except (msgspec.DecodeError, Invalid):
        return None


def ignored(event: str) -> Ignored:
    return Ignored(f"`{plain_name(event)}` is not acted on" if event else "the delivery names no event")


def plain_name(event: str) -> str:
    """The name of an event, fit to be shown."""
    return "".join(letter for letter in event if letter.isprintable())[:LONGEST_NAME]


def _of_ref(ref: str, commit: str, message: str | None, author: str) -> Asks:
    for before, name in (("refs/heads/", "branch"), ("refs/tags/", "tag")):
        if ref.startswith(before):
            short = check_ref(ref.removeprefix(before), name.capitalize())
            more: dict[str, Any] = {name: short}
            return Wanted(commit=check_commit(commit), ref=ref, title=title_of(message), author=author, **more)
    return Ignored(f"`{plain_name(ref)}` is neither a branch nor a tag")


def _deleted(ref: str) -> Asks:
    if ref.startswith("refs/heads/"):
        return Ended(branch=check_ref(ref.removeprefix("refs/heads/")))
    return Ignored("a tag was deleted")


def _branch_of(ref: str) -> str | None:
    return None if ref.startswith("refs/") else check_ref(ref)


def _number(value: int) -> int:
    if not 0 < value < 2**31:
        raise Invalid(f"Pull request {value}: its number is not one.")
    return value


def _names(labels: Sequence[Label]) -> tuple[str, ...]:
    return tuple(label.name or label.title or "" for label in labels)


def _who(person: Person | None) -> str:
    return "" if person is None else _name(person.login or person.username or person.name)


def _name(given: str | None) -> str:
    """Of a person, fit to be shown."""
    return title_of(given)[:LONGEST_NAME]


def _decoded(body: bytes, shape: type[Body]) -> Body:
    """A name twice in an object is refused: the forge and we might go by different ones."""
    try:
        strict_json.parse(body.decode())
        return msgspec.json.decode(body, type=shape)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise Invalid(f"The body cannot be read: {error}.") from None
