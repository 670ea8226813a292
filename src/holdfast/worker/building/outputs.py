"""Outputs: copies of files that steps have made, under names and limits of their own (B7)."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from holdfast.builds.buildfile import is_output_name
from holdfast.builds.order import Limits
from holdfast.builds.result import Output
from holdfast.worker.building import files
from holdfast.worker.building.files import Refused
from holdfast.worker.building.folder import BuildFolder

PIECE = 1 << 20


class Outputs:
    """What a build has kept so far."""

    def __init__(self, folder: BuildFolder, source: Path, limits: Limits, go_on: Callable[[], None]) -> None:
        self.kept: list[Output] = []
        self._folder, self._source, self._limits = folder, source, limits
        self._go_on = go_on  # raises when the build has to end

    def collect(self, step: str, wanted: Mapping[str, str], all_of_them: bool) -> str | None:
        """Keep a step's outputs; why one of them cannot be kept, or None. Those of a failed step need not be there."""
        for name, path in wanted.items():
            try:
                self._keep(step, name, path)
            except FileNotFoundError:
                if all_of_them:
                    return f"output {name}: there is no file {path}"
            except Refused as refused:
                return f"output {name}: {refused}"
        return None

    def _keep(self, step: str, name: str, path: str) -> None:
        if not is_output_name(name):
            raise Refused("this is no name for an output")
        if len(self.kept) >= self._limits.outputs:
            raise Refused(f"a build may keep {self._limits.outputs} and no more")
        with files.opened(self._source, path) as origin:
            target = self._folder.new_output(name)
            try:
                size = self._copy(origin, target)
                os.fsync(target)
            except BaseException:
                self._folder.drop_output(name)
                raise
            finally:
                os.close(target)
        self.kept.append(Output(name=name, size=size, step=step))

    def _copy(self, origin: int, target: int) -> int:
        room = self._limits.output_size - sum(output.size for output in self.kept)
        size = 0
        while piece := os.read(origin, PIECE):
            self._go_on()
            size += len(piece)
            if size > room:
                raise Refused(f"with it the outputs are larger than {self._limits.output_size:,} bytes")
            while piece:
                piece = piece[os.write(target, piece) :]
        return size
