"""What names may look like (Q1)."""

import re

from holdfast.errors import Invalid, quoted
from holdfast.jobs.payload import storable

INSTANCE_OR_QUEUE = re.compile(r"[a-z]+(_[a-z]+)*")
JOB_TYPE = re.compile(r"[A-Za-z0-9_.-]+")
TOKEN = re.compile(r"[A-Za-z0-9_.@-]{1,100}")
LONGEST_NAME = 40
LONGEST_TYPE = 200
LONGEST_KEY = 500
LONGEST_TABLE = 63


def check_name(name: object, what: str) -> str:
    """An instance or queue name."""
    if not isinstance(name, str) or not INSTANCE_OR_QUEUE.fullmatch(name) or len(name) > LONGEST_NAME:
        raise Invalid(
            f"{what} name {quoted(name)}: use lower-case letters, words joined by single underscores, at most {LONGEST_NAME} characters; "
            "for example `mail` or `daily_reports`."
        )
    return name


def check_job_type(name: object) -> str:
    if not isinstance(name, str) or not JOB_TYPE.fullmatch(name) or len(name) > LONGEST_TYPE:
        raise Invalid(
            f"Job type {quoted(name)}: use letters, digits, `_`, `-` and `.`, at most {LONGEST_TYPE} characters."
        )
    return name


def check_job_key(key: object) -> str | None:
    if key is None:
        return None
    if not isinstance(key, str) or not 0 < len(key) <= LONGEST_KEY or "\0" in key:
        raise Invalid(
            f"job_key {quoted(key)}: use a text of 1 to {LONGEST_KEY} characters without NUL, or None for no key."
        )
    try:
        key.encode("utf-8")
    except UnicodeEncodeError:
        raise Invalid(
            "job_key holds half of a surrogate pair, which cannot be stored. Give it as proper text."
        ) from None
    return key


def check_actor(actor: object) -> str:
    return check_text(actor, "actor")


def check_text(text: object, what: str) -> str:
    """What is stored as it is given: every database must take it, also the one that the instance moves to."""
    if not isinstance(text, str) or storable(text) != text:
        raise Invalid(f"{what}={quoted(text)}: give a text without NUL and without half of a surrogate pair.")
    return text


def check_token_name(name: str) -> str:
    if not TOKEN.fullmatch(name):
        raise Invalid(f"Token name {quoted(name)}: use letters, digits, `_`, `-`, `.` and `@`, at most 100 characters.")
    if name.isdigit():
        raise Invalid(f"Token name {quoted(name)}: a number would be taken for an id. Put a letter into it.")
    return name


def check_table(name: object, instance: str, queue: str) -> str:
    """What a table_naming_strategy answered."""
    if not isinstance(name, str) or not name or len(name.encode("utf-8", "replace")) > LONGEST_TABLE or "\0" in name:
        raise Invalid(
            f"The table_naming_strategy gave {quoted(name)} for queue `{queue}` of instance `{instance}`: a table name is a text of 1 to "
            f"{LONGEST_TABLE} bytes."
        )
    if name.startswith(("sqlite_", "__holdfast_", f"{instance}__")):
        raise Invalid(
            f"The table_naming_strategy gave `{name}` for queue `{queue}`: names like that are reserved. Choose another."
        )
    return name
