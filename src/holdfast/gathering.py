"""Tasks of an event loop that ask the database at the same time: a thread asks for all of them in one go.

A thread for each would be slower, and they would be few: whoever waits for long in the loop's own threads keeps everybody
else from them.

While the database is away one waits for it after the other. So that nobody waits much longer than its own patience lasts,
only those ask together who came at about the same time, and what they have waited already counts.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Generic, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from holdfast.clock import monotonic

Question = TypeVar("Question")
Answer = TypeVar("Answer")
TOGETHER = 0.25  # seconds between the first and the last of those who ask in one go


class Gathering(Generic[Question, Answer]):
    """One kind of question. `ask_all` blocks, if need be until the moment that it is told, and gives each its answer or its own error."""

    def __init__(
        self, ask_all: Callable[[Sequence[Question], float], Sequence[Answer | Exception]], patience: float
    ) -> None:
        self._ask_all = ask_all
        self._patience = patience
        self._asked: WeakKeyDictionary[asyncio.AbstractEventLoop, _Asked[Question, Answer]] = WeakKeyDictionary()

    async def ask(self, question: Question) -> Answer:
        """Whoever is cancelled before its turn has asked nothing."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()
        asked = self._asked.get(loop)
        if asked is None:
            asked = self._asked[loop] = _Asked()
        asked.entries.append(Entry(question, answer, monotonic()))
        if not asked.busy:
            asked.busy = True
            loop.call_soon(self._begin, loop, asked)  # after everybody else whose turn it is
        return await answer

    def _begin(self, loop: asyncio.AbstractEventLoop, asked: "_Asked[Question, Answer]") -> None:
        waiting = [entry for entry in asked.entries if not entry.answer.done()]
        entries = [entry for entry in waiting if entry.asked_at <= waiting[0].asked_at + TOGETHER]
        asked.entries = waiting[len(entries) :]
        if not entries:
            asked.busy = False
            return
        questions, answers = [entry.question for entry in entries], [entry.answer for entry in entries]
        try:
            ends = entries[-1].asked_at + self._patience
            found = loop.run_in_executor(asked.thread, self._ask_all, questions, ends)
        except RuntimeError as error:  # the interpreter is ending
            asked.busy = False
            tell(answers, [error] * len(answers))
        else:
            found.add_done_callback(partial(self._end, loop, asked, answers))

    def _end(
        self,
        loop: asyncio.AbstractEventLoop,
        asked: "_Asked[Question, Answer]",
        answers: Sequence["asyncio.Future[Answer]"],
        found: "asyncio.Future[Sequence[Answer | Exception]]",
    ) -> None:
        loop.call_soon(self._begin, loop, asked)
        error = asyncio.CancelledError() if found.cancelled() else found.exception()
        tell(answers, found.result() if error is None else [error] * len(answers))


class Entry(NamedTuple, Generic[Question, Answer]):
    """What one task asks, and since when."""

    question: Question
    answer: "asyncio.Future[Answer]"
    asked_at: float


class _Asked(Generic[Question, Answer]):
    """What the tasks of one loop ask. A child that was forked has another loop, and so a thread of its own."""

    def __init__(self) -> None:
        self.entries: list[Entry[Question, Answer]] = []
        self.busy = False
        self.thread = ThreadPoolExecutor(1, "holdfast-gathering")


def tell(answers: Sequence["asyncio.Future[Answer]"], found: Sequence[Answer | BaseException]) -> None:
    for answer, each in zip(answers, found, strict=True):
        if answer.done():
            continue  # its task was cancelled
        if isinstance(each, BaseException):
            answer.set_exception(each)
        else:
            answer.set_result(each)
