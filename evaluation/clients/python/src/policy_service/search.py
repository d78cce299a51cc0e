"""Searches: page after page, as long as the program asks."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, AsyncIterator, Iterator, Literal, NoReturn, TypeVar

from ._effects import Flow
from ._october import clashing
from .answer import Decided, of_all
from .errors import AuthorizationError, failure, odd
from .obligations import Outcome

if TYPE_CHECKING:
    from ._core import Core, Reply

_MOST_PAGES, _MOST_EMPTY = 10_000, 1_000

Sought = Literal["subject", "resource", "action"]
T = TypeVar("T")


class _NoBool:
    def __bool__(self) -> NoReturn:
        raise TypeError("a search is no bool, and one that finds nothing would read as yes; go through its results")


class Results(_NoBool, Iterator[T]):
    """The results of a search, one after the other. It is no bool."""

    def __init__(self, found: Iterator[T]) -> None:
        self._found = found

    def __next__(self) -> T:
        return next(self._found)


class AsyncResults(_NoBool, AsyncIterator[T]):
    """The results of a search, one after the other. It is no bool."""

    def __init__(self, found: AsyncIterator[T]) -> None:
        self._found = found

    async def __anext__(self) -> T:
        return await self._found.__anext__()


@dataclass
class Found:
    """A result before its obligations are discharged."""

    item: Any
    decided: Decided


class Search:
    """One search. Nothing is asked before its first page."""

    def __init__(self, core: Core, sought: Sought, query: object) -> None:
        self._core, self._sought, self._query = core, sought, query
        self._pages = self._empty = 0
        self._seen: set[bytes] = set()  # tokens, by hash: they can be long, and there can be many
        self._body: dict[str, Any] | None = None
        self._october = core.draft == "october"
        self._done: dict[str, Outcome] = {}  # of the page, by id
        self.over = False

    def page(self) -> Flow[list[Found]]:
        """The next page. All of it is read before any of it is given out."""
        try:
            if self._body is None:
                self._body = self._core.searched(self._query, self._sought)
            self._done = {}
            found, token = yield from self._core.find(self._sought, self._body, self._read)
        except AuthorizationError as error:
            error.op = "search"
            raise
        self.over = not token
        if token:
            self._progress(token, bool(found))
            self._body["page"] = {"token": token}
        return found

    def keep(self, found: Found) -> Flow[bool]:
        """Whether a result is permitted, once its obligations were discharged. By the draft of October, one obligation
        can be of several results of a page."""
        decided = found.decided
        if not decided.conditional and not (self._october and decided.obligations):
            return decided.error is None
        due = [o for o in decided.obligations if not self._october or o["id"] not in self._done]
        [e] = yield from self._core.settle([replace(decided, obligations=due)], changes=False)
        if self._october:
            self._done.update((o.obligation["id"], o) for o in e.outcomes)
            e.outcomes = [self._done[o["id"]] for o in decided.obligations]
        return e.error is None

    def _read(self, reply: Reply) -> tuple[list[Found], str]:
        top = reply.top
        results, page = top.get("results"), top.get("page")
        if not isinstance(results, list):
            raise odd("the body is not one JSON object with an array of results")
        shared = top.get("context") if self._october else None
        rest = (
            {n: v for n, v in shared.items() if n != "obligations"} if isinstance(shared, dict) else top.get("context")
        )
        of_all({**top, "context": rest}, "the page", self._october)
        of_page = Decided(allow=True)
        of_page.qualify({}, shared, self._october)
        found = [self._result(item, of_page) for item in results]
        if self._october:
            all_owed = [o for one in found for o in one.decided.obligations]
            clashes = clashing(all_owed + of_page.obligations)
            for o in all_owed:
                if o["id"] in clashes:
                    o["malformed"] = True
        token = page.get("next_token") if isinstance(page, dict) else None
        if page is not None and not isinstance(page, dict) or token is not None and not isinstance(token, str):
            raise odd("the page of the answer cannot be read")
        return found, token or ""

    def _result(self, item: Any, of_page: Decided) -> Found:
        """Reads one result. Obligations are looked for beside it, and in a context of its own. In the draft of October,
        a result without a context has that of the page, and obligations exclude at most their result."""
        if not isinstance(item, dict):
            raise odd("a result is not an object")
        context = item.get("context")
        decided = replace(of_page) if context is None else Decided(allow=True)
        decided.qualify(item, context, self._october)
        if decided.error and not self._core.handlers and not self._october:
            raise decided.error
        if self._sought == "action":
            if not isinstance(item.get("name"), str):
                raise odd("an action that was found has no name")
            return Found({"name": item["name"]}, decided)
        if not isinstance(item.get("type"), str) or not isinstance(item.get("id"), str):
            raise odd("an entity that was found has no type or no id")
        assert self._body
        if item["type"] != self._body[self._sought]["type"]:
            raise odd("an entity that was found is of another type")
        return Found({"type": item["type"], "id": item["id"]}, decided)

    def _progress(self, token: str, found: bool) -> None:
        """Tells a long search from one that turns in circles."""
        name = hashlib.sha256(token.encode()).digest()
        self._pages, self._empty = self._pages + 1, 0 if found else self._empty + 1
        if name in self._seen or self._pages >= _MOST_PAGES or self._empty >= _MOST_EMPTY:
            error = failure("odd", "a page's token came twice, or there are more pages than any search has")
            error.op, self.over = "search", True
            raise error
        self._seen.add(name)
