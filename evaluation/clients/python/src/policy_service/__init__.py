"""Asks an AuthZEN policy decision point (PDP), and takes nothing but its yes for yes."""

from __future__ import annotations

from ._core import Breaker
from .aio import AsyncClient
from .answer import Answer, Permit
from .approvals import Task, Wait
from .client import Client
from .errors import AuthorizationError, Denied, Undecided
from .types import Action, Entity, Obligation, Question

__version__ = "0.1.0"

__all__ = [
    "Action",
    "Answer",
    "AsyncClient",
    "AuthorizationError",
    "Breaker",
    "Client",
    "Denied",
    "Entity",
    "Obligation",
    "Permit",
    "Question",
    "Task",
    "Undecided",
    "Wait",
]
