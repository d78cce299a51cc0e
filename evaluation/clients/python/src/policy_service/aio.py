"""The client for asyncio. It needs httpx."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, AsyncIterator, Awaitable, Callable, Coroutine, Generic, Mapping
from typing import NoReturn, ParamSpec, Sequence, TypeVar, overload

from ._core import Breaker
from .answer import Answer, Permit
from .approvals import Wait
from .errors import AuthorizationError
from .types import Action, ActionQuery, Entity, Obligation, Question, ResourceQuery, Semantic, SubjectQuery

if TYPE_CHECKING:
    from .capability import Capability, CapabilityAsk, Holder

T = TypeVar("T")
P = ParamSpec("P")


class AsyncHeldPermit(Permit):
    """A permit around an act. Its release gives the act's result out, changed as handlers promised."""

    async def release(self, result: T) -> T:
        """The result, changed as handlers promised."""
        raise NotImplementedError

    async def __aenter__(self) -> AsyncHeldPermit:
        raise NotImplementedError

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        raise NotImplementedError


class Pending(Coroutine[Any, Any, T], Generic[T]):
    """A call that is not awaited yet. It is no bool: a forgotten await reads as no yes."""

    def __bool__(self) -> NoReturn:
        raise TypeError("the call was not awaited, and says nothing yet; await it")


class AsyncClient:
    """A client of one PDP and one tenant. A program makes one and keeps it."""

    # the methods of Client: def evaluate(…) -> Coroutine[Any, Any, Answer] and so on; searches are AsyncIterator;
    # enforce without an act returns what can be awaited, and entered by async with.
