"""The client."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, ParamSpec, Sequence, TypeVar, overload

from ._core import Breaker
from .answer import Answer, Permit
from .approvals import Wait
from .errors import AuthorizationError
from .types import Action, ActionQuery, Entity, Obligation, Question, ResourceQuery, Semantic, SubjectQuery

if TYPE_CHECKING:
    from .capability import Capability, CapabilityAsk, Holder

T = TypeVar("T")
P = ParamSpec("P")
Change = Callable[[Any], Any]
Handler = Callable[[Obligation], Change | None]


class HeldPermit(Permit):
    """A permit around an act. Its release gives the act's result out, changed as handlers promised."""

    def release(self, result: T) -> T:
        """The result, changed as handlers promised."""
        raise NotImplementedError

    def __enter__(self) -> HeldPermit:
        raise NotImplementedError

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        raise NotImplementedError


class Client:
    """A client of one PDP and one tenant. It is safe for threads; a program makes one and keeps it."""

    def __init__(
        self, url: str, credential: str | Callable[[], str] | None = None, *, tenant: str | None = None,
        handlers: Mapping[str, Handler] | None = None, timeout: float = 5.0, retries: int = 2,
        breaker: Breaker = Breaker(), plain_http: bool = False, receipts: bool = True,
        on_undecided: Callable[[AuthorizationError], Any] | None = None,
    ) -> None:  # fmt: skip
        raise NotImplementedError

    def close(self) -> None:
        """Closes the connections."""
        raise NotImplementedError

    def evaluate(self, question: Question, *, capability: Capability | None = None) -> Answer:
        """Asks. The answer is no bool."""
        raise NotImplementedError

    def authorize(
        self, question: Question, *, wait: Wait | float | None = None, capability: Capability | None = None
    ) -> Permit:
        """Asks, and raises Denied or Undecided unless the answer is yes and all obligations were discharged."""
        raise NotImplementedError

    @overload
    def enforce(
        self, question: Question, act: None = None, *, wait: Wait | float | None = None,
        capability: Capability | None = None,
    ) -> HeldPermit: ...  # fmt: skip

    @overload
    def enforce(
        self, question: Question, act: Callable[[Permit], T], *, wait: Wait | float | None = None,
        capability: Capability | None = None,
    ) -> T: ...  # fmt: skip

    def enforce(
        self, question: Question, act: Callable[[Permit], Any] | None = None, *, wait: Wait | float | None = None,
        capability: Capability | None = None,
    ) -> Any:  # fmt: skip
        """Asks, acts if the answer is yes, and returns the act's result as handlers changed it."""
        raise NotImplementedError

    def enforced(
        self, question: Callable[P, Question], *, wait: Wait | float | None = None
    ) -> Callable[[Callable[P, T]], Callable[P, T]]:
        """A decorator: the question is made of the arguments."""
        raise NotImplementedError

    def enforce_all(self, questions: Sequence[Question], act: Callable[[list[Permit]], T]) -> T:
        """Acts if the answer to each question is yes."""
        raise NotImplementedError

    def evaluate_batch(self, questions: Sequence[Question], *, semantic: Semantic = "execute_all") -> list[Answer]:
        """Asks several questions at once. There is one answer for each, in order."""
        raise NotImplementedError

    def search_subjects(self, query: SubjectQuery) -> Iterator[Entity]:
        """The subjects that may do the action on the resource."""
        raise NotImplementedError

    def search_resources(self, query: ResourceQuery) -> Iterator[Entity]:
        """The resources that the subject may do the action on."""
        raise NotImplementedError

    def search_actions(self, query: ActionQuery) -> Iterator[Action]:
        """The actions that the subject may do on the resource."""
        raise NotImplementedError

    def request_capability(
        self, holder: Holder, ask: CapabilityAsk, *, wait: Wait | float | None = None
    ) -> Capability:
        """Asks for a capability."""
        raise NotImplementedError

    def renew_capability(self, capability: Capability) -> Capability:
        """A new token of a capability."""
        raise NotImplementedError
