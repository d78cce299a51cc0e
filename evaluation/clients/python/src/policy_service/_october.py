"""Obligations Core and its Standard Types, as of 6 October 2026 (openid/authzen at 8491bc0d). This file alone knows how
a request adopts them and how an answer carries them. answer.py reads the profile of 3 July 2026."""

from __future__ import annotations

import json
from typing import Any, Callable, Iterable, Literal, Mapping

from .errors import AuthorizationError, odd
from .types import Obligation

# The draft of obligations that a client speaks.
Draft = Literal["october", "july"]

_EXTENSIONS, _SUPPORTED = "supported_mandatory_extensions", "supported_obligations"
_VENDOR = "policy-service"  # of the types that are not standard, which are within an obligation of the type custom


class Owed(Obligation, total=False):
    """An obligation as it was read. If it is malformed, no handler may be called: it cannot be read, its type is
    unknown, its properties are not those of its type, or another obligation of the page of a search has its id."""

    malformed: bool


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


# The members of the standard types, with those that may be missing.
_STANDARD: dict[str, tuple[dict[str, Callable[[Any], bool]], set[str]]] = {
    "step-up": ({"acr_value": _is_text, "amr_values": _are_texts}, {"amr_values"}),
    "notification": ({"to": lambda v: _are_texts(v) and v != [], "body": _is_text, "topic": _is_text}, {"topic"}),
    "session_termination": ({"subject": _is_text}, set()),
}


def declared(question: dict[str, Any], draft: Draft | None, types: Iterable[str] = ()) -> dict[str, Any]:
    """A question that says what a PEP with handlers of these types can discharge. Without a draft it says nothing,
    because nothing is enforced. The author of the question does not know, so members of theirs are left out."""
    own = question.get("context", {})
    context = {name: value for name, value in own.items() if name not in (_EXTENSIONS, _SUPPORTED)}
    if draft == "october":
        context[_EXTENSIONS] = ["obligations"]
        # a PDP of ours that advertises approval_required sends it to who names it; others deny, and people can be asked
        named = [t for t in types if t in _STANDARD or t == "approval_required"]
        context[_SUPPORTED] = sorted({*named, *("custom" for t in types if t not in _STANDARD)})
    elif draft == "july":
        context[_SUPPORTED] = sorted(types)
    return {**question, "context": context} if "context" in question or context else question


def adopts(question: Mapping[str, Any]) -> bool:
    """Whether a question that a client asks adopts the extension."""
    return _EXTENSIONS in question.get("context", {})


def adopted(place: Mapping[str, Any]) -> tuple[list[Owed], AuthorizationError | None]:
    """Reads the obligations of one place of an answer. Readable ones beside malformed ones are discharged."""
    native = place.get("obligation_details") is not None
    error = odd("it has details of obligations in the native form") if native else None
    if "obligations" not in place:
        return [], error
    owed = place["obligations"]
    return [_obligation(item) for item in (owed if isinstance(owed, list) and owed else [None])], error


def _obligation(item: Any) -> Owed:
    """Reads one, in the form that handlers get."""
    item = item if isinstance(item, dict) else {}
    name, kind = (item[n] if isinstance(item.get(n), str) else "" for n in ("id", "type"))
    properties = item.get("properties")
    if not name or not kind or not isinstance(properties, dict):
        return {"id": name, "type": kind, "properties": {}, "malformed": True}
    o: Owed = {"id": name, "type": kind, "properties": properties}
    if kind == "custom" and properties.get("vendor") == _VENDOR:
        inner, own = properties.get("type"), properties.get("properties")
        ours = isinstance(inner, str) and inner != "custom" and inner not in _STANDARD
        if ours and isinstance(own, dict) and len(properties) == 3:
            return {"id": name, "type": str(inner), "properties": own}
        o["malformed"] = True
    elif kind != "custom":
        known, optional = _STANDARD.get(kind, ({}, set()))
        complete = known.keys() - optional <= properties.keys() <= known.keys()
        if not known or not complete or not all(known[n](v) for n, v in properties.items()):
            o["malformed"] = True
        elif kind == "notification" and len(properties["to"]) == 1:
            o["properties"] = {**properties, "to": properties["to"][0]}
    return o


def clashing(owed: Iterable[Owed]) -> set[str]:
    """The ids that stand for more than one obligation."""
    first: dict[str, Owed] = {}
    return {o["id"] for o in owed if not same(first.setdefault(o["id"], o), o)}


def same(a: Owed, b: Owed) -> bool:
    """Whether two obligations are one."""
    return a is b or a == b and _canonical(a) == _canonical(b)  # writing the JSON costs more than the comparison


def _canonical(o: Owed) -> str:
    return json.dumps(o, sort_keys=True)  # in Python, 1 is True
