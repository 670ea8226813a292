"""What the connections of this process to one file have in common: who of them writes, and who hears of it.

While one of us writes, our watches on the file are deaf: nobody else can write then, and to be woken for what we do ourselves costs
more than what we do. What others have to know of it is told to them after the commit. Before a watch listens again somebody else
may have begun to write; so whoever wrote then looks whether that is so.
"""

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from holdfast.stores.contract import News


class Watcher(NamedTuple):
    """Somebody who is told what was written here."""

    wake: Callable[[News | str], None]
    family: Any  # of a store whose listeners are told of new jobs anyway


class Ear(Protocol):
    """A watch on the file."""

    def hush(self) -> None: ...

    def listen(self) -> None: ...


class Shared:
    """Of one file."""

    def __init__(self) -> None:
        # Had by whoever of this process writes; only to queue, the file has a lock of its own.
        self.writing = threading.Lock()
        self.writer: Any = None  # the connection that had it last
        self.watchers: list[Watcher] = []
        self.ears: list[Ear] = []
        self.loops: set[Any] = set()  # event loops of which a task is inside a transaction of its own

    def tell(self, news: list[News], family: Any) -> None:
        """What was just committed; without news, that there are jobs."""
        for watcher in tuple(self.watchers):
            for each in news or ([News.JOBS] if watcher.family is not family else []):
                watcher.wake(each)

    def heard(self) -> None:
        """Somebody else wrote while nobody listened."""
        for watcher in tuple(self.watchers):
            watcher.wake(News.ANYTHING)


def shared_by(path: str) -> Shared:
    """By all connections to this file."""
    return known.setdefault(os.path.realpath(path), Shared())


known: "weakref.WeakValueDictionary[str, Shared]" = weakref.WeakValueDictionary()
os.register_at_fork(after_in_child=known.clear)  # in the copy there are neither those who write nor those who watch
