"""The names in what a forge sends: commits, branches, tags, projects, titles. They come from strangers."""

import re

from holdfast.builds.order import COMMIT, LONGEST_REF, PROJECT, is_ref
from holdfast.errors import Invalid, quoted

NO_COMMIT = re.compile(r"0{40}(0{24})?")  # how a forge writes that a branch did not exist, or does no more
LONGEST_TITLE = 200


def check_project(name: object) -> str:
    if not isinstance(name, str) or not PROJECT.fullmatch(name):
        raise Invalid(f"Project name {quoted(name)}: use letters, digits, `_` and `-`, at most 200.")
    return name


def check_commit(name: object) -> str:
    if not isinstance(name, str) or not COMMIT.fullmatch(name) or NO_COMMIT.fullmatch(name):
        raise Invalid(f"Commit {quoted(name)}: give its whole name, 40 or 64 hexadecimal digits.")
    return name


def check_ref(name: object, what: str = "Branch") -> str:
    """A branch or tag, as git allows it and nothing takes for an option."""
    if not isinstance(name, str) or not is_ref(name):
        raise Invalid(f"{what} {quoted(name)} is no name of 1 to {LONGEST_REF} bytes that git allows.")
    return name


def title_of(message: object) -> str:
    """The first line of a commit's message, fit to be shown."""
    lines = message.strip().splitlines() if isinstance(message, str) else []
    return "".join(letter if letter.isprintable() else " " for letter in lines[0])[:LONGEST_TITLE] if lines else ""
