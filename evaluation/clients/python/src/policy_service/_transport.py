"""Carrying out the effects of flows with threads: requests by http.client, within a deadline."""

from __future__ import annotations

import http.client
import inspect
import io
import os
import re
import socket
import ssl
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generator, Sequence, TypeVar, cast
from urllib.parse import urlsplit

from ._effects import MAX_BODY, Apart, Effect, Raw, Send, Sleep, Together
from .errors import AuthorizationError, failure

T = TypeVar("T")

_MOST_IDLE = 32
_IDLE_TIME = 60.0
_MOST_HEADERS = 99  # http.client takes no more lines
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def left(deadline: float) -> float:
    """The seconds until a deadline. A TimeoutError says that there are none."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("the deadline has passed")
    return seconds


class _Paced(io.RawIOBase):
    """Reads of a socket, each within the deadline: a server that sends byte by byte gets no more time than another."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._raw = sock.makefile("rb", buffering=0)
        self._deadline = deadline
        self.came = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(left(self._deadline))
        count: int | None = self._raw.readinto(buffer)
        self.came += count or 0
        if self.came > 4 * MAX_BODY:  # http.client reads a chunk of a negative size to the end
            raise http.client.HTTPException("too many bytes")
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()

    def makefile(self, mode: str) -> io.BufferedReader:
        """The one method of a socket that HTTPResponse calls."""
        return io.BufferedReader(self)


class _Connection:
    """A connection to the PDP. Only the process that made it uses it."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.process = os.getpid()
        self.since = time.monotonic()
        self.reused = False

    def usable(self) -> bool:
        """Whether nothing came since the last answer: that would be the end, or the answer to no question."""
        if self.process != os.getpid() or time.monotonic() - self.since > _IDLE_TIME:
            return False
        try:
            self.sock.settimeout(0)
            socket.socket.recv(self.sock, 1, socket.MSG_PEEK)  # also of TLS: below it
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False


class Transport:
    """The connections to one origin. It is safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a permit that is dropped may send in the midst of this
        self._idle: list[_Connection] = []
        self._tls: ssl.SSLContext | None = None

    def close(self) -> None:
        """Closes the idle connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.sock.close()

    __del__ = close

    def send(self, request: Send) -> Raw:
        """Sends a request, and reads the answer."""
        keep = False
        try:
            connection = self._connection(request)
        except ConnectionRefusedError:
            raise failure("unreachable", "the connection was refused", again="unsent") from None
        except TimeoutError:
            raise failure("timed_out", "no connection was made in time") from None
        except (OSError, UnicodeError) as error:
            raise failure("unreachable", f"no connection was made: {error}") from None
        paced = _Paced(connection.sock, request.deadline)
        response = _Response(cast(socket.socket, paced), method=request.method)
        try:
            whole = self._write(connection.sock, request)
            response.begin()
            raw = _receive(response)
            if not whole and raw.status < 400:
                raise http.client.HTTPException("an answer to a part of the request")
            keep = (
                whole and raw.flaw is None and response.isclosed() and not response.will_close and echoed(request, raw)
            )
            raw.reused = connection.reused
            return raw
        except AuthorizationError as error:
            error._sent = True
            raise
        except TimeoutError:
            raise late() from None
        except ConnectionError as error:
            raise broken(error, nothing=paced.came == 0) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise broken(error, nothing=False) from None
        finally:
            response.close()
            if keep:
                self._keep(connection)
            else:
                connection.sock.close()

    def _connection(self, request: Send) -> _Connection:
        while not request.fresh:
            with self._lock:
                if not self._idle:
                    break
                connection = self._idle.pop()
            if connection.usable():
                return connection
            connection.sock.close()
        parts = urlsplit(request.url)
        host = cast(str, parts.hostname)
        sock = _dial(host, parts.port or (443 if parts.scheme == "https" else 80), request.deadline)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if parts.scheme == "https":
                self._tls = self._tls or ssl.create_default_context()
                sock.settimeout(left(request.deadline))
                sock = self._tls.wrap_socket(sock, server_hostname=host)
        except BaseException:
            sock.close()
            raise
        return _Connection(sock)

    def _keep(self, connection: _Connection) -> None:
        connection.since, connection.reused = time.monotonic(), True
        with self._lock:
            if len(self._idle) < _MOST_IDLE:
                self._idle.append(connection)
                return
        connection.sock.close()

    @staticmethod
    def _write(sock: socket.socket, request: Send) -> bool:
        """Whether the server took all of it: it may refuse before."""
        parts = urlsplit(request.url)
        target = (parts.path or "/") + ("?" + parts.query if parts.query else "")
        lines = [f"{request.method} {target} HTTP/1.1", f"Host: {parts.netloc}"]
        lines += [f"{name}: {value}" for name, value in request.headers]
        if request.body is not None:
            lines.append(f"Content-Length: {len(request.body)}")
        data = "\r\n".join([*lines, "", ""]).encode("ascii") + (request.body or b"")
        for at in range(0, len(data), 16384):
            sock.settimeout(left(request.deadline))
            try:
                sock.sendall(data[at : at + 16384])
            except ConnectionError:
                return False
        return True


def echoed(request: Send, raw: Raw) -> bool:
    """Whether a connection may be used again: an answer says which question it is to, so that none is another's."""
    ours = dict(request.headers)["X-Request-ID"]
    return 200 <= raw.status < 300 and raw.header("x-request-id") == [ours]


def late() -> AuthorizationError:
    error = failure("timed_out", "no answer came in time")
    error._sent = True
    return error


def broken(cause: Exception, *, nothing: bool) -> AuthorizationError:
    detail = "the connection ended before an answer" if nothing else f"the answer broke off, or is no HTTP: {cause!r}"
    error = failure("unreachable", detail, again="unanswered" if nothing else "never")
    error._sent = True
    return error


def _addresses(host: str, port: int, deadline: float) -> list[Any]:
    """The addresses of a name. The look-up has no timeout: a thread does it, which is left to itself if late."""
    found: Future[list[Any]] = Future()

    def look() -> None:
        try:
            found.set_result(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except BaseException as error:
            found.set_exception(error)

    try:
        threading.Thread(target=look, daemon=True).start()
    except RuntimeError:  # as at the end of the program
        look()
    return found.result(left(deadline))


def _dial(host: str, port: int, deadline: float) -> socket.socket:
    addresses = _addresses(host, port, deadline)
    error: OSError = OSError("the name has no address")
    for n, (family, kind, protocol, _, address) in enumerate(addresses):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(left(deadline) / (len(addresses) - n))
            sock.connect(address)
            return sock
        except OSError as failed:
            sock.close()
            error = failed
        except BaseException:
            sock.close()
            raise
    raise error


def misframed(headers: Sequence[tuple[str, str]]) -> str | None:
    """Says why headers leave in doubt where an answer ends. Both clients ask it, so that they refuse the same."""
    named = [(name.lower(), value.strip(" \t\r\n")) for name, value in headers]
    lengths = {n.strip(" \t") for name, value in named if name == "content-length" for n in value.split(",")}
    codings = [value.lower() for name, value in named if name == "transfer-encoding"]
    if len(headers) > _MOST_HEADERS or any(_CONTROL.search(value) for _, value in named):
        return "malformed headers, or too many"
    if len(lengths) > 1 or not all(re.fullmatch("[0-9]{1,18}", n) for n in lengths):
        return "a Content-Length that is no number, or several"
    if codings and (codings != ["chunked"] or lengths):
        return "an unknown Transfer-Encoding, or one beside a Content-Length"
    return None


class _Response(http.client.HTTPResponse):
    """An answer of HTTP. Interim ones before it (1xx) say nothing, as to httpx."""

    def _read_status(self) -> tuple[str, int, str]:
        while True:
            version, status, reason = super()._read_status()  # type: ignore[misc]
            if not 101 < status < 200:
                return version, status, reason
            http.client.parse_headers(self.fp)


def _receive(response: http.client.HTTPResponse) -> Raw:
    headers = response.headers.items()
    why = "malformed headers" if response.headers.defects else misframed(headers)
    if why:
        raise http.client.HTTPException(why)
    length = response.headers.get("Content-Length", "").partition(",")[0].strip()
    if response.length is None and length:
        response.length = int(length)  # of a list, which http.client does not read
    raw = Raw(response.status, [(name, value.strip()) for name, value in headers])
    body = bytearray()
    try:
        while len(body) <= MAX_BODY:
            piece = response.read(min(65536, MAX_BODY + 1 - len(body)))
            if not piece:
                break
            body += piece
        if len(body) <= MAX_BODY and response.length:  # read does not tell of an early end
            raise http.client.IncompleteRead(b"", response.length)
    except TimeoutError:
        raw.flaw = late()
    except (OSError, http.client.HTTPException, ValueError) as error:
        raw.flaw = broken(error, nothing=False)
    raw.body = bytes(body)
    return raw


def run(flow: Generator[Effect, Any, T], transport: Transport) -> T:
    """Carries out a flow."""
    advance, value = cast(Any, flow.send), cast(Any, None)
    while True:
        try:
            effect = advance(value)
        except StopIteration as end:
            return cast(T, end.value)
        try:
            advance, value = flow.send, _carry_out(effect, transport)
        except BaseException as error:
            advance, value = flow.throw, error


def _carry_out(effect: Effect, transport: Transport) -> Any:
    if isinstance(effect, Send):
        return transport.send(effect)
    if isinstance(effect, Sleep):
        time.sleep(effect.seconds)
        return None
    if isinstance(effect, Apart):
        return run(effect.flow, transport)
    if isinstance(effect, Together):
        if len(effect.flows) == 1:
            return run(effect.flows[0], transport)
        with ThreadPoolExecutor(8) as pool:
            return [one.result() for one in [pool.submit(run, flow, transport) for flow in effect.flows]]
    result: Any = effect.function(*effect.arguments)
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise TypeError("an async function was given to a Client; use AsyncClient")
    return result
