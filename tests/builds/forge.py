"""A forge that sends signed webhooks to a server in this process, and reads its builds over HTTP."""

from typing import Any
from uuid import uuid4

from holdfast.stores.contract import NewToken
from holdfast.web import secret
from tests.builds.test_hooks import send
from tests.builds.yard import Yard


class Forge:
    """Sends signed deliveries to a project, and reads its builds with a token of its own."""

    def __init__(self, here: Yard, client: Any) -> None:
        self.here, self.client = here, client
        token = secret.new()
        name, hashed = f"tests {secret.new()}", secret.hashed(token)
        here.app.store.add_token(NewToken(name=name, hash=hashed, scope="admin"), "tests")
        self.headers = {"Authorization": f"Bearer {token}"}

    def send(self, event: str, commit: str, **facts: Any) -> dict[str, Any]:
        """What the server answers, with the status as `code`."""
        answer = send(self.client, event, commit=commit, identity=uuid4().hex, **facts)
        found: dict[str, Any] = answer.json()
        return {**found, "code": answer.status_code}

    def built(self, event: str, commit: str, **facts: Any) -> dict[str, Any]:
        """The answer to a delivery, after everything that waits was built."""
        answer = self.send(event, commit, **facts)
        self.here.app.run_until_idle()
        return answer

    def get(self, path: str) -> Any:
        """What the server answers to a reader."""
        return self.client.get(path, headers=self.headers, follow_redirects=False)

    def log(self, build: int) -> str:
        text: str = self.get(f"/api/v1/builds/{build}/log?follow=false").text
        return text

    def output(self, build: int, name: str = "art") -> str:
        text: str = self.get(f"/api/v1/builds/{build}/outputs/{name}").text
        return text.strip()

    def badge(self, branch: str) -> str:
        """The word on the badge of a branch."""
        text: str = self.get(f"/badges/demo.svg?branch={branch}").text
        return text.partition(f'aria-label="{branch}: ')[2].partition('"')[0]

    def link(self, branch: str) -> int:
        """The build that the link of a branch leads to."""
        answer = self.get(f"/links/demo?branch={branch}")
        return int(answer.headers["location"].rsplit("/", 1)[1])
