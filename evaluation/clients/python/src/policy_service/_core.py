"""The rules, as generators that yield effects: the two clients differ in how they carry these out, and in nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Generator, Mapping, Protocol, Sequence, TypeVar, Union

T = TypeVar("T")


@dataclass(frozen=True)
class Send:
    """The effect of a request. It returns a Reply, or raises an AuthorizationError."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes | None
    deadline: float  # of time.monotonic
    fresh: bool = False  # on a connection of its own
    secrets: tuple[str, ...] = ()


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


Effect = Union[Send, Sleep, Call, Apart]
Flow = Generator[Effect, Any, T]


@dataclass(frozen=True)
class Breaker:
    """A client asks a PDP no more for cool_down seconds after so many failures in a row. 0 failures: never."""

    failures: int = 5
    cool_down: float = 10.0


class Shown(Protocol):
    """A capability as a question shows it. prove makes the proof for a question; nonce is set to the last one that the
    PDP gave. A ValueError of prove refuses the question."""

    nonce: str | None

    @property
    def token(self) -> str: ...

    def prove(self, question: Mapping[str, Any]) -> str: ...


@dataclass(frozen=True)
class LinkAnswer:
    """The answer to a request of a Link."""

    status: int
    json: Any
    retry_after: float


class Link(Protocol):
    """A client as capability.py sees it."""

    base: str  # begins the URLs of the service's own API; no slash at its end
    pdp: str  # the PDP and the tenant: base, or base/tenants/NAME

    def send(
        self, op: str, url: str, body: Mapping[str, Any] | None = None, *, method: str = "POST",
        headers: Sequence[tuple[str, str]] = (), secrets: Sequence[str] = (), statuses: Sequence[int] = (200,),
        once: bool = False, hold: float = 0.0,
    ) -> Flow[LinkAnswer]:
        """Sends JSON at the PDP's own origin: answer = yield from link.send(…). Errors repeat none of the secrets. once:
        it is sent again only where no connection was made. hold: seconds the PDP is asked to hold its answer back."""
        ...

    def decided(self, approval: str, timeout: float) -> Flow[str]:
        """Waits until people have decided about the approval request of that id, and returns its status."""
        ...


# capability.py has, for the clients:
#   def request_flow(link: Link, holder: Holder, ask: CapabilityAsk, wait: Wait | float | None) -> Flow[Capability]
#   def renew_flow(link: Link, capability: Capability) -> Flow[Capability]
# and its Capability is a Shown.
