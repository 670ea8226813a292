"""Which version an instance has, which migrations stand between it and this code, and whether it is on the move."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from holdfast.errors import Unavailable
from holdfast.stores import queryfile

SEALED = "holdfast moved: "  # how a database begins to refuse a write when the instance has left it


class Migrations:
    """The numbered, forward-only migrations of one dialect."""

    def __init__(self, package: str, instance: str) -> None:
        self.instance = instance
        self._all = queryfile.numbered(package)

    @property
    def last(self) -> int:
        return self._all[-1][0]

    def after(self, version: int) -> Sequence[tuple[int, str, str]]:
        return [entry for entry in self._all if entry[0] > version]

    def refuse_unless_new(self, version: int) -> None:
        """Only an instance that is not there yet is set up on the way; others are for `holdfast migrate`."""
        self.refuse_newer(version)
        if version:
            raise Unavailable(
                f"Instance `{self.instance}` has schema version {version}, this Holdfast needs {self.last}. "
                "Run `holdfast migrate` once; old workers may go on running meanwhile."
            )

    def refuse_newer(self, version: int) -> None:
        if version > self.last:
            raise Unavailable(
                f"Instance `{self.instance}` has schema version {version}, newer than this Holdfast knows ({self.last}). "
                "Upgrade the holdfast package on this machine."
            )


def refuse_arriving(instance: str, moves: Iterable[Mapping[str, Any]]) -> None:
    """An instance that is being moved here is nobody's yet."""
    for row in moves:
        if row["stage"] == "arriving":
            raise Unavailable(
                f"Instance `{instance}` is being moved here from {row['other']} and is not open yet. Try again when `holdfast move` "
                "has ended; if it was interrupted, call it again, or with --abandon."
            )


def is_leaving(moves: Iterable[Mapping[str, Any]]) -> bool:
    """Nothing may be started in it any more."""
    return any(row["side"] == "source" and row["stage"] != "copying" for row in moves)


def check_moves(moves: Iterable[Mapping[str, Any]]) -> list[tuple[str, bool, str]]:
    """What `holdfast doctor` says of an instance on the move; nothing of one that stays, or has come for good."""
    cure = "If `holdfast move` was interrupted, call it again, or with --abandon"
    said = {
        ("target", "arriving"): (False, "it is being moved here from {} and is not open yet. " + cure),
        ("source", "copying"): (True, "it is being copied to {}, and works as ever. " + cure),
        ("source", "draining"): (False, "it is being moved to {}, and nothing is started here. " + cure),
        ("source", "sealed"): (False, "it is being moved to {}, and nothing can be written here. " + cure),
        ("source", "moved"): (False, "it was moved to {}. Point the URL there"),
    }
    found = [(said[row["side"], row["stage"]], row["other"]) for row in moves if (row["side"], row["stage"]) in said]
    return [("move", fine, text.format(other)) for (fine, text), other in found]


def moved(text: str) -> Unavailable | None:
    """What to say if this is how a database refuses to write to an instance that has left it."""
    _, found, message = text.partition(SEALED)
    return Unavailable(message) if found else None
