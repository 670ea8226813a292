"""Which version an instance has and which migrations stand between it and this code."""

from collections.abc import Sequence

from holdfast.errors import Unavailable
from holdfast.stores import queryfile


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
