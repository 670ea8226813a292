"""The condition of a step: whether it runs, from what is known of the build.

    branch == 'main' and event != 'pull_request'
    tag like 'v*' or not (env.MODE == 'quick')

- A name alone holds when it is known and not empty. `like` compares with a pattern, in which `*` stands for anything and
  `?` for one character. `not` binds before `and`, and `and` before `or`.
- Nothing is ever run to find out: there are no calls, no arithmetic, and no other names than these.
"""

import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase

from msgspec import Struct

NAMES: Mapping[str, str] = {
    "project": "The project's name.",
    "branch": "The branch that was pushed, or that a pull request comes from; empty for a tag.",
    "tag": "The tag that was pushed; else empty.",
    "event": "`push`, `pull_request`, `tag` or `manual`.",
    "commit": "The commit's full name.",
    "trusted": "`true` if the build may see the project's secrets; else empty.",
}
TOKEN = re.compile(r"\s*(?:('[^']*'|\"[^\"]*\")|(==|!=|\(|\))|(env\.[A-Za-z_]\w*|[A-Za-z_]\w*)|(\S))")
LONGEST = 1_000
DEEPEST = 50


class Text(Struct, frozen=True, tag=True):
    value: str


class Name(Struct, frozen=True, tag=True):
    name: str


Operand = Text | Name


class Holds(Struct, frozen=True, tag=True):
    """It is known, and not empty."""

    operand: Operand


class Compares(Struct, frozen=True, tag=True):
    left: Operand
    operator: str
    right: Operand


class Not(Struct, frozen=True, tag=True):
    inner: "Condition"


class And(Struct, frozen=True, tag=True):
    left: "Condition"
    right: "Condition"


class Or(Struct, frozen=True, tag=True):
    left: "Condition"
    right: "Condition"


Condition = Holds | Compares | Not | And | Or
COMPARISONS: Mapping[str, Callable[[str, str], bool]] = {
    "==": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    "like": fnmatchcase,
}


class Unreadable(Exception):
    """What stands there is no condition; its text says why."""


def holds(condition: Condition, facts: Mapping[str, str]) -> bool:
    """Whether it is met. What is not among the facts is empty."""
    match condition:
        case Holds(operand):
            return bool(_value(operand, facts))
        case Compares(left, operator, right):
            return COMPARISONS[operator](_value(left, facts), _value(right, facts))
        case Not(inner):
            return not holds(inner, facts)
        case And(left, right):
            return holds(left, facts) and holds(right, facts)
        case Or(left, right):
            return holds(left, facts) or holds(right, facts)


def names(condition: Condition) -> frozenset[str]:
    """The names that it reads."""
    match condition:
        case Holds(operand):
            return _name_of(operand)
        case Compares(left, _, right):
            return _name_of(left) | _name_of(right)
        case Not(inner):
            return names(inner)
        case And(left, right) | Or(left, right):
            return names(left) | names(right)


def _name_of(operand: Operand) -> frozenset[str]:
    return frozenset((operand.name,)) if isinstance(operand, Name) else frozenset()


def _value(operand: Operand, facts: Mapping[str, str]) -> str:
    return operand.value if isinstance(operand, Text) else facts.get(operand.name, "")


def read(text: str) -> Condition:
    """The condition that is written there; `Unreadable` if it is none."""
    if len(text) > LONGEST:
        raise Unreadable(f"is longer than {LONGEST} characters")
    return _Reader(text).whole()


class _Reader:
    """Reads a condition from left to right, a method for each level of binding."""

    def __init__(self, text: str) -> None:
        self._tokens = [match for match in TOKEN.finditer(text) if match.lastindex]
        self._at = 0
        self._depth = 0

    def whole(self) -> Condition:
        found = self._or()
        if self._peek() is not None:
            raise Unreadable(f"has {self._told()} where `and`, `or` or the end is expected")
        return found

    def _or(self) -> Condition:
        found = self._and()
        while self._take("or"):
            found = Or(found, self._and())
        return found

    def _and(self) -> Condition:
        found = self._not()
        while self._take("and"):
            found = And(found, self._not())
        return found

    def _not(self) -> Condition:
        self._depth += 1
        if self._depth > DEEPEST:
            raise Unreadable("is nested too deeply")
        try:
            if self._take("not"):
                return Not(self._not())
            if self._take("("):
                found = self._or()
                if not self._take(")"):
                    raise Unreadable(f"has {self._told()} where `)` is expected")
                return found
            return self._comparison()
        finally:
            self._depth -= 1

    def _comparison(self) -> Condition:
        left = self._operand()
        for operator in COMPARISONS:
            if self._take(operator):
                return Compares(left, operator, self._operand())
        return Holds(left)

    def _operand(self) -> Operand:
        token = self._peek()
        if token is None or token[0].strip() in ("and", "or", "not", "like") or not (token[1] or token[3]):
            raise Unreadable(f"has {self._told()} where a name or a text in quotes is expected")
        self._at += 1
        if token[1]:
            return Text(token[1][1:-1])
        if token[3] not in NAMES and not token[3].startswith("env."):
            known = ", ".join((*NAMES, "env.NAME"))
            raise Unreadable(f"asks for `{token[3]}`; known are {known}, and texts stand in quotes")
        return Name(token[3])

    def _peek(self) -> re.Match[str] | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _take(self, word: str) -> bool:
        token = self._peek()
        found = token is not None and not token[1] and token[0].strip() == word
        self._at += found
        return found

    def _told(self) -> str:
        token = self._peek()
        return "nothing" if token is None else f"`{token[0].strip()}`"
