"""Logs of builds as streams: what is there, and then every byte as it comes, to any number of watchers.

- One look at the file serves all watchers of a build; each of them reads for itself where it is.
- A new attempt of the build has a new log: watchers are told so and go on with that.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio.to_thread

from holdfast.builds.build import COMPLETED, Build
from holdfast.errors import HoldfastError

LOOK_EVERY = 0.05  # seconds between looks at the file
ASK_EVERY = 0.5  # and between questions whether the build is over
CHUNK = 1 << 16
PathOf = Callable[[Build], Path | None]  # of a build's log; None while it has none
AGAIN = b"\n--- the build begins again ---\n"


class Tail:
    """One build that is watched."""

    def __init__(self, build: Build, look: Callable[[], Build], path_of: PathOf) -> None:
        self.path, self.over, self.watchers = path_of(build), not build.active, 0
        self._look, self._path_of = look, path_of
        self._seen: tuple[int, int] | None = None
        self._changed = asyncio.Event()
        self._asked = 0.0

    async def follow(self) -> None:
        """Look until nobody watches any more, or the build is over."""
        loop = asyncio.get_running_loop()
        while self.watchers and not self.over:
            seen = _size_of(self.path)
            if seen != self._seen:
                self._seen = seen
                self._tell()
            if loop.time() >= self._asked + (LOOK_EVERY if self._is_completed() else ASK_EVERY):
                self._asked = loop.time()
                await self._ask()
            await asyncio.sleep(LOOK_EVERY)

    async def _ask(self) -> None:
        try:
            self.path, self.over = await anyio.to_thread.run_sync(self._stands)
        except HoldfastError:
            return  # the log goes on; the database will too
        if self.over:
            self._tell()

    def _stands(self) -> tuple[Path | None, bool]:
        build = self._look()
        return self._path_of(build), not build.active

    def _is_completed(self) -> bool:
        return self.path is not None and (self.path.parent / COMPLETED).exists()

    def _tell(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def read(self) -> AsyncIterator[bytes]:
        """The log from its beginning, until the build is over and everything was read."""
        file, begun = None, False
        try:
            while True:
                over, changed = self.over, self._changed
                if file is None or _other(file, self.path):
                    fresh = _opened(self.path)
                    if fresh is not None:
                        if file is not None:
                            os.close(file)
                        file = fresh
                        if begun:
                            yield AGAIN
                chunk = b"" if file is None else os.read(file, CHUNK)
                if chunk:
                    begun = True
                    yield chunk
                elif over:
                    return
                else:
                    await changed.wait()
        finally:
            if file is not None:
                os.close(file)


class Tails:
    """The builds that are watched in this process."""

    def __init__(self) -> None:
        self._tails: dict[int, tuple[Tail, asyncio.Task[None]]] = {}

    async def watch(self, build: Build, look: Callable[[], Build], path_of: PathOf) -> AsyncIterator[bytes]:
        """The log of a build for one more watcher."""
        known = self._tails.get(build.id)
        if known is None or known[1].done():
            tail = Tail(build, look, path_of)
            tail.watchers = 1
            self._tails[build.id] = tail, asyncio.create_task(tail.follow())
        else:
            tail = known[0]
            tail.watchers += 1
        try:
            async for chunk in tail.read():
                yield chunk
        finally:
            tail.watchers -= 1
            if not tail.watchers and self._tails.get(build.id, (None,))[0] is tail:
                self._tails.pop(build.id)[1].cancel()

    @property
    def count(self) -> int:
        """How many builds are looked at."""
        return len(self._tails)


def _opened(path: Path | None) -> int | None:
    try:
        return None if path is None else os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None


def _other(file: int, path: Path | None) -> bool:
    """Whether another file is there now; the old one is kept while there is none."""
    try:
        return path is not None and os.stat(path).st_ino != os.fstat(file).st_ino
    except OSError:
        return False


def _size_of(path: Path | None) -> tuple[int, int] | None:
    try:
        found = None if path is None else os.stat(path)
    except OSError:
        return None
    return None if found is None else (found.st_ino, found.st_size)
