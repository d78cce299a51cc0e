"""Waiting for people's approval. Nothing here permits: only the PDP's answer to the question does."""

from __future__ import annotations

import hashlib
import math
import random
import time
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Callable, Literal, Required, TypedDict
from urllib.parse import quote

from . import _json
from ._effects import Call, Flow, Sleep
from .answer import Decided, shown_in, time_of
from .errors import AuthorizationError, failure, not_asked, odd
from .obligations import Enforcement

if TYPE_CHECKING:
    from ._core import Core, Link, LinkAnswer, Shown

_FIRST_PAUSE, _MOST_PAUSE, _HOLD, _HELD = 6.0, 60.0, 20.0, 10.0
_REQUEST, _RETRY, _NONE = "request", "retry", "none"
# The next action after a reason, where the answer has none that is known.
_USUALLY = {
    "approval_expired": _REQUEST,
    "approval_revoked": _REQUEST,
    "out_of_scope": _REQUEST,
    "grant_pending": _RETRY,
    "policy_denied": _NONE,
    "approval_unverifiable": _NONE,
}


class Task(TypedDict, total=False):
    """An approval request that was filed. It is JSON, for another process to go on with, and permits nothing."""

    version: Required[Literal[1]]
    pdp: Required[str]
    id: Required[str]
    status_endpoint: Required[str]
    cancel: str
    expires_at: str


@dataclass(frozen=True)
class Wait:
    """How long to wait for people, in seconds, and how.

    justification is shown to them. join leaves it to the PDP to find equal requests. keep gets the task once it is
    filed, and ends the wait if it fails; resume goes on with a task. Keep a task where no other program can write.
    """

    timeout: float
    justification: str | None = None
    join: bool = False
    keep: Callable[[Task], Any] | None = None
    resume: Task | None = None


def wait_of(wait: object) -> Wait | None:
    """A wait as the program gave it."""
    if wait is None or isinstance(wait, Wait):
        given = wait
    elif isinstance(wait, (int, float)) and not isinstance(wait, bool):
        given = Wait(wait)
    else:
        raise not_asked("wait is neither seconds nor a Wait")
    if given and not (isinstance(given.timeout, (int, float)) and 0 <= given.timeout < 1e9):
        raise not_asked("the time of the wait is no number of seconds")
    return given


@dataclass(frozen=True)
class _State:
    """A task as the PDP describes it."""

    status: str
    task: Task | None = None
    result: Any = None
    retry_after: float = 0.0
    filed: bool = False  # just now

    @property
    def end(self) -> datetime | None:
        return time_of(self.task.get("expires_at")) if self.task else None


@dataclass(frozen=True)
class _Offer:
    """The part of a deny about approvals."""

    next: str
    denial: dict[str, str]
    endpoint: str = ""
    schema: str = ""  # where the PDP says what a submission must have besides
    retry_after: float = 0.0
    end: datetime | None = None


_IN_VAIN = (
    "people could not be asked, or their approval did not count: see that the credential has the permission request"
)


def permitted(
    core: Core, question: object, wait: object, capability: Shown | None, *, changes: bool
) -> Flow[Enforcement]:
    """Asks, discharges, and waits for people if it may. It raises the error of everything but a permit."""
    given = wait_of(wait)
    if given is None:
        decided, _ = yield from core.evaluate(question, capability=capability, declare=True)
        [e] = yield from core.settle([decided], changes=changes)
    else:
        e = yield from _Waiter(core, given, capability, changes).enforce(question)
    error = e.error
    if error is None:
        return e
    if given and error.kind == "denied" and error.reason == "approval_required":
        error._remedy = _IN_VAIN
    raise error


class _Waiter:
    def __init__(self, core: Core, wait: Wait, capability: Shown | None, changes: bool) -> None:
        if "approval_required" in core.handlers:
            raise not_asked(
                "the handlers have one for approval_required, which the PDP sees to here; leave it out, or wait"
            )
        self._core, self._wait, self._capability, self._changes = core, wait, capability, changes
        self._over = time.monotonic() + wait.timeout

    def enforce(self, question: object) -> Flow[Enforcement]:
        wait, q = self._wait, self._core.checked(question, True)
        context = q["context"]
        if "approval" in context or "approval_id" in context:
            raise not_asked(
                "the question presents an approval already; leave context.approval and context.approval_id out"
            )
        if wait.justification is not None:
            if "business_justification" in context:
                raise not_asked("the question has a business_justification already; leave one of the two out")
            try:
                _json.text(wait.justification)
            except (ValueError, AttributeError):
                raise not_asked("the justification is no text that UTF-8 can write") from None
        if wait.resume is not None:
            task = _task(wait.resume, self._core.link)
            state = yield from self._people(None, task, time_of(task.get("expires_at")))
            return (yield from self._use(state, q))
        decided, shown = yield from self._core.evaluate(q, capability=self._capability, declare=True)
        [e] = yield from self._core.settle([decided], changes=self._changes)
        for _ in range(2):
            try:
                offer = _offer(e)
                if offer is None or offer.next != _REQUEST:
                    return e
                state = yield from self._people((shown or q, offer), None, offer.end)
                e = yield from self._use(state, q)
            except AuthorizationError as error:
                raise e.decided.no(error)
        return e

    def _people(
        self, filing: tuple[dict[str, Any], _Offer] | None, task: Task | None, end: datetime | None
    ) -> Flow[_State]:
        """Files the request, if it is not filed yet, and waits until people have decided."""

        def attempt(hold: float, within: float) -> Flow[_State]:
            nonlocal task
            if task is None:
                assert filing
                state = yield from self._submit(*filing)
                task = state.task
                if self._wait.keep:
                    yield from self._keep(self._wait.keep, state)
                return state
            state = yield from _look(self._core.link, task, hold, within)
            task = state.task
            return state

        try:
            return (yield from until_decided(attempt, self._over, end, lambda: task))
        except AuthorizationError as error:
            error.task = task
            raise

    def _submit(self, q: dict[str, Any], offer: _Offer) -> Flow[_State]:
        if self._wait.justification is not None:
            q = {**q, "context": {**q["context"], "business_justification": self._wait.justification}}
        link, body = self._core.link, {**q, "denial": offer.denial}
        headers: list[tuple[str, str]] = []
        if not self._wait.join:
            headers.append(("Idempotency-Key", hashlib.sha256(_json.write(body)).hexdigest()))
        url, secrets = offer.endpoint or link.requests, shown_in(q)
        # The schema of this service requires nothing. No other one is read, so a submission could be incomplete.
        above = url.removesuffix(link.pdp.removeprefix(link.base) + "/access/v1/requests")
        if offer.schema and offer.schema != above + "/access/v1/requests/schema":
            raise failure(
                "not_asked",
                "the PDP may require more than the denied request, by a schema that this client does not read",
                remedy="file the request with what the schema at access_request.request_schema_url requires",
            )
        answer = yield from link.send("request", url, body, headers=headers, secrets=secrets, statuses=(201, 202))
        state = _read(answer, link.pdp)
        assert state.task
        if not state.task["status_endpoint"]:
            raise odd("the task has no status_endpoint")
        return replace(state, filed=True)

    @staticmethod
    def _keep(keep: Callable[[Task], Any], state: _State) -> Flow[None]:
        try:
            yield Call(keep, (_json.copy(state.task),))
        except Exception as error:
            failed = failure(
                "cancelled", f"the task was not kept: {type(error).__name__}", remedy="keep the task, and ask anew"
            )
            failed.op = "await"
            raise failed from error

    def _use(self, state: _State, q: dict[str, Any]) -> Flow[Enforcement]:
        """Asks with an approval, and again if the PDP says that the approval is about to count."""
        approval, until = _approval(state)
        for n in range(1000):
            if until <= _now():
                decided = Decided(error=failure("not_approved", "the approval has ended"))
            else:
                decided, _ = yield from self._core.question(q, approval=approval, capability=self._capability)
                _rests(decided, until)
                yield from self._core.tell_undecided(decided.error)
            [e] = yield from self._core.settle([decided], changes=self._changes)
            offer = _offer(e)
            if offer is None or offer.next != _RETRY:
                return e
            pause = max(_pause(n), offer.retry_after)
            if _now() + timedelta(seconds=pause) >= until or time.monotonic() + pause >= self._over:
                raise _given_up(state.task, None)
            yield Sleep(pause)
        raise _given_up(state.task, None)


def until_decided(
    attempt: Callable[[float, float], Flow[_State]],
    over: float,
    end: datetime | None,
    task: Callable[[], Task | None] = lambda: None,
) -> Flow[_State]:
    """Tries until people have decided. attempt gets the seconds that the PDP may hold its answer back, and those that
    all of it may take. A failure that says nothing of people's decision is tried again, until it is over."""
    last, failed = False, None
    n = 0
    while True:
        began = time.monotonic()
        remaining = over - began
        try:
            state = yield from attempt(math.ceil(min(_HOLD, max(remaining, 0.0))), max(remaining, 1.0))
            failed, end, asked_for = None, state.end or end, state.retry_after
            if state.status != "pending":
                return state
            now = time.monotonic()
            if now < over and (state.filed or now - began >= _HELD):  # the next answer is held back, or this one was
                continue
        except AuthorizationError as error:
            if error.kind not in ("unreachable", "timed_out", "unavailable"):
                raise
            failed, asked_for = error, error.retry_after or 0.0
        remaining = over - time.monotonic()
        if last or remaining <= 0 or asked_for > remaining:
            raise _given_up(task(), failed)
        pause = max(_pause(n), asked_for)
        last = pause >= remaining
        pause = min(pause, remaining)
        if end is not None and _now() + timedelta(seconds=pause) >= end:
            raise failure("not_approved", "people did not decide in time")
        yield Sleep(pause)
        n += 1


def _given_up(task: Task | None, failed: AuthorizationError | None) -> AuthorizationError:
    if task is None and failed:
        return failed
    error = failure(
        "not_approved",
        "people have not decided in the time of the wait",
        remedy="keep error.task, and go on later with Wait(…, resume=task)",
    )
    error.op, error.reason, error.task = "await", "approval_pending", task  # for a wait of which only the use is late
    return error


def decided(link: Link, approval: str, timeout: float) -> Flow[str]:
    """The status of an approval request, once people have decided."""
    if approval in ("", ".", ".."):
        raise odd("the approval request has no id")
    url = f"{link.base}/v1/approvals/{quote(approval, safe='')}"

    def attempt(hold: float, within: float) -> Flow[_State]:
        answer = yield from link.send("await", url, method="GET", hold=hold, within=within)
        status = answer.json.get("status")
        if not isinstance(status, str) or not status:
            raise odd("it is no approval request")
        return _State(answer.secrets.printable(status), retry_after=answer.retry_after)

    state = yield from until_decided(attempt, time.monotonic() + timeout, None)
    return state.status


def _pause(n: int) -> float:
    """The pause before attempt n: people take minutes, and many programs may wait at one PDP."""
    return (0.5 + random.random() / 2) * min(_FIRST_PAUSE * 2.0 ** min(n, 10), _MOST_PAUSE)


def _now() -> datetime:
    return datetime.now(timezone.utc)


def _look(link: Link, task: Task, hold: float, within: float) -> Flow[_State]:
    answer = yield from link.send("await", task["status_endpoint"], method="GET", hold=hold, within=within)
    state = _read(answer, link.pdp)
    assert state.task
    if state.task["id"] != task["id"]:
        raise odd("it is about another task")
    known = task.copy()
    if "expires_at" in state.task:
        known["expires_at"] = state.task["expires_at"]
    return replace(state, task=known)


def _read(answer: LinkAnswer, pdp: str) -> _State:
    """Reads a task of one question."""
    said = answer.json.get("task")
    if not isinstance(said, dict) or not all(isinstance(said.get(n), str) and said[n] for n in ("id", "status")):
        raise odd("it is no task")
    if said.get("items") is not None:
        raise odd("it is a task of several questions, and one was sent")
    links = said.get("links") or {}
    texts = {"status_endpoint": said.get("status_endpoint"), "expires_at": said.get("expires_at")}
    texts["cancel"] = links.get("cancel") if isinstance(links, dict) else 0
    if not all(text is None or isinstance(text, str) for text in texts.values()):
        raise odd("it is no task")
    if texts["expires_at"] and time_of(texts["expires_at"]) is None:
        raise odd("the task's expires_at is no time")
    task: Task = {"version": 1, "pdp": pdp, "id": said["id"], "status_endpoint": texts["status_endpoint"] or ""}
    if texts["cancel"]:
        task["cancel"] = texts["cancel"]
    if texts["expires_at"]:
        task["expires_at"] = texts["expires_at"]
    return _State(answer.secrets.printable(said["status"]), task, answer.json.get("result"), answer.retry_after)


def _task(given: object, link: Link) -> Task:
    """A task that the program kept."""
    try:
        task = _json.copy(given)
        texts = [task[n] for n in ("pdp", "id", "status_endpoint")]
        more = {n: v for n, v in task.items() if n not in ("version", "pdp", "id", "status_endpoint")}
        whole = type(task["version"]) is int and task["version"] == 1 and all(isinstance(t, str) and t for t in texts)
        whole = whole and set(more) <= {"cancel", "expires_at"} and all(isinstance(t, str) for t in more.values())
        whole = whole and (not more.get("expires_at") or time_of(more["expires_at"]) is not None)
    except (ValueError, KeyError, TypeError, AttributeError):
        task, whole = None, False
    if not whole or task is None:
        raise not_asked("the task is damaged, or of another version; ask anew")
    if task["pdp"] != link.pdp:
        raise not_asked("the task is of another PDP or tenant; use a client of the one where it was filed")
    kept: Task = task
    return kept


def _approval(state: _State) -> tuple[dict[str, Any], datetime]:
    """The approval of an approved task. A task in another status has none, also where one stands beside the status."""
    if state.status != "approved":
        raise failure("not_approved", f"the request is {state.status!r}")
    result = state.result
    if not isinstance(result, dict) or result.get("mode") != "reevaluate":
        raise failure("not_approved", "it is approved, with no result that can be used here")
    approval = result.get("approval")
    until = time_of(approval.get("approved_until")) if isinstance(approval, dict) else None
    if until is None or not isinstance(approval, dict) or not isinstance(approval.get("id"), str) or not approval["id"]:
        raise odd("the approval has no id, or no approved_until")
    return approval, until


def _rests(decided: Decided, until: datetime) -> None:
    """Reads the approval that an answer rests on. It never prolongs that."""
    said = (decided.context or {}).get("approval")
    error = None
    if said is not None and not isinstance(said, dict):
        error = odd("its approval cannot be read")
    elif said and said.get("approved_until") is not None:
        end = time_of(said["approved_until"])
        if end is None:
            error = odd("the approved_until of its approval is no time")
        else:
            until = min(until, end)
    decided.approved_until = until
    if error is None and decided.ended():
        error = failure("not_approved", "the approval has ended")
    if error and decided.allow:
        decided.allow, decided.error = False, error


def _offer(e: Enforcement) -> _Offer | None:
    """The offer of a deny. A permit has none, and neither has an answer with an error."""
    if e.error is None or e.error.kind != "denied":
        return None
    context = e.decided.context or {}
    named = {"evaluation_id": context.get("evaluation_id"), "evaluated_at": context.get("evaluated_at")}
    named["reason"] = context.get("reason")
    request, end, endpoint, schema, requested = context.get("access_request"), None, "", "", False
    if request is not None and not isinstance(request, dict):
        raise odd("access_request cannot be read")
    if request is not None and request.get("refused") is None:
        texts = {
            n: request.get(n) for n in ("endpoint", "request_schema_url", "template", "expires_at", "binding_token")
        }
        if not all(text is None or isinstance(text, str) for text in texts.values()):
            raise odd("access_request cannot be read")
        schema = texts.pop("request_schema_url") or ""
        endpoint, end, requested = texts.pop("endpoint") or "", time_of(texts["expires_at"]), True
        if end is None:
            raise odd("access_request has no expires_at")
        if not texts["binding_token"] and not isinstance(named["evaluation_id"], str):
            raise odd("access_request has no binding_token, and there is no evaluation_id")
        named |= texts
    action, after = context.get("next_action"), context.get("retry_after")
    if action not in (_REQUEST, _RETRY, _NONE):
        action = _USUALLY.get(str(named["reason"]), _REQUEST)
    if action == _REQUEST and not requested:
        action = _NONE
    seconds = float(after) if type(after) is int and 0 <= after < 1 << 31 else 0.0
    return _Offer(action, {n: v for n, v in named.items() if isinstance(v, str) and v}, endpoint, schema, seconds, end)
