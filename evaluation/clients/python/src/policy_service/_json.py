"""JSON that two readers cannot read differently, in both directions."""

from __future__ import annotations

import json
import math
from typing import Any, Mapping, NoReturn

MAX_DEPTH = 64


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON")


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member came twice")
    return members


def _double(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError("a number is too large")
    return number


_reader = json.JSONDecoder(object_pairs_hook=_members, parse_constant=_refuse, parse_float=_double)


def read(body: bytes) -> Any:
    """Reads one JSON text. A ValueError is the refusal of anything that is not whole and unambiguous."""
    try:
        value = _reader.decode(body.decode("utf-8"))
    except RecursionError:
        raise ValueError("it nests too deep") from None
    return copy(value)


def read_object(body: bytes) -> dict[str, Any]:
    """Reads one JSON object."""
    value = read(body)
    if not isinstance(value, dict):
        raise ValueError("it is no object")
    return value


def copy(value: Any, depth: int = 0) -> Any:
    """A copy of a JSON value that its owner cannot change. A ValueError is the refusal of anything else."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return text(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("a number is not finite")
        return float(value)
    if depth >= MAX_DEPTH:
        raise ValueError(f"it nests more than {MAX_DEPTH} deep, or holds itself")
    if isinstance(value, (list, tuple)):
        return [copy(item, depth + 1) for item in value]
    if isinstance(value, Mapping):
        copied: dict[str, Any] = {}
        for name, member in value.items():
            if not isinstance(name, str) or text(name) in copied:
                raise ValueError("a name is no string, or came twice")
            copied[text(name)] = copy(member, depth + 1)
        return copied
    raise ValueError(f"a {type(value).__name__} is no JSON")


def text(value: str) -> str:
    """A string that UTF-8 can write: one without a lone surrogate."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("a string has a lone surrogate") from None
    return str.__str__(value)


def write(value: Any) -> bytes:
    """The JSON of a value that copy made."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8")
