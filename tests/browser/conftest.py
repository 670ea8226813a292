"""A real Chromium on a real server: `make browser`. Not part of `make test`.

- `shop` is an app on SQLite whose handlers wait for the test, so that every page has something of everything and stands
  still while it is looked at.
- A page that says anything on the console, or raises, fails its test.
"""

import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from holdfast import App
from holdfast.projects import Projects
from holdfast.web import auth
from holdfast.web.app import create
from tests.browser.shop import Shop

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
NAMES = ("chromium", "chromium-browser", "google-chrome")
SIZES = {"wide": {"width": 1280, "height": 860}, "phone": {"width": 390, "height": 844}}
PATIENCE = 30_000  # milliseconds
expect.set_options(timeout=PATIENCE)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--pictures", action="store_true", help="keep the pictures of the pages under docs/pictures")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(f"there is no Chromium on this machine: install one that the PATH has as {' or '.join(NAMES)}")
    arguments = ["--no-sandbox"] if os.getuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        yield browser
        browser.close()


class Served:
    """An app at an address."""

    def __init__(self, app: App, projects: Projects) -> None:
        self.app = app
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.bind(("127.0.0.1", 0))
        listener.listen(100)
        self.address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        config = uvicorn.Config(
            create(app, projects=projects), log_level="warning", access_log=False, timeout_graceful_shutdown=1
        )
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [listener]}, daemon=True)
        self.thread.start()

    def login(self) -> str:
        return f"{self.address}/login?token={auth.make_login(self.app)}"

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(20)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    yield made
    made.close()


@pytest.fixture
def served(shop: Shop) -> Iterator[Served]:
    made = Served(shop.app, shop.yard.projects)
    yield made
    made.stop()


Opens = Callable[..., Page]


@pytest.fixture
def opens(chromium: Browser, served: Served) -> Iterator[Opens]:
    """Opens a page, logged in: `opens("/jobs", size="phone", scheme="dark")`."""
    contexts: list[BrowserContext] = []
    said: list[str] = []
    kept: list[Any] = []

    def open_(path: str, size: str = "wide", scheme: str = "light", script: bool = True, quiet: bool = True) -> Page:
        settings: dict[str, Any] = {"viewport": SIZES[size], "color_scheme": scheme, "java_script_enabled": script}
        context = chromium.new_context(**settings, storage_state=kept[0] if kept else None, reduced_motion="reduce")
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        page = context.new_page()
        if quiet:
            page.on("console", lambda message: said.append(f"{path}: {message.type}: {message.text}"))
        page.on("pageerror", lambda error: said.append(f"{path}: {error}"))
        page.on("dialog", lambda dialog: said.append(f"{path}: a dialog: {dialog.message}"))
        if not kept:
            page.goto(served.login())
            kept.append(context.storage_state())
        page.goto(served.address + path)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert said == []
