"""The errors of the client. Nothing but a return value of authorize or enforce, and Answer.permitted, is a yes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Mapping

if TYPE_CHECKING:
    from .approvals import Task

Kind = Literal[
    "denied",
    "obligated",
    "not_approved",
    "not_asked",
    "open",
    "unreachable",
    "timed_out",
    "cancelled",
    "refused",
    "unavailable",
    "odd",
    "bad_item",
    "skipped",
]

# A failure after which a question may be sent again: see Core.ask.
Again = Literal["never", "unsent", "unanswered", "asked_to_wait"]

# The failure, and the remedy.
_WORDS: dict[str, tuple[str, str]] = {
    "denied": ("denied", "do not act; the policies decide"),
    "obligated": ("obligations not discharged", "give the client a handler for each type, and see why one failed"),
    "not_approved": ("not approved", "do not act; ask people again if it is still needed"),
    "not_asked": ("not asked", "correct the question, the credential or the options of the client"),
    "open": ("circuit breaker open", "try again after the cool-down, and see why the PDP did not answer"),
    "unreachable": ("unreachable", "see that the PDP runs and that its URL is right, then try again"),
    "timed_out": ("timed out", "try again, or give the client a longer timeout"),
    "cancelled": ("cancelled", "nothing; the call was given up"),
    "refused": ("refused", "correct the question, the URL or the credential, as the status says"),
    "unavailable": ("unavailable", "try again later"),
    "odd": ("not an answer", "see that the URL is the PDP's own, with no proxy that answers in its place"),
    "bad_item": ("item refused", "correct this question"),
    "skipped": ("not decided", "nothing; an earlier question was enough"),
}

_SPENT = (
    "the use of the approval or capability may be gone: do not repeat the call; "
    "ask people for a new approval, or for another capability"
)


class AuthorizationError(Exception):
    """No permit. Its text is one line: the failure, its place, and a remedy. It holds no credential. The kinds are:

    denied                             the PDP says no; with the reason approval_required, people can approve
    obligated                          obligations were not discharged
    not_approved                       there is no approval, or not in time, or it has ended
    not_asked, open                    nothing was sent: the question or the credential cannot be; the breaker is open
    unreachable, timed_out, cancelled  no connection, or it broke; no answer in time; the call was given up
    refused, unavailable               the PDP refuses the request (4xx); it cannot answer now (429, 5xx)
    odd                                no answer came back
    bad_item, skipped                  the PDP refused this question of a batch; it did not decide it
    """

    kind: Kind
    status: int  # for the answer to the own caller: 403 or 503

    def __init__(
        self,
        kind: Kind,
        detail: str = "",
        *,
        remedy: str = "",
        pdp_status: int | None = None,
        retry_after: float | None = None,
        again: Again = "never",
    ) -> None:
        super().__init__(kind)  # no more: a repr shows it, and the detail may still hold a credential
        self.kind = kind
        self.op = "evaluate"
        self.place = ""  # the URL of the PDP
        self.detail = detail
        self.pdp_status = pdp_status
        self.retry_after = retry_after
        self.reason: str | None = None
        self.reason_user: str | None = None
        self.decision_id: str | None = None
        self.request_id: str | None = None
        self.context: Mapping[str, Any] | None = None
        self.spent = False
        self.task: Task | None = None
        self._remedy = remedy
        self._again: Again = again
        self._sent = False  # something left for the PDP

    @property
    def remedy(self) -> str:
        """The thing to try."""
        if self.spent:
            return _SPENT
        return self._remedy or _WORDS[self.kind][1]

    @property
    def lost(self) -> bool:
        """Whether the PDP may have decided, without a word of it. 429 and 503 are its own; others may be a proxy's."""
        silent = self.kind == "unavailable" and self.pdp_status not in (429, 503)
        return self.kind == "odd" or self._sent and (silent or self.kind in ("unreachable", "timed_out"))

    def __str__(self) -> str:
        status = f" (status {self.pdp_status})" if self.pdp_status else ""
        detail = f": {self.detail}" if self.detail else ""
        place = f" at {self.place}" if self.place else ""
        return f"authzen {self.op}{place}: {_WORDS[self.kind][0]}{status}{detail}; {self.remedy}"


class Denied(AuthorizationError):
    """The PDP decided, or people did, and it is no: of kind denied, obligated or not_approved."""

    status = 403


class Undecided(AuthorizationError):
    """No decision came. It is a no all the same."""

    status = 503


def failure(kind: Kind, detail: str = "", **more: Any) -> AuthorizationError:
    """The error of a kind."""
    return (Denied if kind in ("denied", "obligated", "not_approved") else Undecided)(kind, detail, **more)


def not_asked(detail: str) -> AuthorizationError:
    """Nothing was sent."""
    return failure("not_asked", detail)


def odd(detail: str) -> AuthorizationError:
    """Something came back that is no answer."""
    return failure("odd", detail)


class Secrets(tuple[str, ...]):
    """Credentials that were sent. No error repeats them: servers and proxies like to quote."""

    def __repr__(self) -> str:
        return "…"

    def hidden(self, value: Any) -> Any:
        """A JSON value without them."""
        if isinstance(value, str):
            for secret in self:
                value = value.replace(secret, "…") if secret else value
            return value
        if isinstance(value, dict):
            return {self.hidden(name): self.hidden(member) for name, member in value.items()}
        return [self.hidden(item) for item in value] if isinstance(value, list) else value

    def printable(self, text: str) -> str:
        """A text from elsewhere, for one line of a log. It is cut last: a secret that is cut in two is not found."""
        text = str(self.hidden(text)).encode("utf-8", "replace").decode("utf-8")
        text = "".join(" " if c < " " or "\x7f" <= c < "\xa0" or c in "\u2028\u2029" else c for c in text)
        return text if len(text) <= 512 else text[:512] + "…"
