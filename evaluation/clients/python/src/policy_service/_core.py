"""The rules of a client, as flows."""

from __future__ import annotations

import copy
import inspect
import ipaddress
import random
import re
import time
import uuid
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Callable, Mapping, Protocol, Sequence, TypeVar, get_args
from urllib.parse import SplitResult, quote, urlsplit

from . import _json, approvals, batch, obligations
from ._breaker import Breaker, Circuit, Outcome, outcome_of
from ._effects import MAX_BODY, Apart, Call, Flow, Raw, Send, Sleep, Together
from ._october import Draft, adopts, declared
from .answer import Answer, Answers, Decided, Permit, answer, permit, read, shown_in
from .errors import AuthorizationError, Kind, Secrets, Undecided, failure, not_asked, odd
from .obligations import Enforcement

__all__ = ["Breaker", "Core", "Flow", "Link", "LinkAnswer", "Shown"]

T = TypeVar("T")

_TOKEN = re.compile(r"[!-~]+", re.ASCII)
_URL = re.compile(r"[A-Za-z0-9:/._~%!$&'()*+,;=@?#\[\]-]+", re.ASCII)
_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)
_JSON_TYPE = re.compile(r'application/json\s*(;\s*[\w!#$&^.+-]+=([\w!#$&^.+-]+|"[^"\\]*")\s*)*;?', re.ASCII | re.I)
_RECEIPT_TIME, _QUIET_TIME = 2.0, 60.0


class Shown(Protocol):
    """A capability as a question shows it. prove makes the proof for a question; nonce is set to the last one that the
    PDP gave. A ValueError of prove refuses the question."""

    nonce: str | None

    @property
    def token(self) -> str:
        ...

    def prove(self, question: Mapping[str, Any]) -> str:
        ...


@dataclass(frozen=True)
class Reply:
    """An answer that came as it should, and is still to be understood."""

    status: int
    top: dict[str, Any]
    decision_id: str | None
    retry_after: float | None
    secrets: Secrets


@dataclass(frozen=True)
class LinkAnswer:
    """The answer to a request of a Link."""

    status: int
    json: dict[str, Any]
    retry_after: float
    secrets: Secrets  # to be taken out of each text of it that is shown


@dataclass(frozen=True, repr=False)
class _Asking:
    """One request to the PDP."""

    op: str
    url: str
    body: bytes | None
    circuit: Circuit | None  # None: no breaker
    spends: bool = False  # a use of an approval or a capability, or something else that may not happen twice
    method: str = "POST"
    headers: tuple[tuple[str, str], ...] = ()
    secrets: tuple[str, ...] = ()
    statuses: tuple[int, ...] = (200,)
    hold: float = 0.0  # seconds that the PDP was asked to hold its answer back
    within: float | None = None  # seconds, where that is less than the client's timeout


@dataclass
class _Receipts:
    """What is known of a PDP's place for receipts."""

    sent: bool
    taken: bool = False  # it took one, or found fault with one
    quiet_until: float = 0.0


class Link:
    """A client as approvals.py and capability.py see it."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.base: str = core.base  # begins the URLs of the service's own API; no slash at its end
        self.pdp: str = core.pdp  # names the PDP and the tenant
        self.requests: str = core.pdp + "/access/v1/requests"

    def send(
        self,
        op: str,
        url: str,
        body: Mapping[str, Any] | None = None,
        *,
        method: str = "POST",
        headers: Sequence[tuple[str, str]] = (),
        secrets: Sequence[str] = (),
        statuses: Sequence[int] = (200,),
        once: bool = False,
        hold: float = 0.0,
        within: float | None = None,
    ) -> Flow[LinkAnswer]:
        """Sends JSON at the PDP's own origin, without a breaker. once: it is sent again only where no connection was
        made. hold: seconds that the PDP is asked to hold its answer back. within: seconds for all of it, at most."""
        near(self._core.origin, url)
        if hold >= 1:
            url += f"{'&' if '?' in url else '?'}wait={int(hold)}s"
        asking = _Asking(
            op,
            url,
            encode(body) if body is not None else None,
            None,
            once,
            method,
            tuple(headers),
            tuple(secrets),
            tuple(statuses),
            hold,
            within,
        )
        reply, _ = yield from self._core.ask(asking, lambda reply: (reply, None))
        return LinkAnswer(reply.status, reply.top, reply.retry_after or 0.0, reply.secrets)

    def decided(self, approval: str, timeout: float) -> Flow[str]:
        """Waits until people have decided about the approval request of that id, and returns its status."""
        return (yield from approvals.decided(self, approval, timeout))


class Core:
    """One PDP and one tenant, with all that a client knows of them."""

    def __init__(
        self,
        url: str,
        credential: object,
        tenant: str | None,
        handlers: Mapping[str, Callable[..., Any]] | None,
        timeout: float,
        retries: int,
        breaker: Breaker,
        plain_http: bool,
        receipts: bool,
        on_undecided: Callable[[AuthorizationError], Any] | None,
        draft: Draft,
    ) -> None:
        parts = _base(url)
        if not plain_http and parts.scheme == "http" and not _local(parts.hostname or ""):
            raise ValueError(
                "plain http to another machine: anybody on the way could write the answer; use https, or plain_http"
            )
        if not callable(credential) and not (credential is None or _is_token(credential)):
            raise ValueError("the credential is empty, or has characters that no header can carry")
        numbers = (timeout, retries, breaker.failures, breaker.cool_down)
        if not all(isinstance(n, (int, float)) and 0 <= n < 1e9 for n in numbers) or timeout <= 0:
            raise ValueError("a number among the options is too small, or too large")
        self.handlers = dict(handlers or {})
        if not all(isinstance(name, str) and name and callable(h) for name, h in self.handlers.items()):
            raise ValueError("the handlers are functions by type of obligation")
        if draft not in get_args(Draft):
            raise ValueError("the obligations are those of october or of july")
        self.draft = draft
        self.base: str = url.removesuffix("/")
        self.origin = origin_of(parts)
        self._credential = credential
        self._of_tenant = callable(credential) and _takes_tenant(credential)
        self._timeout = timeout
        self._retries = int(retries)
        self._circuit, self._receipt_circuit = Circuit(breaker), Circuit(breaker)
        self._receipts = _Receipts(receipts)
        self._on_undecided = on_undecided
        self._chosen = False
        self._set_tenant("default" if tenant is None else tenant)

    def _set_tenant(self, tenant: object) -> None:
        if not (isinstance(tenant, str) and _TENANT.fullmatch(tenant)):
            raise ValueError("not a legal name of a tenant")
        tenant = str.__str__(tenant)  # in a text, an enum has another name than that
        self.tenant = tenant
        self.pdp: str = self.base if tenant == "default" else f"{self.base}/tenants/{tenant}"
        self.access = self.pdp + "/access/v1/"
        self.link = Link(self)

    def for_tenant(self, tenant: object) -> Core:
        """Returns the core for another tenant, which shares all but the paths."""
        core = copy.copy(self)
        core._set_tenant(tenant)
        core._chosen = True  # requests may name any tenant: one that is refused closes the way to no other
        return core

    # Asking.

    def ask(
        self, a: _Asking, understand: Callable[[Reply], tuple[T, AuthorizationError | None]]
    ) -> Flow[tuple[T, str]]:
        """Sends a request until there is an answer, or none can be had. understand returns a meaning and its fault. The
        X-Request-ID is returned as well, and stands in an error."""
        request_id = str(uuid.uuid4())
        turn = 0
        outcome: Outcome = "undecided"
        if a.circuit:
            try:
                turn = a.circuit.enter()
            except AuthorizationError as error:
                raise self._placed(error, a, request_id)
        try:
            deadline = time.monotonic() + min(self._timeout + a.hold, 1e9 if a.within is None else a.within)
            n = 0
            while True:
                try:
                    understood, fault = yield from self._once(a, request_id, deadline, understand)
                    if fault is not None:
                        self._placed(fault, a, request_id)
                    outcome = self._outcome_of(a, fault)
                    return understood, request_id
                except AuthorizationError as error:
                    pause = self._pause(a, error, n, deadline)
                    if pause is None:
                        outcome = self._outcome_of(a, error)
                        raise self._placed(error, a, request_id)
                    yield Sleep(pause)
                    n += 1
        finally:
            if a.circuit:
                a.circuit.leave(turn, outcome)

    def _outcome_of(self, a: _Asking, error: AuthorizationError | None) -> Outcome:
        refused: Outcome = "undecided" if self._chosen else "failed"
        if a.circuit is not self._circuit:
            refused = "answered"  # 404 is of one decision
        return outcome_of(error, refused=refused, chosen=self._chosen)

    def _placed(self, error: AuthorizationError, a: _Asking, request_id: str) -> AuthorizationError:
        """An error with its place. One that came after something was sent, of a question that spends, says so."""
        error.op, error.place, error.request_id = a.op, self.pdp, request_id
        error.spent = a.spends and a.op == "evaluate" and error.lost
        return error

    def _pause(self, a: _Asking, error: AuthorizationError, n: int, deadline: float) -> float | None:
        """The pause before the next attempt; None is that there is none."""
        if n >= self._retries or error._again == "never" or (a.spends and error._again != "unsent"):
            return None
        pause = max((0.5 + random.random()) * 0.05 * 2 ** min(n, 10), error.retry_after or 0.0)
        return pause if time.monotonic() + pause < deadline else None  # it would turn a clear error into a timeout

    def _once(
        self,
        a: _Asking,
        request_id: str,
        deadline: float,
        understand: Callable[[Reply], tuple[T, AuthorizationError | None]],
    ) -> Flow[tuple[T, AuthorizationError | None]]:
        token = self._credential
        if callable(token):
            try:
                token = yield Call(token, (self.tenant,) if self._of_tenant else ())
            except Exception:
                token = None  # its text may hold the credential
            if not _is_token(token):
                raise not_asked("the credential cannot be had, is empty, or has characters that no header can carry")
        headers = [("Accept", "application/json"), ("Accept-Encoding", "identity"), ("X-Request-ID", request_id)]
        headers.append(("User-Agent", "policy-service-client-python/0.1.0"))
        if a.body is not None:
            headers.append(("Content-Type", "application/json"))
        if token is not None:
            headers.append(("Authorization", f"Bearer {token}"))
        secrets = Secrets(sorted((str(token or ""), *a.secrets), key=len, reverse=True))  # one may be a part of another
        fault: AuthorizationError | None = None
        sent = False
        try:
            raw = yield Send(a.method, a.url, (*headers, *a.headers), a.body, deadline, fresh=a.spends)
            sent = True
            understood, fault = understand(_judge(raw, a, request_id, secrets))
            return understood, fault
        except AuthorizationError as error:
            fault = error
            raise
        finally:
            if fault is not None:
                fault.detail, fault._sent = secrets.printable(fault.detail), fault._sent or sent

    def tell_undecided(self, error: AuthorizationError | None) -> Flow[None]:
        """Calls on_undecided, for a question of which no decision came."""
        if self._on_undecided and isinstance(error, Undecided) and error.kind not in ("cancelled", "skipped"):
            try:
                yield Call(self._on_undecided, (error,))
            except Exception:
                pass

    # Questions.

    def question(
        self, q: dict[str, Any], *, approval: Any = None, capability: Shown | None = None
    ) -> Flow[tuple[Decided, dict[str, Any]]]:
        """Asks one question, and returns it as it was asked last. It raises nothing but interrupts of the program."""
        context = q.get("context", {})
        spends = approval is not None or capability is not None or any(n in context for n in _PRESENTS)
        within = time.monotonic() + self._timeout  # of both attempts
        decided, shown = Decided(), q
        for attempt in (1, 2):
            try:
                if capability is not None:
                    shown = _show(q, capability)
                sent = shown
                if approval is not None:
                    sent = {**shown, "context": {"approval": approval, **shown.get("context", {})}}
                a = _Asking(
                    "evaluate",
                    self.access + "evaluation",
                    encode(sent),
                    self._circuit,
                    spends,
                    secrets=shown_in(shown),
                    within=max(within - time.monotonic(), 0.001),
                )
                decided, request_id = yield from self.ask(a, lambda reply: _understand(reply, adopts(q)))
                decided.request_id = request_id
            except AuthorizationError as error:
                decided = Decided(error=error, request_id=error.request_id or "")
            if capability is None or attempt == 2 or not _hear(decided, capability):
                break
        return decided, shown

    def evaluate(
        self, question: object, *, capability: Shown | None = None, declare: bool = False
    ) -> Flow[tuple[Decided, dict[str, Any]]]:
        """Asks one question of a program. declare: with the types of the handlers."""
        try:
            q = self.checked(question, declare)
        except AuthorizationError as error:
            decided, q = Decided(error=error), {}
        else:
            decided, q = yield from self.question(q, capability=capability)
        yield from self.tell_undecided(decided.error)
        return decided, q

    def checked(self, question: object, declare: bool) -> dict[str, Any]:
        """A question as it is sent: a copy, which its owner cannot change."""
        return declared(check(question), self.draft if declare else None, self.handlers)

    def decide_all(self, questions: object, semantic: str) -> Flow[list[Decided]]:
        """Asks several questions, with the types of the handlers. There is one decision for each."""
        given = list(questions) if isinstance(questions, (list, tuple)) else []  # its owner may change it meanwhile
        if not given:
            raise not_asked("a batch is a list of questions, and has one at least; none is no yes")
        spends = [False for _ in given]
        try:
            asked = [self.checked(q, True) for q in given]
            spends = [any(n in q["context"] for n in _PRESENTS) for q in asked]
            body, secrets = encode(batch.body_of(asked, semantic)), [s for q in asked for s in shown_in(q)]
            a = _Asking("batch", self.access + "evaluations", body, self._circuit, any(spends), secrets=tuple(secrets))

            def understand(reply: Reply) -> tuple[list[Decided], None]:
                return batch.read_batch(reply.top, reply, len(asked), semantic, self.draft == "october"), None

            all_decided, request_id = yield from self.ask(a, understand)
            for decided in all_decided:
                decided.request_id = request_id
        except AuthorizationError as error:
            all_decided = [Decided(error=copy.copy(error), request_id=error.request_id or "") for _ in given]
        for decided, spent in zip(all_decided, spends, strict=True):
            if decided.error:
                decided.error.op, decided.error.spent = "batch", spent and decided.error.lost
            yield from self.tell_undecided(decided.error)
        return all_decided

    def searched(self, query: object, sought: str) -> dict[str, Any]:
        """The body of a search. The types of the handlers stand in it."""
        enforces = self.handlers or self.draft == "july"
        return declared(check(query, sought), self.draft if enforces else None, self.handlers)

    def find(self, sought: str, body: dict[str, Any], understand: Callable[[Reply], T]) -> Flow[T]:
        """Asks for one page of a search."""
        a = _Asking("search", self.access + "search/" + sought, encode(body), self._circuit, secrets=shown_in(body))
        found, _ = yield from self.ask(a, lambda reply: (understand(reply), None))
        return found

    # Obligations.

    def settle(self, decided: Sequence[Decided], *, changes: bool, together: bool = False) -> Flow[list[Enforcement]]:
        """Discharges the obligations of decisions, and reports where nothing is promised. It goes on to its end also
        where the caller gives up, for a notification must go out. together: they are one permit, or none."""
        given_up: list[bool] = []
        try:
            settled: list[Enforcement] = yield Apart(self._settle(decided, changes, together, given_up))
            return settled
        except BaseException:
            given_up.append(True)
            raise

    def _settle(
        self, decided: Sequence[Decided], changes: bool, together: bool, given_up: list[bool]
    ) -> Flow[list[Enforcement]]:
        stays = together and any(d.denied for d in decided)
        settled: list[Enforcement] = []
        interrupt: BaseException | None = None
        for d in decided:
            if stays and not d.denied:
                settled.append(obligations.forgo(d))
                continue
            enforcement, interrupted = yield from obligations.discharge(d, self.handlers, changes=changes)
            enforcement.ended = d.allow and d.ended()
            settled.append(enforcement)
            interrupt = interrupt or interrupted
        if given_up or interrupt:
            obligations.give_up(settled)
        denied = any(e.error for e in settled)  # then no result goes out, and a promise about it is kept
        if denied or not any(e.promised for e in settled):
            yield from self.report(settled)
        if interrupt:
            raise interrupt
        return settled

    def finish(self, settled: Sequence[Enforcement], result: Any) -> Flow[Any]:
        """The result of an act, changed as handlers promised."""
        for error in (e.error for e in settled):
            if error:  # a promise was broken before
                raise error
        if not any(e.promised for e in settled):
            return result
        try:
            result = yield from obligations.change(settled, result)
        except GeneratorExit:
            raise
        except BaseException:
            yield Apart(self.report(settled))
            raise
        yield Apart(self.report(settled))
        return result

    def abandon(self, settled: Sequence[Enforcement]) -> Flow[None]:
        """Reports that there was no result for the promises of handlers."""
        if any(e.promised for e in settled):
            obligations.give_up(settled)
            yield Apart(self.report(settled))

    def report(self, settled: Sequence[Enforcement]) -> Flow[None]:
        """Sends the receipts. It takes two seconds at most, and changes nothing."""
        due = [e for e in settled if not e.reported and e.decided.decision_id and e.receipts()]
        if not self._receipts.sent or not due or time.monotonic() < self._receipts.quiet_until:
            return
        deadline = time.monotonic() + _RECEIPT_TIME
        for e in due:
            e.reported = True
        yield Together(tuple(self._receipt(e, deadline) for e in due))

    def _receipt(self, e: Enforcement, deadline: float) -> Flow[None]:
        name, within = e.decided.decision_id or "", deadline - time.monotonic()
        if name in (".", "..") or within <= 0:
            return
        url = f"{self.base}/v1/decisions/{quote(name, safe='')}/obligations"
        try:
            body = encode({"obligations": e.receipts()})
            a = _Asking("report", url, body, self._receipt_circuit, True, statuses=(204,), within=within)
            yield from self.ask(a, lambda reply: (None, None))
            self._receipts.taken = True
        except AuthorizationError as error:
            if error.pdp_status in (400, 409):
                self._receipts.taken = True
            elif error.pdp_status in (405, 501) or error.pdp_status == 404 and not self._receipts.taken:
                self._receipts.quiet_until = time.monotonic() + _QUIET_TIME


def enforce(
    core: Core, question: object, act: Callable[[Permit], Any], wait: object, capability: Shown | None
) -> Flow[Any]:
    """Asks, acts with a permit, and changes the act's result as handlers promised."""
    _callable(act)
    e = yield from approvals.permitted(core, question, wait, capability, changes=True)
    return (yield from _act(core, [e], act, permit(e.decided.facts())))


def enforce_all(core: Core, questions: object, act: Callable[[list[Permit]], Any]) -> Flow[Any]:
    """Asks all, and acts where each is a yes."""
    _callable(act)
    decided = yield from core.decide_all(questions, "deny_on_first_deny")
    settled = yield from core.settle(decided, changes=True, together=True)
    errors = [e.error for e in settled if e.error]
    if errors:
        raise next((error for error in errors if error.kind != "skipped"), errors[0])
    return (yield from _act(core, settled, act, [permit(e.decided.facts()) for e in settled]))


def _takes_tenant(credential: Callable[..., Any]) -> bool:
    """Reports whether a credential function is given the tenant's name. One that could mean either is refused: without
    the name, it would give the credential of another tenant."""
    try:
        parameters = list(inspect.signature(credential).parameters.values())
    except (ValueError, TypeError):  # such as those that are written in C
        return False
    kind = inspect.Parameter
    by_place = (kind.POSITIONAL_ONLY, kind.POSITIONAL_OR_KEYWORD, kind.VAR_POSITIONAL)
    first = next((p for p in parameters if p.kind in by_place), None)
    required = first is None or first.kind == kind.VAR_POSITIONAL or first.default is kind.empty
    if not (required or first and first.name == "tenant") or any(
        p.name == "tenant" for p in parameters if p is not first
    ):
        raise TypeError(
            "the credential function may take the tenant's name, or not; write `def credential(tenant):`, or "
            "`lambda: …` around a function that does not take it"
        )
    return first is not None


def _callable(act: object) -> None:
    if not callable(act):
        raise TypeError("the act is no function; a call of it here would be done before the question")
    try:
        signature = inspect.signature(act)
    except (ValueError, TypeError):  # such as that of str
        return
    try:
        signature.bind(None)
    except TypeError:
        raise TypeError(
            "the act takes the permit, as `lambda permit: …` does; without it a use would be lost"
        ) from None


def _act(core: Core, settled: Sequence[Enforcement], act: Callable[[Any], Any], permits: object) -> Flow[Any]:
    try:
        result = yield Call(act, (permits,))
    except GeneratorExit:
        raise
    except BaseException:
        yield from core.abandon(settled)
        raise
    return (yield from core.finish(settled, result))


def evaluate(core: Core, question: object, capability: Shown | None) -> Flow[Answer]:
    """Asks one question."""
    decided, _ = yield from core.evaluate(question, capability=capability)
    return answer(decided, Enforcement(decided).error)


def evaluate_batch(core: Core, questions: object, semantic: str) -> Flow[Answers]:
    """Asks several questions, and discharges each for itself."""
    decided = yield from core.decide_all(questions, semantic)
    settled = yield from core.settle(decided, changes=False)
    return Answers(answer(e.decided, e.error) for e in settled)


def authorize(core: Core, question: object, wait: object, capability: Shown | None) -> Flow[Permit]:
    """Asks, for a permit without an act."""
    e = yield from approvals.permitted(core, question, wait, capability, changes=False)
    return permit(e.decided.facts())


def _understand(reply: Reply, october: bool) -> tuple[Decided, AuthorizationError | None]:
    decided = read(reply.top, october)
    decided.decision_id, decided.secrets = reply.decision_id, reply.secrets
    return decided, decided.error


def _judge(raw: Raw, a: _Asking, request_id: str, secrets: Secrets) -> Reply:
    """Judges an answer by everything but its meaning."""
    if raw.status not in a.statuses:
        raise _refusal(raw, secrets)
    echoes = raw.header("x-request-id")
    if any(echo != request_id for echo in echoes) or raw.reused and not echoes:
        raise odd("it answers another X-Request-ID")
    decision_id = next(iter(raw.header("x-decision-id")), None)
    retry_after = _retry_after(raw)
    if raw.status == 204:
        return Reply(raw.status, {}, decision_id, retry_after, secrets)
    types = raw.header("content-type")
    if len(types) != 1 or not _JSON_TYPE.fullmatch(types[0]):
        raise odd("it has not one Content-Type, which is application/json")
    if raw.header("content-encoding"):
        raise odd("it has a Content-Encoding, which was not asked for")
    if raw.flaw:
        raise raw.flaw
    if len(raw.body) > MAX_BODY:
        raise odd("its body is too large")
    try:
        top = _json.read_object(raw.body)
    except ValueError:
        raise odd("the body is not one JSON object without ambiguities") from None
    return Reply(raw.status, top, secrets.printable(decision_id) if decision_id else None, retry_after, secrets)


def _refusal(raw: Raw, secrets: Secrets) -> AuthorizationError:
    """The error of any status but those of an answer."""
    retry_after = _retry_after(raw)
    detail: object = None
    try:
        detail = _json.read_object(raw.body[:8192]).get("detail")
    except ValueError:
        pass
    kind: Kind = "unavailable" if raw.status == 429 or raw.status >= 500 else "refused" if raw.status >= 400 else "odd"
    return failure(
        kind,
        detail if isinstance(detail, str) else "",
        pdp_status=raw.status,
        retry_after=retry_after,
        again="asked_to_wait" if raw.status in (429, 503) and retry_after is not None else "never",
    )


def _retry_after(raw: Raw) -> float | None:
    said = next(iter(raw.header("retry-after")), "")
    if re.fullmatch("[0-9]{1,10}", said):
        return min(float(said), 86400.0)
    try:
        return min(max(parsedate_to_datetime(said).timestamp() - time.time(), 0.0), 86400.0)
    except (TypeError, ValueError, OverflowError):
        return None


# Questions.

# Members of a context by which a question may use something up.
_PRESENTS = ("approval", "approval_id", "capability")

_ENTITY = {"type", "id", "properties"}
_MEMBERS = {"subject": _ENTITY, "action": {"name", "properties"}, "resource": _ENTITY}


def check(question: object, sought: str = "") -> dict[str, Any]:
    """A copy of a question that has the members of one and no other: a program that hands a request body on must not
    send options of another's. Of the part that a search looks for nothing is sent but its type."""
    try:
        q = _json.copy(question)
    except (ValueError, RecursionError) as error:
        raise not_asked(f"the question is no JSON: {error}") from None
    if isinstance(q, dict) and sought:
        part = q.pop(sought, None)
        if sought != "action":
            q[sought] = {"type": part.get("type"), "id": ""} if isinstance(part, dict) else part
    if not isinstance(q, dict) or set(q) - {"context"} != set(_MEMBERS) - ({"action"} & {sought}):
        raise not_asked("a question has subject, action and resource, context if need be, and nothing else")
    if not isinstance(q.get("context", {}), dict):
        raise not_asked("the context of the question is no object")
    for name, members in _MEMBERS.items():
        part, names = q.get(name), members - {"properties"}
        if part is None and name == sought == "action":
            continue
        if not isinstance(part, dict) or set(part) - {"properties"} != names:
            raise not_asked(f"the {name} has {' and '.join(sorted(names))}, properties if need be, and nothing else")
        if not all(isinstance(part[n], str) for n in names) or not isinstance(part.get("properties", {}), dict):
            raise not_asked(f"a member of the {name} is of another type than it has to be")
    if sought in ("subject", "resource"):
        del q[sought]["id"]
    return q


def encode(value: Any) -> bytes:
    """A value as it is sent."""
    try:
        return _json.write(value)
    except (ValueError, TypeError, RecursionError):
        raise not_asked("the question cannot be encoded") from None


# Capabilities.

_MOST_NONCE = 2048  # bytes; no proof could be made with a longer one, of no call that follows


def _show(q: dict[str, Any], capability: Shown) -> dict[str, Any]:
    """A question that shows a capability with a proof. The channel of one that is there stays."""
    context = dict(q.get("context", {}))
    if not isinstance(context.get("arguments", {}), dict):
        raise not_asked("the arguments are no object, and no proof can be about them")
    try:
        token, proof = capability.token, capability.prove(q)
    except (ValueError, TypeError) as error:
        raise not_asked(f"the call cannot be proved: {error}") from None
    was = context.get("capability")
    context["capability"] = {"token": token, "proof": proof}
    if isinstance(was, dict) and "channel" in was:
        context["capability"]["channel"] = was["channel"]
    return {**q, "context": context}


def _hear(decided: Decided, capability: Shown) -> bool:
    """Takes the nonce of an answer, and says whether the answer is a refusal for want of it."""
    said = (decided.context or {}).get("capability")
    nonce = said.get("nonce") if isinstance(said, dict) else None
    if not isinstance(said, dict) or not isinstance(nonce, str) or not 0 < len(nonce.encode()) <= _MOST_NONCE:
        return False
    capability.nonce = nonce
    return not decided.allow and said.get("reason") == "nonce_required"


# URLs.


def _base(url: object) -> SplitResult:
    """The parts of a base URL. No error repeats the text: it may hold a password."""
    parts = _parts(url)
    if parts is None or parts.scheme not in ("http", "https") or "[" in parts.path or "]" in parts.path:
        raise ValueError("the base URL is not an http or https URL")
    if "@" in parts.netloc:
        raise ValueError("the base URL holds credentials; use credential")
    if "?" in str(url) or "#" in str(url):
        raise ValueError("the base URL has a query or a fragment; leave them out")
    return parts


def _parts(url: object) -> SplitResult | None:
    if not isinstance(url, str) or not _URL.fullmatch(url):
        return None
    try:
        parts = urlsplit(url)
        return parts if parts.hostname and (parts.port is None or parts.port > 0) else None
    except ValueError:
        return None


def origin_of(parts: SplitResult) -> str:
    """Scheme, host and port, in the one form that can be compared."""
    return f"{parts.scheme}://{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"


def near(origin: str, url: object) -> None:
    """Refuses URLs elsewhere, which an answer or a stored task may hold."""
    parts = _parts(url)
    if parts is None or "@" in parts.netloc or "#" in str(url):
        raise not_asked("a URL of the answer is none, or has a fragment or credentials")
    if origin_of(parts) != origin:
        raise failure(
            "not_asked",
            "a URL of the answer is at another origin than the base URL",
            remedy="give the client the PDP's public_url as its URL",  # localhost is not 127.0.0.1
        )


def _local(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_token(value: object) -> bool:
    return isinstance(value, str) and bool(_TOKEN.fullmatch(value))
