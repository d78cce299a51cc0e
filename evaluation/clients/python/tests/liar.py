"""A server that answers as a test has it answer, byte by byte."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from types import TracebackType

# The answer of a connection to its n-th request, in pieces. None ends it.
Says = Callable[[int, bytes], Iterator[bytes | None]]


def answer(body: bytes = b'{"decision": true}', status: str = "200 OK", headers: str = "") -> bytes:
    """A whole answer of HTTP."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
    return head.encode() + body


def echo(request: bytes) -> str:
    """The header of an answer that says which question it is to."""
    name = b"X-Request-ID: "
    return (name + request.partition(name)[2].partition(b"\r\n")[0] + b"\r\n").decode()


class Liar:
    """Keeps the requests that came, and the number of connections."""

    def __init__(self, says: Says) -> None:
        self.requests: list[bytes] = []
        self.connections = 0
        self._says = says
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._threads: list[threading.Thread] = []

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                while request := _request(connection):
                    self.requests.append(request)
                    for piece in self._says(len(self.requests), request):
                        if piece is None:
                            return
                        connection.sendall(piece)
            except OSError:
                return

    def __enter__(self) -> Liar:
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


def _request(connection: socket.socket) -> bytes:
    text = b""
    while b"\r\n\r\n" not in text:
        piece = connection.recv(65536)
        if not piece:
            return b""
        text += piece
    head, _, body = text.partition(b"\r\n\r\n")
    lengths = [line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    while len(body) < int(lengths[0] if lengths else 0):
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body
