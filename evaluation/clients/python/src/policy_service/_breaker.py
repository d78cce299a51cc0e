"""The circuit breaker."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Literal

from .errors import AuthorizationError, failure

Outcome = Literal["failed", "answered", "undecided"]


@dataclass(frozen=True)
class Breaker:
    """A client asks a PDP no more for cool_down seconds after so many failures in a row. 0 failures: never."""

    failures: int = 5
    cool_down: float = 10.0


class Circuit:
    """A breaker at work. It is closed, open, or half open: then one call is let through, and decides."""

    def __init__(self, breaker: Breaker) -> None:
        self._breaker = breaker
        self._lock = threading.RLock()
        self._failures = 0
        self._open = False
        self._since = 0.0
        self._probing = False
        self._turn = 0  # counts openings and closings: a call of an earlier turn has no say in this one

    def enter(self) -> int:
        """Asks for leave to call; leave ends the call, once, with the number returned here."""
        with self._lock:
            if self._open:
                if self._probing or time.monotonic() - self._since < self._breaker.cool_down:
                    raise failure("open", "the PDP did not answer lately; nothing was sent")
                self._probing = True
            return self._turn

    def leave(self, turn: int, outcome: Outcome) -> None:
        """Notes the outcome of a call."""
        with self._lock:
            if turn != self._turn or self._breaker.failures == 0:
                return
            if outcome == "undecided":
                self._probing = False  # the next call may try
            elif outcome == "answered":
                self._turn += self._open
                self._open, self._probing, self._failures = False, False, 0
            else:
                self._failures += 1
                if self._open or self._failures >= self._breaker.failures:
                    self._open, self._probing, self._failures, self._since = True, False, 0, time.monotonic()
                    self._turn += 1


def outcome_of(error: AuthorizationError | None, *, refused: Outcome, chosen: bool) -> Outcome:
    """Judges the PDP by the end of a call. refused is the verdict where the PDP refuses the caller for any question. If
    requests chose the tenant, 429 and an answer that is none decide nothing: they may be about the tenant."""
    if error is None or error.kind in ("bad_item", "obligated"):
        return "answered"
    if error.kind == "refused":
        return refused if error.pdp_status in (401, 403, 404) else "answered"
    if chosen and (error.kind == "odd" or error.pdp_status == 429):
        return "undecided"
    return "undecided" if error.kind in ("cancelled", "not_asked") else "failed"
