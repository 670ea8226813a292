"""The bodies of hooks while they are read, before it is known who sends them.

Everybody may send one, so all of them together have limited room. If there is no more, the oldest is refused: what a forge
sends is complete at once, what an attacker sends stays.
"""

from collections.abc import AsyncIterator

import anyio

from holdfast.builds.webhooks import LONGEST_BODY, Check

MOST_BODIES = 256
MOST_BYTES = 32 * 1024 * 1024  # of all bodies: one of the greatest length and many usual ones of 10 kB


class TooLong(Exception):
    """The body is longer than any forge sends."""


class Crowded(Exception):
    """There was no room for the rest of the body."""


class HookBody:
    """What has come of one body."""

    def __init__(self) -> None:
        self.parts = list[bytes]()
        self.size = 0
        self.reading = anyio.CancelScope()

    def add(self, part: bytes) -> None:
        self.parts.append(part)
        self.size += len(part)


class HookBodies:
    """All bodies that are being read."""

    def __init__(self) -> None:
        self._bodies = dict[HookBody, None]()  # the oldest first

    async def read(self, parts: AsyncIterator[bytes], check: Check) -> bytes | None:
        """The whole body; None if its sender does not know the secret. Raises `TooLong` and `Crowded`."""
        body = HookBody()
        self._bodies[body] = None
        try:
            with body.reading:
                async for part in parts:
                    body.add(part)
                    check.add(part)
                    if body.size > LONGEST_BODY:
                        raise TooLong
                    self._make_room(body)
                return b"".join(body.parts) if check.passes() else None
            raise Crowded
        finally:
            self._bodies.pop(body, None)

    def _make_room(self, newest: HookBody) -> None:
        """Refuse the oldest of the others until the rest has room."""
        while len(self._bodies) > MOST_BODIES or sum(each.size for each in self._bodies) > MOST_BYTES:
            oldest = next(each for each in self._bodies if each is not newest)
            del self._bodies[oldest]
            oldest.reading.cancel()
