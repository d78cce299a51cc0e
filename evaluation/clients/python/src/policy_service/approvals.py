"""Waiting for people who have to approve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable

from .types import Task


@dataclass(frozen=True)
class Wait:
    """How long to wait for people, in seconds, and how.

    justification is shown to them. join leaves it to the PDP to find equal requests. keep gets the task once it is
    filed; resume goes on with one.
    """

    timeout: float
    justification: str | None = None
    join: bool = False
    keep: Callable[[Task], Any] | None = None
    resume: Task | None = None
