"""The effects of flows. A flow is a generator that yields them; the two clients differ in how they carry them out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Generator, TypeVar, Union

from .errors import AuthorizationError

T = TypeVar("T")

# The size of an answer's body, in bytes.
MAX_BODY = 1 << 20


@dataclass(frozen=True, repr=False)
class Send:
    """The effect of a request. It returns a Raw, or raises an AuthorizationError."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes | None
    deadline: float  # of time.monotonic
    fresh: bool  # on a connection of its own


@dataclass
class Raw:
    """An answer of HTTP. flaw says why its body is not whole; one byte more than MAX_BODY says that it is too large.
    reused: it came by a connection that had other questions before, and could be the answer to one of those."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes = b""
    flaw: AuthorizationError | None = None
    reused: bool = False

    def header(self, name: str) -> list[str]:
        """The values of a header."""
        return [value for key, value in self.headers if key.lower() == name]


@dataclass(frozen=True)
class Sleep:
    """The effect of a pause, in seconds."""

    seconds: float


@dataclass(frozen=True)
class Call:
    """The effect of a call of the program's own function, which may be async in an AsyncClient."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Apart:
    """The effect of a flow that goes on to its end also where the caller gives up."""

    flow: Generator[Any, Any, Any]


@dataclass(frozen=True)
class Together:
    """The effect of several flows, some of them at once."""

    flows: tuple[Generator[Any, Any, Any], ...]


Effect = Union[Send, Sleep, Call, Apart, Together]
Flow = Generator[Effect, Any, T]
