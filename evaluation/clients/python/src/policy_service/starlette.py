"""Endpoints of Starlette that run only if the PDP permits."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

import anyio
import anyio.to_thread
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request

from . import AsyncClient, AuthorizationError, Client, Permit, Question, Wait
from .errors import not_asked

__all__ = ["RouteQuestion", "protect"]

log = logging.getLogger("policy_service")


class RouteQuestion(Question, total=False):
    """The question of a route. With a tenant it is asked about that one, in the place of the client's."""

    tenant: str


ClientOf = Client | AsyncClient | Callable[[Request], Client | AsyncClient | Awaitable[Client | AsyncClient]]
QuestionOf = Callable[[Request], Question | Awaitable[Question]]

_WAITING = "waiting for approval; try again later"


def guard(
    client: ClientOf, question: Callable[..., object], wait: float | Wait | None
) -> Callable[[Any, Question], Awaitable[Permit]]:
    """Returns a function that asks the question of a request, and raises the HTTPException of a no."""
    if not isinstance(client, Client | AsyncClient) and not callable(client):
        raise TypeError("protect needs a Client, an AsyncClient, or a function of the request that returns one")
    if not callable(question):
        raise TypeError("the question is a function of the request")
    if wait is not None:
        # Equal approval requests are one, so that the next try of a person finds the approval of the first.
        wait = dataclasses.replace(wait, join=True) if isinstance(wait, Wait) else Wait(timeout=wait, join=True)
        if wait.resume is not None:
            raise ValueError("a task is of one request; leave resume out")
    threads: list[anyio.CapacityLimiter] = []

    async def permit(request: Any, asked: Question) -> Permit:
        chosen = client if isinstance(client, Client | AsyncClient) else client(request)
        try:
            asking, asked = _in_tenant(await chosen if inspect.isawaitable(chosen) else chosen, asked)
            if isinstance(asking, AsyncClient):
                return await asking.authorize(asked, wait=wait)
            if not threads:  # of their own: calls that wait for people leave those of other endpoints alone
                threads.append(anyio.CapacityLimiter(40))
            ask = functools.partial(asking.authorize, asked, wait=wait)
            return await anyio.to_thread.run_sync(ask, limiter=threads[0])
        except AuthorizationError as error:
            refuse(error)

    return permit


def _in_tenant(client: object, asked: Any) -> tuple[Client | AsyncClient, Question]:
    """Returns the client for the tenant of a question, and the question without it. No tenant stands for another."""
    if not isinstance(client, Client | AsyncClient):
        raise not_asked("no client was chosen for the request")
    question: Any = asked
    if not isinstance(asked, dict) or "tenant" not in asked:
        return client, question
    question = {name: member for name, member in asked.items() if name != "tenant"}
    try:
        return client.for_tenant(asked["tenant"]), question
    except ValueError as error:
        raise not_asked(f"the tenant of the question: {error}") from None


async def asked_of(question: QuestionOf, request: Request) -> Question:
    """The question about a request."""
    said = question(request)
    asked: Question = await said if inspect.isawaitable(said) else said
    return asked


def refuse(error: AuthorizationError) -> NoReturn:
    """The no as HTTP has it. The log has the error; the caller gets the text that the policy has for people."""
    log.log(logging.INFO if error.status == 403 else logging.WARNING, "%s", error)
    detail = _WAITING if error.task is not None else error.reason_user or "access denied"
    headers = None if error.retry_after is None else {"Retry-After": str(math.ceil(error.retry_after))}
    raise HTTPException(status_code=error.status, detail=detail, headers=headers) from error


def protect(
    client: ClientOf, question: QuestionOf, *, wait: float | Wait | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Awaitable[Any]]]:
    """A decorator: the endpoint runs if the PDP permits, with the permit as request.state.permit. A no is 403 or 503.

    The question is made of the request, also by an async function, and so may be the client, as in
    `lambda request: client.for_tenant(…)`. With wait, in seconds, people are asked where they can approve; a later
    request that asks the same finds what they said.
    """
    permit = guard(client, question, wait)

    def decorate(endpoint: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
        @functools.wraps(endpoint)
        async def protected(*args: Any, **kwargs: Any) -> Any:
            request = next((a for a in (*args, *kwargs.values()) if isinstance(a, Request)), None)
            if request is None:
                raise TypeError("a protected endpoint takes the request")
            request.state.permit = await permit(request, await asked_of(question, request))
            if inspect.iscoroutinefunction(endpoint):
                return await endpoint(*args, **kwargs)
            return await run_in_threadpool(endpoint, *args, **kwargs)

        return protected

    return decorate
