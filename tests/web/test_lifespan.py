"""Several apps are served by one process: each begins and ends by itself."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import App
from holdfast.web.app import create

Make = Callable[..., App]


class Life:
    """What a server does with an application."""

    def __init__(self, asgi: Any) -> None:
        self.asgi, self.told, self.said = asgi, asyncio.Queue[Any](), asyncio.Queue[Any]()

    async def start(self) -> str:
        self.task = asyncio.ensure_future(self.asgi({"type": "lifespan"}, self.told.get, self.said.put))
        return await self._tell("startup")

    async def stop(self) -> str:
        said = await self._tell("shutdown")
        await asyncio.wait([self.task], timeout=60)
        return said

    async def _tell(self, what: str) -> str:
        await self.told.put({"type": f"lifespan.{what}"})
        found: str = (await asyncio.wait_for(self.said.get(), 60))["type"]
        return found


def test_one_ends_while_another_goes_on(app: Make) -> None:
    first, second = create(app()), create(app())

    async def live() -> list[str]:
        one, other = Life(first), Life(second)
        return [await one.start(), await other.start(), await one.stop(), await other.stop()]

    assert asyncio.run(live()) == ["lifespan.startup.complete"] * 2 + ["lifespan.shutdown.complete"] * 2


def test_a_site_that_cannot_begin_or_end_says_so(app: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    served: Any = create(app())

    def fail() -> None:
        raise RuntimeError("not now")

    async def live(what: str) -> list[str]:
        monkeypatch.setattr(served.site, what, fail)
        life = Life(served)
        said = [await life.start()]
        if what == "close":
            said.append(await life.stop())
        with pytest.raises(RuntimeError, match="not now"):
            await life.task
        return said

    assert asyncio.run(live("close")) == ["lifespan.startup.complete", "lifespan.shutdown.failed"]
    assert asyncio.run(live("start")) == ["lifespan.startup.failed"]
