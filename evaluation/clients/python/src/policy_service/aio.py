"""The client for asyncio. It needs httpx."""

from __future__ import annotations

import asyncio
import copy
import functools
import importlib
import inspect
import ssl
import warnings
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, AsyncIterator, Awaitable, Callable, Generator, Generic, Mapping, NoReturn
from typing import ParamSpec, Sequence, TypeVar, cast, overload

from . import _core
from ._breaker import Breaker
from ._effects import MAX_BODY, Apart, Effect, Raw, Send, Sleep, Together
from ._october import Draft
from ._transport import broken, echoed, late, left, misframed
from .answer import OURS, Answer, Answers, Permit
from .approvals import Wait, permitted
from .batch import Semantic
from .errors import AuthorizationError, failure
from .obligations import UNRELEASED, Change, Enforcement, raise_unkept
from .search import AsyncResults, Search, Sought
from .types import Action, ActionQuery, CapabilityAsk, Entity, Obligation, Question, ResourceQuery, SubjectQuery

if TYPE_CHECKING:
    import httpx

    from .capability import Capability, Holder

T = TypeVar("T")
P = ParamSpec("P")
AsyncChange = Callable[[Any], Any]
AsyncHandler = Callable[[Obligation], "Change | None | Awaitable[AsyncChange | None]"]

_GRACE = 5.0  # seconds for obligations where the caller has given up


class _Transport:
    """The connections to one origin, by the transport of httpx: it knows no cookies, redirects, proxies or codings."""

    def __init__(self) -> None:
        try:
            importlib.import_module("httpx")
        except ImportError:
            raise ImportError("AsyncClient needs httpx; install policy-service-client[httpx]", name="httpx") from None
        self._tls: ssl.SSLContext | None = None
        self._kept: httpx.AsyncHTTPTransport | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._echoes = False  # the PDP does, as far as is known: only then a connection has more than one question
        self.apart: set[asyncio.Task[Any]] = set()

    def _make(self, fresh: bool, secure: bool) -> httpx.AsyncHTTPTransport:
        import httpx

        if self._tls is None:
            # For http none is trusted, which takes no time.
            self._tls = ssl.create_default_context() if secure else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0 if fresh else 32, keepalive_expiry=60)
        return httpx.AsyncHTTPTransport(verify=self._tls, trust_env=False, http2=False, retries=0, limits=limits)

    async def close(self) -> None:
        if self.apart:
            await asyncio.wait(set(self.apart), timeout=_GRACE)
        kept, self._kept = self._kept, None
        if kept is not None and self._loop is asyncio.get_running_loop():
            await kept.aclose()

    async def send(self, request: Send) -> Raw:
        """Sends a request, and reads the answer: in a task of its own, for the deadline must not end the caller's."""
        exchange = _Exchange(request)
        try:
            seconds = left(request.deadline)
        except TimeoutError:
            raise exchange.late() from None
        task = self._start(self._exchange(exchange))
        try:
            await asyncio.wait({task}, timeout=seconds)
        finally:
            in_time = task.done() or not task.cancel()
        if in_time:
            await task
        else:
            exchange.error = exchange.late()
        return exchange.end()

    async def _exchange(self, exchange: _Exchange) -> None:
        secure = exchange.request.url.lower().startswith("https:")
        if exchange.request.fresh or not self._echoes:
            async with self._make(fresh=True, secure=secure) as transport:
                await exchange.run(transport)
            self._echoes = self._echoes or exchange.raw is not None and echoed(exchange.request, exchange.raw)
            return
        if self._kept is None or self._loop is not asyncio.get_running_loop():
            self._kept, self._loop = self._make(fresh=False, secure=secure), asyncio.get_running_loop()
        await exchange.run(self._kept)
        if exchange.raw is not None:
            exchange.raw.reused = True

    def _start(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.ensure_future(coroutine)
        self.apart.add(task)  # the loop alone would let it go
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self.apart.discard(task)
        if not task.cancelled():
            task.exception()  # its caller has it, or has given up

    async def run(self, flow: Generator[Effect, Any, T]) -> T:
        """Carries out a flow."""
        advance, value = cast(Any, flow.send), cast(Any, None)
        while True:
            try:
                effect = advance(value)
            except StopIteration as end:
                return cast(T, end.value)
            try:
                advance, value = flow.send, await self._carry_out(effect)
            except GeneratorExit:
                raise
            except BaseException as error:
                advance, value = flow.throw, error

    async def _carry_out(self, effect: Effect) -> Any:
        if isinstance(effect, Send):
            return await self.send(effect)
        if isinstance(effect, Sleep):
            return await asyncio.sleep(effect.seconds)
        if isinstance(effect, Together):
            some = asyncio.Semaphore(8)

            async def one(flow: Generator[Effect, Any, Any]) -> Any:
                async with some:
                    return await self.run(flow)

            return await asyncio.gather(*(one(flow) for flow in effect.flows))
        if isinstance(effect, Apart):
            task = self._start(self.run(effect.flow))
            try:
                return await asyncio.shield(task)
            except asyncio.CancelledError:
                asyncio.get_running_loop().call_later(_GRACE, task.cancel)
                raise
        result = effect.function(*effect.arguments)
        return await result if inspect.isawaitable(result) else result


class _Exchange:
    """One request, and as much of its answer as came."""

    def __init__(self, request: Send) -> None:
        self.request = request
        self.sent = False
        self.raw: Raw | None = None
        self.body = bytearray()
        self.error: AuthorizationError | None = None

    async def _trace(self, event: str, info: Any) -> None:
        self.sent = self.sent or event.startswith(("http11.send", "http11.receive"))

    async def run(self, transport: httpx.AsyncHTTPTransport) -> None:
        import httpx

        request = self.request
        extensions = {"trace": self._trace, "timeout": dict.fromkeys(("connect", "read", "write", "pool"))}
        sent, body = list(request.headers), request.body
        try:
            asked = httpx.Request(request.method, request.url, headers=sent, content=body, extensions=extensions)
            response = await transport.handle_async_request(asked)
            try:
                headers = [(k.decode("latin-1"), v.decode("latin-1").strip()) for k, v in response.headers.raw]
                version = response.extensions.get("http_version", b"")
                why = misframed(headers) if version.startswith(b"HTTP/1.") else "another version of HTTP"
                if why:
                    raise ValueError(why)
                self.raw = Raw(response.status_code, headers)
                if response.status_code not in (204, 304):
                    async for piece in cast("httpx.AsyncByteStream", response.stream):
                        self.body += piece[: MAX_BODY + 1 - len(self.body)]
                        if len(self.body) > MAX_BODY:
                            break
            finally:
                await response.aclose()
        except httpx.ConnectError as cause:
            refused = any(isinstance(leaf, ConnectionRefusedError) for leaf in _leaves(cause))
            detail = "the connection was refused" if refused else f"no connection was made: {cause}"
            self.error = failure("unreachable", detail, again="unsent" if refused else "never")
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as cause:
            ended = isinstance(cause, (httpx.ReadError, httpx.WriteError)) or "without sending a response" in str(cause)
            if self.sent:
                self.error = broken(cause, nothing=self.raw is None and ended)
            else:
                self.error = failure("unreachable", f"no connection was made: {cause}")

    def late(self) -> AuthorizationError:
        return late() if self.sent else failure("timed_out", "no connection was made in time")

    def end(self) -> Raw:
        if self.raw is None:
            raise self.error or self.late()
        self.raw.flaw, self.raw.body = self.error, bytes(self.body)
        return self.raw


def _leaves(error: BaseException | None) -> list[BaseException]:
    """The first causes of an error."""
    if error is None:
        return []
    inner = list(getattr(error, "exceptions", ())) or [e for e in (error.__cause__ or error.__context__,) if e]
    return [leaf for e in inner for leaf in _leaves(e)] or [error]


class Pending(Coroutine[Any, Any, T], Generic[T]):
    """A call that is not awaited yet. It is no bool: a forgotten await must not read as yes."""

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine

    def __bool__(self) -> NoReturn:
        raise TypeError("the call was not awaited, and says nothing yet; await it")

    def __await__(self) -> Generator[Any, Any, T]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()


class AsyncHeldPermit(Permit):
    """A permit around an act: enter it by async with. Its release gives the act's result out, changed as handlers
    promised. Where it is left without that, and a handler promised something, Denied is raised, and the PDP learns of
    it."""

    __slots__ = ("_client", "_enforcement", "_open")

    def __init__(self, enforcement: Enforcement, client: AsyncClient, *, by: object = None) -> None:
        super().__init__(enforcement.decided.facts(), by=by)
        self._enforcement, self._client, self._open = enforcement, client, True

    def release(self, result: T) -> Pending[T]:
        """The result, changed as handlers promised. Denied is raised where one of them fails."""
        return Pending(self._release(result))

    async def _release(self, result: T) -> T:
        released: T = await self._client._run(self._client._core.finish([self._enforcement], result))
        self._open = False
        return released

    async def __aenter__(self) -> AsyncHeldPermit:
        return self

    async def __aexit__(self, kind: object, error: object, traceback: object) -> None:
        if self._open:
            self._open = False
            await self._client._run(self._client._core.abandon([self._enforcement]))
            raise_unkept(self._enforcement, error)

    def __del__(self) -> None:
        if getattr(self, "_open", False) and self._enforcement.promised:
            warnings.warn(UNRELEASED, ResourceWarning, source=self)


class PendingPermit(Pending[AsyncHeldPermit]):
    """A call of enforce without an act: await it, or enter it by async with."""

    _permit: AsyncHeldPermit

    async def __aenter__(self) -> AsyncHeldPermit:
        self._permit = await self
        return self._permit

    async def __aexit__(self, kind: object, error: object, traceback: object) -> None:
        await self._permit.__aexit__(kind, error, traceback)


class AsyncClient:
    """A client of one PDP and one tenant, for asyncio. A program makes one and keeps it. Its credential, its handlers,
    their promises and the acts may be async. The options are those of Client."""

    def __init__(
        self,
        url: str,
        credential: str | Callable[[], str | Awaitable[str]] | Callable[[str], str | Awaitable[str]] | None = None,
        *,
        tenant: str | None = None,
        handlers: Mapping[str, AsyncHandler] | None = None,
        timeout: float = 5.0,
        retries: int = 2,
        breaker: Breaker = Breaker(),
        plain_http: bool = False,
        receipts: bool = True,
        on_undecided: Callable[[AuthorizationError], Any] | None = None,
        obligations: Draft = "october",
    ) -> None:
        self._core = _core.Core(
            url,
            credential,
            tenant,
            handlers,
            timeout,
            retries,
            breaker,
            plain_http,
            receipts,
            on_undecided,
            obligations,
        )
        self._transport = _Transport()

    async def aclose(self) -> None:
        """Closes the connections that wait for use."""
        await self._transport.close()

    def for_tenant(self, tenant: str) -> AsyncClient:
        """Returns a client for another tenant of the same PDP, as that of Client does."""
        client = copy.copy(self)
        client._core = self._core.for_tenant(tenant)
        return client

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    def _run(self, flow: _core.Flow[T]) -> Pending[T]:
        return Pending(self._transport.run(flow))

    def evaluate(self, question: Question, *, capability: Capability | None = None) -> Coroutine[Any, Any, Answer]:
        """Asks, and calls no handler: an answer with obligations is a no here. The answer is no bool."""
        return self._run(_core.evaluate(self._core, question, capability))

    def authorize(
        self, question: Question, *, wait: Wait | float | None = None, capability: Capability | None = None
    ) -> Coroutine[Any, Any, Permit]:
        """Asks, and raises Denied or Undecided unless the answer is yes and all obligations were discharged."""
        return self._run(_core.authorize(self._core, question, wait, capability))

    @overload
    def enforce(
        self,
        question: Question,
        act: None = None,
        *,
        wait: Wait | float | None = None,
        capability: Capability | None = None,
    ) -> PendingPermit:
        ...

    @overload
    def enforce(
        self,
        question: Question,
        act: Callable[[Permit], Awaitable[T]],
        *,
        wait: Wait | float | None = None,
        capability: Capability | None = None,
    ) -> Coroutine[Any, Any, T]:
        ...

    @overload
    def enforce(
        self,
        question: Question,
        act: Callable[[Permit], T],
        *,
        wait: Wait | float | None = None,
        capability: Capability | None = None,
    ) -> Coroutine[Any, Any, T]:
        ...

    def enforce(
        self,
        question: Question,
        act: Callable[[Permit], Any] | None = None,
        *,
        wait: Wait | float | None = None,
        capability: Capability | None = None,
    ) -> Any:
        """Asks as authorize does, acts, and returns the act's result as handlers changed it. Without an act it returns
        a permit for async with, whose release gives the result out."""
        if act is not None:
            return self._run(_core.enforce(self._core, question, act, wait, capability))
        return PendingPermit(self._hold(permitted(self._core, question, wait, capability, changes=True)))

    async def _hold(self, flow: _core.Flow[Enforcement]) -> AsyncHeldPermit:
        return AsyncHeldPermit(await self._run(flow), self, by=OURS)

    def enforced(
        self, question: Callable[P, Question], *, wait: Wait | float | None = None
    ) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Coroutine[Any, Any, T]]]:
        """A decorator of an async function that is an act: its question is made of the function's arguments."""

        def decorate(function: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
            @functools.wraps(function)
            async def enforcing(*args: P.args, **kwargs: P.kwargs) -> T:
                return await self.enforce(
                    question(*args, **kwargs), lambda permit: function(*args, **kwargs), wait=wait
                )

            return enforcing

        return decorate

    @overload
    def enforce_all(
        self, questions: Sequence[Question], act: Callable[[list[Permit]], Awaitable[T]]
    ) -> Coroutine[Any, Any, T]:
        ...

    @overload
    def enforce_all(self, questions: Sequence[Question], act: Callable[[list[Permit]], T]) -> Coroutine[Any, Any, T]:
        ...

    def enforce_all(self, questions: Sequence[Question], act: Callable[[list[Permit]], Any]) -> Any:
        """Acts if the answer to each question is yes, and all obligations were discharged."""
        return self._run(_core.enforce_all(self._core, questions, act))

    def evaluate_batch(
        self, questions: Sequence[Question], *, semantic: Semantic = "execute_all"
    ) -> Coroutine[Any, Any, Answers]:
        """Asks several questions at once, and discharges each for itself. There is one answer for each, in order."""
        return self._run(_core.evaluate_batch(self._core, questions, semantic))

    def search_subjects(self, query: SubjectQuery) -> AsyncResults[Entity]:
        """The subjects that may do the action on the resource."""
        return AsyncResults(self._search("subject", query))

    def search_resources(self, query: ResourceQuery) -> AsyncResults[Entity]:
        """The resources that the subject may do the action on."""
        return AsyncResults(self._search("resource", query))

    def search_actions(self, query: ActionQuery) -> AsyncResults[Action]:
        """The actions that the subject may do on the resource."""
        return AsyncResults(self._search("action", query))

    async def _search(self, sought: Sought, query: object) -> AsyncIterator[Any]:
        search = Search(self._core, sought, query)
        while not search.over:
            for found in await self._run(search.page()):
                if await self._run(search.keep(found)):
                    yield found.item

    def request_capability(
        self, holder: Holder, ask: CapabilityAsk, *, wait: Wait | float | None = None
    ) -> Coroutine[Any, Any, Capability]:
        """Asks for a capability that is bound to the holder's key."""
        from .capability import request_flow

        return self._run(request_flow(self._core.link, holder, ask, wait))

    def renew_capability(
        self, capability: Capability, *, wait: Wait | float | None = None
    ) -> Coroutine[Any, Any, Capability]:
        """A new token of a capability."""
        from .capability import renew_flow

        return self._run(renew_flow(self._core.link, capability, wait))
