"""Routes of FastAPI that run only if the PDP permits."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Annotated, Any, cast, get_args, get_origin

from fastapi import __version__ as _fastapi
from fastapi import BackgroundTasks, Depends, Request, Response, params
from fastapi.dependencies.utils import get_typed_signature
from fastapi.security import SecurityScopes
from starlette.requests import HTTPConnection

from . import Permit, Question, Wait
from .starlette import ClientOf, RouteQuestion, asked_of, guard

__all__ = ["RouteQuestion", "protect"]


def protect(
    client: ClientOf, question: Callable[..., Question | Awaitable[Question]], *, wait: float | Wait | None = None
) -> Callable[[Question], Awaitable[Permit]]:
    """A dependency, for Depends: the route runs if the PDP permits, and gets the permit. A no is 403 or 503.

    The question is a dependency, too, also an async one: a function of the request, of the path's parameters, of the
    user of your login. A parameter of it that the path does not have is a TypeError where the route is made, unless it
    says where it comes from, as by Query(). The client may be a function of the request, as in
    `lambda request: client.for_tenant(…)`. With wait, in seconds, people are asked where they can approve; a later
    request that asks the same finds what they said.
    """
    permit = guard(client, question, wait)

    async def of_request(request: Request) -> Question:
        return await asked_of(question, request)

    # A parameter without a type would be one of the URL's query.
    parameters = inspect.signature(question).parameters.values()
    alone = [(p.annotation, p.default) for p in parameters] == [(inspect.Parameter.empty, inspect.Parameter.empty)]
    made = _Dependency(permit, of_request) if alone else _Dependency(permit, question)
    return cast(Callable[[Question], Awaitable[Permit]], made)


_version = re.match(r"(\d+)\.(\d+)", _fastapi)
_reads_annotated = _version is not None and tuple(map(int, _version.groups())) >= (0, 95)


class _Dependency:
    """The dependency of a route."""

    def __init__(self, permit: Callable[..., Awaitable[Permit]], question: Callable[..., Any]) -> None:
        self._permit = permit
        self._question = question
        self._checked: set[str] = set()

    @property
    def __signature__(self) -> inspect.Signature:
        """Returns the parameters, which FastAPI reads where a route is made. It alone knows the path of that."""
        making = _found_above("get_dependant", "path")
        router = _found_above("__init__", "dependency_overrides_provider")
        if isinstance(making, str) and router is not None:  # the path of a router of its own is not whole yet
            self._check(making)
        kind = inspect.Parameter.KEYWORD_ONLY
        request = inspect.Parameter("request", kind, annotation=HTTPConnection)
        return inspect.Signature([request, inspect.Parameter("asked", kind, default=Depends(self._question))])

    def _check(self, path: str) -> None:
        if path in self._checked:
            return
        for name in _strays(self._question, set(re.findall("{(.*?)}", path)), set()):
            raise TypeError(
                f"{name!r} of the question is not in the path {path!r}, so the caller would write it into the query; "
                "name it as the path does, or say Query() if that is meant"
            )
        self._checked.add(path)

    async def __call__(self, request: HTTPConnection, asked: Any) -> Permit:
        self._check(getattr(request.scope.get("route"), "path_format", ""))
        return await self._permit(request, await asked if inspect.isawaitable(asked) else asked)


def _found_above(function: str, name: str) -> Any:
    """Returns the variable of the nearest caller of that name, or None."""
    frame = sys._getframe(1)
    while frame is not None and not (frame.f_code.co_name == function and name in frame.f_locals):
        frame = frame.f_back  # type: ignore[assignment]
    return frame.f_locals[name] if frame is not None else None


def _strays(function: Any, path: set[str], seen: set[Any]) -> Iterator[str]:
    """Yields the parameters of a dependency, and of those that it has, of which nothing says where they come from."""
    for p in get_typed_signature(function).parameters.values():
        annotated = get_origin(p.annotation) is Annotated
        if annotated and not _reads_annotated:
            raise TypeError(
                f"FastAPI {_fastapi} does not read Annotated, which {p.name!r} of the question has; "
                "write what it says as the default, as in `= Query()`, or install FastAPI 0.95 or a later one"
            )
        plain, *said = get_args(p.annotation) if annotated else (p.annotation,)
        said.append(p.default)
        depends = next((s for s in said if isinstance(s, params.Depends)), None)
        if depends is not None:
            inner = depends.dependency or plain
            if inner not in seen:
                yield from _strays(inner, path, seen | {inner})
        elif any(isinstance(s, params.Path) for s in said) or not any(_from_elsewhere(s) for s in (plain, *said)):
            if p.name not in path:
                yield p.name


def _from_elsewhere(said: object) -> bool:
    """Reports whether a type or a default of a parameter says where it comes from."""
    of_request = (HTTPConnection, Response, BackgroundTasks, SecurityScopes)
    return isinstance(said, params.Param | params.Body) or isinstance(said, type) and issubclass(said, of_request)
