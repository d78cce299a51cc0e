"""The client."""

from __future__ import annotations

import copy
import functools
import inspect
import warnings
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, ParamSpec, Sequence, TypeVar, overload

from . import _core
from ._breaker import Breaker
from ._october import Draft
from ._transport import Transport, run
from .answer import OURS, Answer, Answers, Permit
from .approvals import Wait, permitted
from .batch import Semantic
from .errors import AuthorizationError
from .obligations import UNRELEASED, Change, Enforcement, raise_unkept
from .search import Results, Search, Sought
from .types import Action, ActionQuery, CapabilityAsk, Entity, Obligation, Question, ResourceQuery, SubjectQuery

if TYPE_CHECKING:
    from .capability import Capability, Holder

T = TypeVar("T")
P = ParamSpec("P")

# A handler of a type of obligation. None says that it is done; an exception that it is not. A function is the promise
# to change the act's result.
Handler = Callable[[Obligation], Change | None]


class HeldPermit(Permit):
    """A permit around an act: enter it by with. Its release gives the act's result out, changed as handlers promised.
    Where it is left without that, and a handler promised something, Denied is raised, and the PDP learns of it."""

    __slots__ = ("_client", "_enforcement", "_open")

    def __init__(self, enforcement: Enforcement, client: Client, *, by: object = None) -> None:
        super().__init__(enforcement.decided.facts(), by=by)
        self._enforcement, self._client, self._open = enforcement, client, True

    def release(self, result: T) -> T:
        """The result, changed as handlers promised. Denied is raised where one of them fails."""
        released: T = self._client._run(self._client._core.finish([self._enforcement], result))
        self._open = False
        return released

    def __enter__(self) -> HeldPermit:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if self._open:
            self._open = False
            self._client._run(self._client._core.abandon([self._enforcement]))
            raise_unkept(self._enforcement, error)

    def __del__(self) -> None:
        if getattr(self, "_open", False) and self._enforcement.promised:
            self._open = False
            self._client._run(self._client._core.abandon([self._enforcement]))
            warnings.warn(UNRELEASED, ResourceWarning, source=self)  # which may raise


class Client:
    """A client of one PDP and one tenant. It is safe for threads; a program makes one and keeps it.

    credential    the key, or a function that gives a token before each request; it may take the tenant's name
    tenant        the tenant, if it is not the PDP's default one; for_tenant is for one that a request names
    handlers      functions by the type of obligation that they discharge
    timeout       seconds of a call, retries included; the wait for people has its own
    retries       how often a question is sent again, if it spends nothing or was not sent
    breaker       after how many failures in a row all is denied at once, and for how long
    plain_http    allows http to another machine, for a network that encrypts by itself
    receipts      whether the PDP learns what became of obligations
    on_undecided  is called with each Undecided, for a counter and an alert
    obligations   the draft of AuthZEN's obligations; "july" is for a PDP that knows that of July 2026 alone
    """

    def __init__(
        self,
        url: str,
        credential: str | Callable[[], str] | Callable[[str], str] | None = None,
        *,
        tenant: str | None = None,
        handlers: Mapping[str, Handler] | None = None,
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
        self._transport = Transport()

    def close(self) -> None:
        """Closes the connections that wait for use."""
        self._transport.close()

    def for_tenant(self, tenant: str) -> Client:
        """Returns a client for another tenant of the same PDP. It is cheap: make one for each request. Connections,
        options and the circuit breaker are shared. ValueError is raised for what can be no tenant's name."""
        client = copy.copy(self)
        client._core = self._core.for_tenant(tenant)
        return client

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _run(self, flow: _core.Flow[T]) -> T:
        return run(flow, self._transport)

    def evaluate(self, question: Question, *, capability: Capability | None = None) -> Answer:
        """Asks, and calls no handler: an answer with obligations is a no here. The answer is no bool."""
        return self._run(_core.evaluate(self._core, question, capability))

    def authorize(
        self, question: Question, *, wait: Wait | float | None = None, capability: Capability | None = None
    ) -> Permit:
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
    ) -> HeldPermit:
        ...

    @overload
    def enforce(
        self,
        question: Question,
        act: Callable[[Permit], T],
        *,
        wait: Wait | float | None = None,
        capability: Capability | None = None,
    ) -> T:
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
        a permit for a with statement, whose release gives the result out."""
        if act is not None:
            return self._run(_core.enforce(self._core, question, act, wait, capability))
        enforcement = self._run(permitted(self._core, question, wait, capability, changes=True))
        return HeldPermit(enforcement, self, by=OURS)

    def enforced(
        self, question: Callable[P, Question], *, wait: Wait | float | None = None
    ) -> Callable[[Callable[P, T]], Callable[P, T]]:
        """A decorator of a function that is an act: its question is made of the function's arguments."""

        def decorate(function: Callable[P, T]) -> Callable[P, T]:
            if inspect.iscoroutinefunction(function):
                raise TypeError("an async function is protected by an AsyncClient")

            @functools.wraps(function)
            def enforcing(*args: P.args, **kwargs: P.kwargs) -> T:
                return self.enforce(question(*args, **kwargs), lambda permit: function(*args, **kwargs), wait=wait)

            return enforcing

        return decorate

    def enforce_all(self, questions: Sequence[Question], act: Callable[[list[Permit]], T]) -> T:
        """Acts if the answer to each question is yes, and all obligations were discharged."""
        result: T = self._run(_core.enforce_all(self._core, questions, act))
        return result

    def evaluate_batch(self, questions: Sequence[Question], *, semantic: Semantic = "execute_all") -> Answers:
        """Asks several questions at once, and discharges each for itself. There is one answer for each, in order."""
        return self._run(_core.evaluate_batch(self._core, questions, semantic))

    def search_subjects(self, query: SubjectQuery) -> Results[Entity]:
        """The subjects that may do the action on the resource."""
        return Results(self._search("subject", query))

    def search_resources(self, query: ResourceQuery) -> Results[Entity]:
        """The resources that the subject may do the action on."""
        return Results(self._search("resource", query))

    def search_actions(self, query: ActionQuery) -> Results[Action]:
        """The actions that the subject may do on the resource."""
        return Results(self._search("action", query))

    def _search(self, sought: Sought, query: object) -> Iterator[Any]:
        search = Search(self._core, sought, query)
        while not search.over:
            for found in self._run(search.page()):
                if self._run(search.keep(found)):
                    yield found.item

    def request_capability(self, holder: Holder, ask: CapabilityAsk, *, wait: Wait | float | None = None) -> Capability:
        """Asks for a capability that is bound to the holder's key."""
        from .capability import request_flow

        return self._run(request_flow(self._core.link, holder, ask, wait))

    def renew_capability(self, capability: Capability, *, wait: Wait | float | None = None) -> Capability:
        """A new token of a capability."""
        from .capability import renew_flow

        return self._run(renew_flow(self._core.link, capability, wait))
