"""A proxy between Holdfast and PostgreSQL that can be pointed elsewhere, and that can swallow what it should pass on."""

import contextlib
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

HEAD = 5  # bytes: the kind of a message, and its length without the kind
NEWS = b"A"  # NotificationResponse


class Proxy:
    """Listens at a Unix socket of its own. `deaf`: what NOTIFY says is not passed on."""

    def __init__(self, folder: Path, server: Path, deaf: bool = False) -> None:
        self.folder, self.server, self.deaf = folder, server, deaf
        self.swallowed = 0
        folder.mkdir()
        self._sockets: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / ".s.PGSQL.5432"))
        self._listener.listen(50)
        self._run(self._accept)

    def url(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={self.folder}&sslmode=disable&gssencmode=disable"

    def point(self, server: Path) -> None:
        """New connections go there; those there are break."""
        self.server = server
        self.cut()

    def cut(self) -> None:
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._sockets.clear()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(str(self.server / ".s.PGSQL.5432"))
            except OSError:
                client.close()
                continue
            self._sockets += [client, server]
            self._run(self._pass_on, client, server, False)
            self._run(self._pass_on, server, client, True)

    def _pass_on(self, source: socket.socket, target: socket.socket, heard: bool) -> None:
        rest = b""
        with contextlib.suppress(OSError):
            while passed := source.recv(65536):
                if heard and self.deaf:
                    passed, rest = self._without_news(rest + passed)
                target.sendall(passed)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _without_news(self, stream: bytes) -> tuple[bytes, bytes]:
        """The whole messages of the server but for its notifications; and the beginning of the next one."""
        kept = b""
        while len(stream) >= HEAD and len(stream) > (length := int.from_bytes(stream[1:HEAD], "big")):
            message, stream = stream[: 1 + length], stream[1 + length :]
            if message[:1] == NEWS:
                self.swallowed += 1
            else:
                kept += message
        return kept, stream

    def _run(self, action: Callable[..., Any], *arguments: Any) -> None:
        threading.Thread(target=action, args=arguments, daemon=True).start()
