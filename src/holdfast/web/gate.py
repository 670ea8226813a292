"""What stands around the application: who asks is found out, foreign host names are refused, every answer is shielded.

- It stands outside the routes, so an address that does not exist passes it like any other.
- A body has to come in time.
- An answer that goes on and on, as streams do, ends when what its caller has shown is worth nothing any more.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
import msgspec
from litestar.exceptions import HTTPException
from litestar.types import ASGIApp, Message, Receive, Send
from litestar.types.asgi_types import HTTPReceiveMessage, WebSocketReceiveMessage

from holdfast.errors import HoldfastError
from holdfast.web import auth, problems
from holdfast.web.callers import KEY, SITE, TROUBLE
from holdfast.web.cookies import cookie
from holdfast.web.hosts import LOOPBACK, is_own, name_of
from holdfast.web.site import Site

BODY_WITHIN = 15.0  # seconds for a whole body
ASK_AGAIN = 5.0  # seconds after which a caller is looked up again, for as long as the answer lasts
ALWAYS = "/healthz"  # the process answers, whatever its duties are
SHIELD = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not no-referrer: with it a browser hides the origin of our own forms.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
Shown = tuple[list[str], str | None]
SHIELD_HEADERS = [(name.encode(), value.encode()) for name, value in SHIELD.items()]


class Gate:
    """An ASGI application around another."""

    def __init__(self, inner: ASGIApp, site: Site, hosts: Sequence[str]) -> None:
        self.inner = inner
        self.site = site
        public = () if site.public_url is None else (name_of(site.public_url.partition("://")[2]),)
        self.hosts = {host.lower() for host in (LOOPBACK, *hosts, *public)}

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": None})
        else:
            await self._pass(scope, receive, _shielded(send))

    async def _live(self, receive: Receive, send: Any) -> None:
        """The site begins and ends with what it is served by. What it answers with is others' as well, and has nothing to begin."""
        for event, act in (("startup", self._begin), ("shutdown", self._end)):
            await receive()
            try:
                await act()
            except BaseException as error:
                await send({"type": f"lifespan.{event}.failed", "message": str(error)})
                raise
            await send({"type": f"lifespan.{event}.complete"})

    async def _begin(self) -> None:
        self.site.start()

    async def _end(self) -> None:
        try:
            await self.site.live.close()
        finally:
            self.site.close()

    async def _pass(self, scope: Any, receive: Receive, send: Send) -> None:
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1 or not is_own(hosts[0], self.hosts):
            detail = "The Host header names no host that this server knows. Give it with `--allow-host`."
            await _refuse(send, problems.of_status(421, detail))
            return
        if scope["path"] != ALWAYS and not await self._on_duty():
            detail = "An operator has switched this server's duty `serve` off: `holdfast workers duty list`."
            await _refuse(send, problems.of_status(503, detail))
            return
        scope[SITE] = self.site
        shown = _shown(scope, self.site.public_url)
        try:
            scope[KEY] = await anyio.to_thread.run_sync(auth.identify, self.site, *shown)
        except HoldfastError as error:
            scope[TROUBLE] = error  # nobody can be known; routes that need nobody still answer
        answering = Answering(send)
        body = TimedBody(receive, answering)
        if scope.get(KEY) is None:
            await self.inner(scope, body.receive, answering.send)
        else:
            await self._answer(scope, body.receive, answering, shown)

    async def _answer(self, scope: Any, receive: Receive, answering: "Answering", shown: Shown) -> None:
        """The answer, cut off when its caller is known no more."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._cut_off, tasks.cancel_scope, answering, shown)
            await self.inner(scope, receive, answering.send)
            tasks.cancel_scope.cancel()
        if answering.begun and not answering.ended:
            await answering.send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _cut_off(self, answer: anyio.CancelScope, answering: "Answering", shown: Shown) -> None:
        while True:
            await anyio.sleep(ASK_AGAIN)
            try:
                known = await anyio.to_thread.run_sync(partial(auth.identify, self.site, *shown, is_use=False))
            except HoldfastError:
                continue  # nobody can say that the caller is not known
            if known is None and answering.begun:
                answer.cancel()
                return

    async def _on_duty(self) -> bool:
        known = self.site.duty.known
        return await anyio.to_thread.run_sync(self.site.duty.look) if known is None else known


class Answering:
    """How far an answer is."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.begun = self.ended = False

    async def send(self, message: Message) -> None:
        self.begun = True
        self.ended = message["type"] == "http.response.body" and not message.get("more_body", False)
        await self._send(message)


class TimedBody:
    """The body of a request, which has to be complete in time; else its reader gets the error 408."""

    def __init__(self, receive: Receive, answering: Answering) -> None:
        self._receive = receive
        self._answering = answering
        self._complete = False
        self._deadline: float | None = None

    async def receive(self) -> HTTPReceiveMessage | WebSocketReceiveMessage:
        """The next part, or what the client says after its body, which has no limit."""
        if self._complete:
            return await self._receive()
        if self._deadline is None:
            self._deadline = anyio.current_time() + BODY_WITHIN
        with anyio.CancelScope(deadline=self._deadline):
            message = await self._receive()
            self._complete = not message.get("more_body", False)
            return message
        if self._answering.begun:
            return {"type": "http.disconnect"}
        raise HTTPException(status_code=408, detail=f"The body did not come within {BODY_WITHIN:g} seconds.")


def _shown(scope: Any, public_url: str | None) -> Shown:
    """The Authorization headers and the session cookie of a request.

    Every port of a host gets the cookies of all others: what those look like is no matter.
    """
    headers = [(name, value.decode("latin-1")) for name, value in scope["headers"]]
    pairs = [pair.partition("=") for name, value in headers if name == b"cookie" for pair in value.split(";")]
    cookies = {name.strip(): value.strip().strip('"') for name, _, value in pairs}
    return [value for name, value in headers if name == b"authorization"], cookies.get(cookie(scope, public_url).name)


def _shielded(send: Send) -> Send:
    """Headers on every answer; a route may set its own instead."""

    async def sends(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = list(message["headers"])
            there = {name.lower() for name, _ in headers}
            message["headers"] = headers + [pair for pair in SHIELD_HEADERS if pair[0] not in there]
        await send(message)

    return sends


async def _refuse(send: Send, problem: problems.Problem) -> None:
    body = msgspec.json.encode(problem)
    headers = [(b"content-type", problems.MEDIA_TYPE.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
