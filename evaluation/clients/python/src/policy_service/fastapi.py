"""Routes of FastAPI that run only if the PDP permits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request

from . import AsyncClient, Client, Permit, Wait
from .starlette import QuestionOf, guard

__all__ = ["protect"]


def protect(
    client: Client | AsyncClient, question: QuestionOf, *, wait: float | Wait | None = None
) -> Callable[[Request], Awaitable[Permit]]:
    """A dependency, for Depends: the route runs if the PDP permits, and gets the permit. A no is 403 or 503.

    The question is made of the request, also by an async function. With wait, in seconds, people are asked where they
    can approve; a later request that asks the same finds what they said.
    """
    return guard(client, question, wait)
