"""A server obeys its duty `serve` without a restart."""

import time
from collections.abc import Callable

import anyio
import httpx
import pytest

from holdfast import App
from holdfast.web.app import create

pytestmark = pytest.mark.claim("F20")


def test_a_server_whose_duty_is_switched_off_answers_503_until_it_is_on_again(app: Callable[..., App]) -> None:
    holdfast = app(heartbeat=0.05, lost_after=30.0)
    asgi = create(holdfast)

    async def ask(path: str) -> int:
        transport = httpx.ASGITransport(app=asgi)  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return (await client.get(path)).status_code

    def until_it_answers(path: str, code: int) -> None:
        ends = time.monotonic() + 60
        while anyio.run(ask, path) != code:
            assert time.monotonic() < ends, f"{path} never answered {code}"

    until_it_answers("/readyz", 200)
    rule = holdfast.switch_duty("serve", False)
    until_it_answers("/readyz", 503)
    until_it_answers("/api/v1/openapi.json", 503)
    assert anyio.run(ask, "/healthz") == 200
    holdfast.drop_duty_rule(rule.id)
    until_it_answers("/readyz", 200)
