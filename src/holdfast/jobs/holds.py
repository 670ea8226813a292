"""Holds: what people keep tasks, or whole workflows, from (F17).

A hold has a level and a scope: everything, one workflow, or one of its runs, named by its trigger. What runs goes on.
"""

import shlex
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType

from msgspec import Struct

from holdfast.errors import Invalid, backticked, quoted


class Level(StrEnum):
    """What is held."""

    PICK = "pick"  # tasks that exist do not start
    CREATE = "create"  # no new tasks are made
    SUBMIT = "submit"  # no new runs are submitted


WORDS: Mapping[Level, str] = MappingProxyType(
    {Level.PICK: "starting tasks", Level.CREATE: "making tasks", Level.SUBMIT: "submitting"}
)


class Hold(Struct, frozen=True):
    """Something that is held, by whom and since when."""

    level: Level
    workflow: str | None  # None: every one
    trigger: str | None  # None: every run
    actor: str
    hold_time: datetime

    @property
    def scope(self) -> str:
        return scope_words(self.workflow, self.trigger)

    @property
    def release(self) -> str:
        """The command that lets it go on."""
        words = ("holdfast", "workflows", "release", self.level.value, self.workflow, self.trigger)
        return shlex.join(word for word in words if word)

    def covers(self, workflow: str, trigger: str) -> bool:
        """Whether it is about this run."""
        return self.workflow in (None, workflow) and self.trigger in (None, trigger)


def scope_words(workflow: str | None, trigger: str | None) -> str:
    """`run `t` of workflow `report``, `workflow `report``, or `every workflow`."""
    if workflow is None:
        return "every workflow"
    scope = f"workflow {backticked(workflow)}"
    return scope if trigger is None else f"run {backticked(trigger)} of {scope}"


def check(level: str, workflow: str | None, trigger: str | None) -> Level:
    """The level, if there may be a hold with this level and scope; else `Invalid`."""
    if level not in list(Level):
        raise Invalid(f"level={quoted(level)}; what can be held is {', '.join(f'`{each}`' for each in Level)}.")
    for name, value in (("workflow", workflow), ("trigger", trigger)):
        if value is not None and "\0" in value:
            raise Invalid(f"{name}={quoted(value)} has a NUL character in it, which no name has.")
    if trigger is not None and workflow is None:
        raise Invalid(f"trigger={quoted(trigger)} names a run of a workflow: say which one, workflow=….")
    if trigger is not None and level == Level.SUBMIT:
        raise Invalid(
            f"Run `{trigger}` of workflow `{workflow}` is submitted already: `submit` is held for a workflow or for all of them."
        )
    return Level(level)
