"""Reading the answers of a PDP: anything that is not understood in full is a no."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Mapping, NoReturn

from ._october import Owed, adopted, same
from .errors import AuthorizationError, Secrets, failure, odd

OURS = object()


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of a permit."""

    decision_id: str | None
    request_id: str
    context: Mapping[str, Any]
    approved_until: datetime | None = None


class _Made:
    """The common part of a yes and of an answer. Only a client makes one."""

    __slots__ = ("_facts",)

    def __init__(self, facts: Facts, *, by: object = None) -> None:
        if by is not OURS:
            raise TypeError(f"a client alone makes a {type(self).__name__}")
        self._facts = facts

    @property
    def decision_id(self) -> str | None:
        """The name of the decision's record."""
        return self._facts.decision_id

    @property
    def request_id(self) -> str:
        """The X-Request-ID of the question."""
        return self._facts.request_id


class Permit(_Made):
    """A yes, all obligations included. Only a client makes one."""

    __slots__ = ()

    @property
    def context(self) -> Mapping[str, Any]:
        """The context of the answer."""
        return self._facts.context

    @property
    def approved_until(self) -> datetime | None:
        """The end of the approval that the permit rests on: nothing may rest on it after that."""
        return self._facts.approved_until


class Answer(_Made):
    """The answer to one question. It is no bool: ask permitted."""

    __slots__ = ("_error",)

    def __init__(self, facts: Facts, error: AuthorizationError | None, *, by: object = None) -> None:
        super().__init__(facts, by=by)
        self._error = error

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
    def context(self) -> Mapping[str, Any]:
        """The context of the answer."""
        return (self._error.context if self._error else self._facts.context) or {}

    def __bool__(self) -> NoReturn:
        raise TypeError("an Answer is no bool, and a no would read as yes; ask answer.permitted, or use authorize")

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Answer):
            return self is other
        raise TypeError("an Answer cannot be compared; ask answer.permitted, or use authorize")

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return "<Answer: permit>" if self._error is None else f"<Answer: {self._error}>"


class Answers(list[Answer]):
    """The answers of a batch, in order. It is no bool either: a list of noes would read as yes."""

    __slots__ = ()

    def __bool__(self) -> NoReturn:
        raise TypeError("the answers of a batch are no bool; ask permitted of each, or use enforce_all")


@dataclass
class Decided:
    """A decision as it was read, before its obligations are discharged. It permits nothing by itself."""

    allow: bool = False
    error: AuthorizationError | None = None
    possible: bool | None = None
    reason: str | None = None
    reason_user: str | None = None
    context: dict[str, Any] | None = None
    obligations: list[Owed] = field(default_factory=list)
    decision_id: str | None = None
    request_id: str = ""
    approved_until: datetime | None = None
    secrets: Secrets = Secrets()

    @property
    def conditional(self) -> bool:
        """Whether the PDP allows, and nothing is wrong with that but that obligations are still to be discharged."""
        return self.allow and self.error is not None and self.error.kind == "obligated"

    @property
    def denied(self) -> bool:
        """Whether it stays a no if all is discharged."""
        return not self.conditional and (self.error is not None or not self.allow)

    def ended(self) -> bool:
        """Whether the approval that it rests on is over."""
        return self.approved_until is not None and self.approved_until <= datetime.now(timezone.utc)

    def qualify(self, place: Mapping[str, Any], context: Any, october: bool) -> None:
        """Reads the members beside a verdict and in its context: all, as readable obligations are to be discharged. One
        that stands there twice is kept once."""
        before = self.obligations
        errors = [None if self.conditional else self.error, self._add(place, october)]
        if isinstance(context, dict):
            errors.append(self._add(context, october))
        elif context is not None:
            errors.append(odd("context is not an object"))
        if self.obligations is not before:  # many results can share the obligations of their page
            first: dict[str, Owed] = {}
            for o in self.obligations:
                first.setdefault(o["id"], o)
            self.obligations = [
                o for o in self.obligations if not o["id"] or (like := first[o["id"]]) is o or not same(like, o)
            ]
        self.error = next((error for error in errors if error), None)
        if self.error is None and self.allow and self.obligations:
            detail = "the PDP allows, but wants something done besides"
            self.error = failure("obligated", detail, remedy="use authorize or enforce, with handlers")

    def _add(self, place: Mapping[str, Any], october: bool) -> AuthorizationError | None:
        self.reason = _text(place.get("reason"), self.reason)
        self.reason_user = _text(place.get("reason_user"), self.reason_user)
        owed, error = adopted(place) if october else _wanted(place)
        if owed:
            self.obligations = self.obligations + owed
        if isinstance(place.get("possible"), bool):
            self.possible = place["possible"]
        if place.get("error") is not None:
            return _item_error(place["error"])
        if error is None and self.allow and self.possible is not None:
            return odd("it allows, and says what is possible")
        capability = place.get("capability")
        if error is None and self.allow and isinstance(capability, dict) and capability.get("enforceable") is False:
            return odd("it allows, and says that nothing may happen by it")
        if error is None and self.allow and place.get("required_obligations") is not None:
            return odd("it allows, and names obligations it required in vain")
        return error

    def facts(self) -> Facts:
        """The facts of a permit."""
        return Facts(self.decision_id, self.request_id, self.context or {}, self.approved_until)

    def no(self, error: AuthorizationError | None = None) -> AuthorizationError:
        """The error of a no, with the words of the PDP."""
        error = error or self.error or failure("denied", self._says())
        if error.kind == "denied" and self.reason == "approval_required":
            error._remedy = "call authorize or enforce with wait, so that people are asked to approve it"
        if error.kind == "denied" and self.reason in ("schema_mismatch", "unknown_type", "unknown_entity"):
            error._remedy = "correct the question: an answer to the header X-Explain says what the policies do not know"
        error.reason = error.reason or self.secrets.hidden(self.reason)
        error.reason_user = error.reason_user or self.secrets.hidden(self.reason_user)
        error.decision_id = error.decision_id or self.decision_id
        error.request_id = error.request_id or self.request_id or None
        error.context = error.context or self.secrets.hidden(self.context)
        return error

    def _says(self) -> str:
        if self.possible is not None:
            return "the answer says what is possible, which permits nothing"
        return self.secrets.printable(self.reason or "")


def permit(facts: Facts) -> Permit:
    """The permit of an answer that permits."""
    return Permit(facts, by=OURS)


def answer(decided: Decided, error: AuthorizationError | None) -> Answer:
    """The answer that a program gets."""
    return Answer(decided.facts(), error, by=OURS)


def read(top: Any, october: bool = False) -> Decided:
    """Reads an answer, or an item of a batch: by the draft of October if the question adopts it."""
    if not isinstance(top, dict):
        return Decided(error=odd("it is not one JSON object"))
    decision, context = top.get("decision"), top.get("context")
    if not isinstance(decision, bool):
        return Decided(error=odd("decision is missing or not a boolean"))
    decided = Decided(allow=decision is True)
    if decided.allow and top.get("allow") is False:
        return Decided(error=odd("it says both yes and no"))
    decided.qualify(top, context, october)
    if isinstance(context, dict):
        decided.context = context
    return decided


def of_all(top: Mapping[str, Any], name: str, october: bool) -> None:
    """Refuses members that qualify several answers together: it is not known which of them they are for."""
    together = Decided(allow=True)
    together.qualify(top, top.get("context"), october)
    if together.conditional:
        raise failure("obligated", name + " as a whole carries obligations")
    if together.error:
        raise together.error


def _text(value: Any, otherwise: str | None = None) -> str | None:
    return value if isinstance(value, str) and value else otherwise


def _item_error(value: Any) -> AuthorizationError:
    status, message = (value.get("status"), value.get("message")) if isinstance(value, dict) else (None, None)
    status = status if isinstance(status, int) and not isinstance(status, bool) else None
    return failure("bad_item", _text(message) or "", pdp_status=status)


def _wanted(place: Mapping[str, Any]) -> tuple[list[Owed], AuthorizationError | None]:
    """The obligations of one place: AuthZEN's array, or the native object that maps each type to true, beside which
    obligation_details is such an array. Any other form is an error, and so never lost."""
    details, error = _array(place.get("obligation_details"))
    owed = place.get("obligations")
    if isinstance(owed, dict):
        types = sorted(name for name in owed if owed[name] is True)
        if len(types) < len(owed):
            error = odd("an obligation is something else than true")
        elif any(o["type"] not in owed for o in details):
            error = error or odd("it has details of an obligation that it does not name")
        detailed = {o["type"] for o in details}
        plain: list[Owed] = [{"id": name, "type": name, "properties": {}} for name in types if name not in detailed]
        return plain + details, error
    if isinstance(owed, list):
        named, bad = _array(owed)
        if details:
            error = error or odd("it has obligations, and details of them, as two arrays")
        return named + details, bad or error
    if owed is not None:
        return details, odd("obligations are neither an array nor an object")
    if details:
        error = error or odd("it has details of obligations, and no obligations")
    return details, error


def _array(value: Any) -> tuple[list[Owed], AuthorizationError | None]:
    if value is None:
        return [], None
    if not isinstance(value, list):
        return [], odd("obligations are not an array")
    read = [_obligation(item) for item in value]
    return [o for o, _ in read], next((error for _, error in read if error), None)


def _obligation(item: Any) -> tuple[Owed, AuthorizationError | None]:
    """Reads {id, type, properties}. In AuthZEN's profile for obligations the parameters of a type stand beside its id:
    both are read as properties, so that a handler sees one form."""
    o: Owed = {"id": "", "type": "", "properties": {}}
    if not isinstance(item, dict):
        return o, odd("an obligation is not an object")
    o["id"], o["type"] = _text(item.get("id")) or "", _text(item.get("type")) or ""
    if not o["type"]:
        return o, odd("an obligation has no type")
    properties = item.get("properties")
    if properties is None:
        properties = {}
    if not isinstance(properties, dict):
        return o, odd("the properties of an obligation cannot be read")
    beside = {name: v for name, v in item.items() if name not in ("id", "type", "properties") and v is not None}
    for name, value in beside.items():
        if name in properties and _canonical(properties[name]) != _canonical(value):
            return o, odd("a property of an obligation has two values")
    o["properties"] = {**properties, **beside}
    return o, None


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


def shown_in(question: Mapping[str, Any]) -> tuple[str, ...]:
    """The secrets that a question shows. Short texts are none, and could be parts of any id of a decision."""
    shown = question.get("context", {}).get("capability")
    shown = shown if isinstance(shown, dict) else {}
    channel = shown.get("channel")
    session = channel.get("session") if isinstance(channel, dict) else None
    return tuple(t for t in (shown.get("token"), shown.get("proof"), session) if isinstance(t, str) and len(t) > 15)


def time_of(value: Any) -> datetime | None:
    """A time as RFC 3339 writes it; None is no such text."""
    try:
        return datetime.fromisoformat(value.upper()) if isinstance(value, str) and _TIME.fullmatch(value) else None
    except ValueError:
        return None
