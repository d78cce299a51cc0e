"""Discharging obligations, and the receipts about it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Sequence

from ._effects import Call, Flow
from ._json import copy
from .answer import Decided
from .errors import AuthorizationError, failure
from .types import Obligation

_NO_TYPE, _NO_ID, _SAME_ID = "it has no type", "it has no id", "another obligation has its id"
_MALFORMED = "it is malformed, or of an unknown type"
_NO_HANDLER = "there is no handler for its type"
_FAILED = "its handler failed"
_BROKEN = "its handler promised it, and it was not done"
_FORGONE = "it was not tried, because the act was denied for another reason"

UNRELEASED = (
    "a permit was not released, and a handler promised to change the result: enter it by with, and release that"
)

# A handler's promise: it is called with the result of the act, and returns the result as it may go out.
Change = Callable[[Any], Any]


@dataclass
class Outcome:
    """The outcome of one obligation. fault is None where it was discharged, and says no more than the kind of it."""

    obligation: Obligation
    fault: str | None = None
    cause: BaseException | None = None
    change: Change | None = None


@dataclass
class Enforcement:
    """A decision after its obligations."""

    decided: Decided
    outcomes: list[Outcome] = field(default_factory=list)
    ended: bool = False  # the approval was over when the obligations were discharged
    reported: bool = False

    @property
    def error(self) -> AuthorizationError | None:
        """The reason why it does not permit; None is the permit."""
        decided = self.decided
        if decided.error is not None and not decided.conditional:
            return decided.no()
        undone = [o for o in self.outcomes if o.fault]
        if undone:
            detail = "; ".join(
                f"obligation {o.obligation['id']!r} of type {o.obligation['type']!r}: {_said(o)}" for o in undone
            )
            error = decided.no(failure("obligated", decided.secrets.printable(detail)))
            error.__cause__ = next((o.cause for o in undone if o.cause), None)
            return error
        if decided.conditional and len(self.outcomes) < len(decided.obligations):
            return decided.no()
        if self.ended:
            detail = "the approval ended before all obligations were discharged"
            return decided.no(failure("not_approved", detail))
        return None if decided.allow else decided.no()

    @property
    def promised(self) -> list[Outcome]:
        """The outcomes that a handler promised to do on the result of the act."""
        return [o for o in self.outcomes if o.change and not o.fault]

    def receipts(self) -> list[dict[str, str]]:
        """The outcomes as the PDP takes them. Nothing that a handler said stands in them."""
        receipts: dict[str, dict[str, str]] = {}
        for o in self.outcomes:
            receipt = {"id": o.obligation["id"], "status": "discharged"}
            if o.fault:
                receipt |= {"status": "failed", "detail": o.fault}
            if receipt["id"]:
                receipts.setdefault(receipt["id"], receipt)
        return list(receipts.values())


def _said(o: Outcome) -> str:
    return f"{o.fault} ({type(o.cause).__name__})" if o.cause else str(o.fault)


def discharge(
    decided: Decided, handlers: Mapping[str, Callable[[Obligation], Any]], *, changes: bool
) -> Flow[tuple[Enforcement, BaseException | None]]:
    """Calls the handlers for all obligations, in order, be it a yes or a no, also where ones before failed. It
    returns an interrupt of the program as well. changes says whether there will be a result that a handler can change.
    """
    same = Counter(o["id"] for o in decided.obligations)
    outcomes: list[Outcome] = []
    interrupt: BaseException | None = None
    for o in decided.obligations:
        untried = _MALFORMED if o.get("malformed") else _SAME_ID if o["id"] and same[o["id"]] > 1 else None
        fault = untried or (_NO_TYPE if not o["type"] else _NO_ID if not o["id"] else None)
        handler = None if untried else handlers.get(o["type"])
        outcome = Outcome(o, fault)
        outcomes.append(outcome)
        if handler is None:
            outcome.fault = fault or _NO_HANDLER
            continue
        try:
            promise = yield Call(handler, (copy(o),))
        except GeneratorExit:
            raise
        except BaseException as error:
            outcome.fault, outcome.cause = fault or _FAILED, error
            if not isinstance(error, Exception):
                interrupt = interrupt or error
            continue
        if promise is not None:
            outcome.change = promise if changes and callable(promise) else None
            outcome.fault = fault or (None if outcome.change else _FAILED)
    return Enforcement(decided, outcomes), interrupt


def forgo(decided: Decided) -> Enforcement:
    """A no of a yes, of which nothing is done."""
    decided.error = failure("skipped", "another decision about the same act denies it")
    return Enforcement(decided, [Outcome(o, _FORGONE) for o in decided.obligations])


def change(enforcements: Sequence[Enforcement], result: Any) -> Flow[Any]:
    """The result of an act, changed as handlers promised. It is withheld where one of them fails."""
    promised = [o for e in enforcements for o in e.promised]
    for n, outcome in enumerate(promised):
        assert outcome.change
        try:
            result = yield Call(outcome.change, (result,))
        except BaseException as error:
            for broken in promised[n:]:
                broken.fault = _BROKEN
            if not isinstance(error, Exception):
                raise
            outcome.cause = error
            raise next(e.error for e in enforcements if e.error) from error
    return result


def raise_unkept(enforcement: Enforcement, error: object) -> None:
    """Raises the no of a promise that was not kept, where no other error is on its way."""
    unkept = enforcement.error
    if error is None and unkept is not None:
        unkept._remedy = "release the result in the with statement, and give out what that returns"
        raise unkept


def give_up(enforcements: Sequence[Enforcement]) -> None:
    """Notes that there was no result to change."""
    for outcome in (o for e in enforcements for o in e.promised):
        outcome.fault = _BROKEN
