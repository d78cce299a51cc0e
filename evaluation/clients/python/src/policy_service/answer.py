"""Reading the answers of a PDP: anything that is not understood in full is a no."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Mapping, NoReturn

from .errors import AuthorizationError
from .types import Json

_OURS = object()


@dataclass(frozen=True, slots=True)
class Facts:
    """What stands in a permit."""

    decision_id: str | None
    request_id: str
    context: Mapping[str, Json]
    approved_until: datetime | None = None


class Permit:
    """A yes, all obligations included. Only a client makes one."""

    __slots__ = ("_facts",)

    def __init__(self, facts: Facts, *, by: object = None) -> None:
        if by is not _OURS:
            raise TypeError("a Permit is made by a client alone")
        self._facts = facts

    @property
    def decision_id(self) -> str | None:
        """The name of the decision's record."""
        return self._facts.decision_id

    @property
    def request_id(self) -> str:
        """The X-Request-ID of the question."""
        return self._facts.request_id

    @property
    def context(self) -> Mapping[str, Json]:
        """The context of the answer."""
        return self._facts.context

    @property
    def approved_until(self) -> datetime | None:
        """The end of the approval that the permit rests on: nothing may rest on it after that."""
        return self._facts.approved_until


class Answer:
    """The answer to one question. It is no bool: ask permitted."""

    __slots__ = ("_error", "_facts")

    def __init__(self, facts: Facts, error: AuthorizationError | None, *, by: object = None) -> None:
        if by is not _OURS:
            raise TypeError("an Answer is made by a client alone")
        self._error = error
        self._facts = facts

    @property
    def permitted(self) -> bool:
        """Whether the PDP allows, without any condition."""
        return self._error is None

    @property
    def error(self) -> AuthorizationError | None:
        """The reason why it does not permit; None where it does."""
        return self._error

    @property
    def reason(self) -> str | None:
        """The machine-readable reason of a no."""
        return self._error.reason if self._error else None

    @property
    def reason_user(self) -> str | None:
        """The sentence for the user."""
        return self._error.reason_user if self._error else None

    @property
    def decision_id(self) -> str | None:
        """The name of the decision's record."""
        return self._facts.decision_id

    @property
    def request_id(self) -> str:
        """The X-Request-ID of the question."""
        return self._facts.request_id

    @property
    def context(self) -> Mapping[str, Json]:
        """The context of the answer."""
        return self._facts.context

    def __bool__(self) -> NoReturn:
        raise TypeError("an Answer is no bool, and a no would read as yes; ask answer.permitted, or use authorize")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Answer):
            return self is other
        raise TypeError("an Answer cannot be compared; ask answer.permitted, or use authorize")

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return "<Answer: permit>" if self._error is None else f"<Answer: {self._error}>"
