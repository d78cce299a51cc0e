"""Batches: many questions at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Sequence, get_args

from .answer import Decided, of_all, read
from .errors import failure, not_asked, odd

if TYPE_CHECKING:
    from ._core import Reply

Semantic = Literal["execute_all", "deny_on_first_deny", "permit_on_first_permit"]


def body_of(questions: Sequence[dict[str, Any]], semantic: str) -> dict[str, Any]:
    """The body of a batch."""
    if semantic not in get_args(Semantic):
        raise not_asked("there is no such semantic")
    body: dict[str, Any] = {"evaluations": list(questions)}
    if semantic != "execute_all":
        body["options"] = {"evaluations_semantic": semantic}
    return body


def read_batch(top: dict[str, Any], reply: Reply, count: int, semantic: str, october: bool) -> list[Decided]:
    """One decision for each question. One that the PDP did not decide is a no that says so."""
    items = top.get("evaluations")
    if not isinstance(items, list):
        raise odd("the body is not one JSON object with an array of evaluations")
    if len(items) > count:
        raise odd("there are more answers than questions")
    of_all(top, "the batch", october)
    if not items:
        raise odd("there are no answers")
    all_read: list[Decided] = []
    for n, item in enumerate(items):
        decided = read(item, october)
        decided.secrets = reply.secrets
        if decided.error:
            decided.error.detail = reply.secrets.printable(decided.error.detail)
        all_read.append(decided)
        if len(items) < count and _ends(decided, semantic) != (n == len(items) - 1):
            raise odd("there are fewer answers than questions, and no answer to stop at")
    for _ in range(count - len(items)):
        all_read.append(Decided(error=failure("skipped", "an earlier item was enough")))
    for n, decided in enumerate(all_read):
        if reply.decision_id and n < len(items):
            decided.decision_id = f"{reply.decision_id}.{n}"
    return all_read


def _ends(decided: Decided, semantic: str) -> bool:
    """Whether a batch ends after this answer."""
    if decided.possible is not None:
        return False
    return (
        semantic == "deny_on_first_deny" and not decided.allow or semantic == "permit_on_first_permit" and decided.allow
    )
