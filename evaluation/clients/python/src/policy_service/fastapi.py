"""Routes of FastAPI that run only if the PDP permits."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable

from fastapi import Depends, Request

from . import AsyncClient, Client, Permit, Question, Wait
from .starlette import asked_of, guard

__all__ = ["protect"]


def protect(
    client: Client | AsyncClient,
    question: Callable[..., Question | Awaitable[Question]],
    *,
    wait: float | Wait | None = None,
) -> Callable[[Question], Awaitable[Permit]]:
    """A dependency, for Depends: the route runs if the PDP permits, and gets the permit. A no is 403 or 503.

    The question is a dependency, too, also an async one: a function of the request, of the path's parameters, of the
    user of your login. With wait, in seconds, people are asked where they can approve; a later request that asks the
    same finds what they said.
    """
    permit = guard(client, question, wait)

    async def of_request(request: Request) -> Question:
        return await asked_of(question, request)

    # A parameter without a type would be one of the URL's query.
    parameters = inspect.signature(question).parameters.values()
    alone = [(p.annotation, p.default) for p in parameters] == [(inspect.Parameter.empty, inspect.Parameter.empty)]

    async def dependency(asked: Question = Depends(of_request if alone else question)) -> Permit:
        return await permit(await asked if inspect.isawaitable(asked) else asked)

    return dependency
