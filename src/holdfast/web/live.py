"""What changes, as it changes: one reader for each server process, however many watch.

- A `Topic` is one thing that is watched: the whole instance, a job, a run, a build. It is read as long as somebody watches
  it, and knows what it has told: whoever comes later is told what has happened, then the same in the same order.
- The reader makes a round at most ten times a second, and on SQLite only after somebody wrote to the file.
- Reading is done in a thread; telling is done on the event loop.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

import anyio.to_thread
import msgspec
from msgspec import Struct

from holdfast.app import App
from holdfast.errors import HoldfastError, NotFound
from holdfast.stores.contract import Store

logger = logging.getLogger("holdfast.web")

ROUND = 0.1  # seconds between two looks, at least
BEAT = 15.0  # seconds after which a silent stream says that it is still there
MOST_BEHIND = 10_000  # events that wait for a slow watcher before it is told to begin again


class Event(Struct, frozen=True):
    """Something to be told."""

    name: str
    content: Any
    id: str | None = None

    def encode(self) -> bytes:
        """As server-sent events are written."""
        head = "" if self.id is None else f"id: {self.id}\n"
        return f"{head}event: {self.name}\ndata: {msgspec.json.encode(self.content).decode()}\n\n".encode()


class Topic(Protocol):
    """Something that can be watched."""

    over: bool  # nothing more will come

    def look(self, store: Store) -> list[Event]:
        """What is new since the last look. Called in a thread, one look at a time."""
        ...

    def since(self, last: str | None, store: Store) -> list[Event]:
        """What a watcher is told first, who knows everything up to the event `last`. Called in a thread, between looks."""
        ...


class Watcher:
    """One stream to one client."""

    def __init__(self) -> None:
        self.waiting: deque[Event] = deque()
        self.told = asyncio.Event()
        self.cut = False
        self.most = 0

    def begin(self, events: list[Event]) -> None:
        """What has happened before is told however much it is."""
        self.waiting.extend(events)
        self.most = len(events) + MOST_BEHIND

    def tell(self, events: list[Event]) -> None:
        if len(self.waiting) + len(events) > self.most:
            self.cut = True
        else:
            self.waiting.extend(events)
        self.told.set()


class Watched:
    """A topic, and who watches it."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.watchers: set[Watcher] = set()
        self.over = False  # the topic is, and everybody was told its end


class Live:
    """The reader of a server process."""

    def __init__(self, app: App) -> None:
        self.app = app
        self._watched: dict[Any, Watched] = {}
        self._reader: asyncio.Task[None] | None = None
        self._store: Store | None = None
        self._lock = asyncio.Lock()
        self._stopping = False

    async def stream(self, key: Any, make: Callable[[], Topic], last: str | None) -> AsyncIterator[bytes]:
        """What has happened to a topic since the event `last`, then what happens, until it is over."""
        watcher = Watcher()
        watched = await self._join(key, make, watcher, last)
        try:
            yield b": here\n\n"  # who knows everything already is answered at once, too
            while not self._stopping:
                while watcher.waiting:
                    yield watcher.waiting.popleft().encode()
                if watcher.cut:
                    yield Event("reset", {"reason": "too slow"}).encode()
                    return
                if watched.over:
                    return
                watcher.told.clear()
                if not watcher.waiting and not watcher.cut:
                    try:
                        await asyncio.wait_for(watcher.told.wait(), BEAT)
                    except TimeoutError:
                        yield b": still here\n\n"
        finally:
            watched.watchers.discard(watcher)
            if not watched.watchers and self._watched.get(key) is watched:
                del self._watched[key]

    async def _join(self, key: Any, make: Callable[[], Topic], watcher: Watcher, last: str | None) -> Watched:
        async with self._lock:
            watched = self._watched.get(key)
            if watched is None:
                watched = Watched(make())
                await self._look(watched)  # `NotFound` comes from here, before the stream begins
                watched.over = watched.topic.over
            topic = watched.topic
            watcher.begin(await anyio.to_thread.run_sync(lambda: topic.since(last, self._reading())))
            watched.watchers.add(watcher)
            self._watched[key] = watched
            if self._reader is None or self._reader.done():
                self._reader = asyncio.create_task(self._read())
        return watched

    async def _read(self) -> None:
        while self._watched and not self._stopping:
            await asyncio.sleep(ROUND)
            try:
                if not await anyio.to_thread.run_sync(self._changed):
                    continue
            except HoldfastError as error:
                logger.warning("%s", error)
                continue
            async with self._lock:
                for watched in list(self._watched.values()):
                    await self._round(watched)

    async def _round(self, watched: Watched) -> None:
        try:
            found = await self._look(watched)
        except NotFound:  # it was deleted
            watched.topic.over = True
            found = [Event("gone", {})]
        except HoldfastError as error:
            logger.warning("%s", error)
            return
        if found or watched.topic.over:
            watched.over = watched.topic.over
            for watcher in tuple(watched.watchers):
                watcher.tell(found)

    async def _look(self, watched: Watched) -> list[Event]:
        return await anyio.to_thread.run_sync(lambda: watched.topic.look(self._reading()))

    def _changed(self) -> bool:
        return self._reading().changed()

    def _reading(self) -> Store:
        if self._store is None:
            self._store = self.app.store.another(self.app.patience)
        return self._store

    async def close(self) -> None:
        """End every stream."""
        self._stopping = True
        for watched in self._watched.values():
            for watcher in watched.watchers:
                watcher.told.set()
        if self._reader is not None:
            self._reader.cancel()
        if self._store is not None:
            self._store.close()
