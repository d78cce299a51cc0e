"""FastAPI and Starlette run a protected route only on a yes, and show the caller no internals."""

from __future__ import annotations

import contextlib
import functools
import threading
import unittest
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Header, Path, Query
from fastapi.testclient import TestClient
from starlette.applications import Starlette
from starlette.endpoints import HTTPEndpoint
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from policy_service import AsyncClient, Client, Permit, Question, Wait, fastapi, starlette

from .pdp import PDP, Said

SECRET = "psk_0123456789_this_is_secret"


def question(request: Request) -> Question:
    return {
        "subject": {"type": "user", "id": request.headers["X-User"]},
        "action": {"name": "read"},
        "resource": {"type": "doc", "id": request.path_params["doc"]},
    }


def login_of(doc: str) -> str:
    raise AssertionError


def annotated(doc: Annotated[str, Path()]) -> Question:
    raise AssertionError


def of_annotated_login(user: Annotated[str, Depends(login_of)]) -> Question:
    raise AssertionError


async def async_question(request: Request) -> Question:
    await request.body()
    return question(request)


def app_of(
    client: starlette.ClientOf, ask: Any = question, wait: Any = None, closes: Any = None
) -> tuple[Any, list[str]]:
    """An app of each framework, and the users of its runs."""
    ran: list[str] = []
    closed = closes or client
    api = FastAPI()

    @api.get("/{doc}")
    def route(doc: str, permit: Permit = Depends(fastapi.protect(client, ask, wait=wait))) -> str:
        ran.append(doc)
        return permit.request_id

    protect = starlette.protect(client, ask, wait=wait)

    @protect
    async def endpoint(request: Request) -> PlainTextResponse:
        ran.append(request.path_params["doc"])
        return PlainTextResponse(request.state.permit.request_id)

    @protect
    def sync_endpoint(request: Request) -> PlainTextResponse:
        blocks = threading.current_thread().name == "loop"
        return PlainTextResponse("blocks" if blocks else "sync " + endpoint.__name__)

    class Endpoint(HTTPEndpoint):
        @protect
        async def get(self, request: Request) -> PlainTextResponse:
            return PlainTextResponse("of a class")

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        threading.current_thread().name = "loop"
        yield
        if isinstance(closed, AsyncClient):
            await closed.aclose()
        elif isinstance(closed, Client):
            closed.close()

    routes = [Route("/async/{doc}", endpoint), Route("/sync/{doc}", sync_endpoint), Route("/class/{doc}", Endpoint)]
    return Starlette(routes=[*routes, Mount("/fastapi", api)], lifespan=lifespan), ran


def says(
    decision: Any, status: int = 200, headers: dict[str, str] | None = None, **context: Any
) -> Callable[..., Said]:
    return lambda method, path, body: (status, {"decision": decision, "context": context}, headers or {})


class Frameworks(unittest.TestCase):
    def each(self, answer: Callable[..., Said], check: Callable[[Any, list[str], str], None], **options: Any) -> None:
        """Checks each framework with each client."""
        wait, ask = options.pop("wait", None), options.pop("ask", question)
        kinds: tuple[type[Client] | type[AsyncClient], ...] = (Client, AsyncClient)
        for kind in kinds:
            for path in ("/fastapi/d1", "/async/d1"):
                with self.subTest(client=kind.__name__, path=path), PDP(answer) as pdp:
                    client = kind(pdp.url, SECRET, timeout=20, **options)
                    app, ran = app_of(client, ask, wait)
                    with TestClient(app, raise_server_exceptions=False) as http:
                        check(http.get(path, headers={"X-User": "alice"}), ran, path)

    def test_yes(self) -> None:
        def check(answer: Any, ran: list[str], path: str) -> None:
            self.assertEqual((answer.status_code, ran), (200, ["d1"]))
            self.assertTrue(answer.text)

        self.each(says(True), check)
        self.each(says(True), check, ask=async_question)

    def test_question_of_dependencies(self) -> None:
        def login(request: Request) -> str:
            return request.headers["X-User"]

        def typed(doc: int, user: str = Depends(login)) -> Question:
            return {"subject": {"type": "user", "id": user}, "action": {"name": "read"}, "resource": resource(doc)}

        def resource(doc: Any) -> Any:
            return {"type": "doc", "id": str(doc)}

        def later(request: Request) -> Any:
            return async_question(request)

        def untyped(asked=Depends(question)):  # type: ignore[no-untyped-def]
            return asked

        asks: list[Any] = [typed, later, untyped, lambda request: question(request)]
        asks.append(lambda request: async_question(request))
        for ask in asks:
            with PDP(says(True)) as pdp, TestClient(app_of(Client(pdp.url), ask)[0]) as http:
                self.assertEqual(
                    http.get("/fastapi/7?user=mallory&request=x", headers={"X-User": "alice"}).status_code, 200
                )
                [(_, _, body)] = pdp.asked
                self.assertEqual((body["subject"]["id"], body["resource"]), ("alice", resource(7)))
                if ask is typed:
                    self.assertEqual(http.get("/fastapi/x", headers={"X-User": "alice"}).status_code, 422)

    def test_parameters_that_no_path_has(self) -> None:
        client = Client("http://127.0.0.1:1")

        def asks(doc: str, user: str = Depends(lambda: "alice")) -> Question:
            raise AssertionError

        def of_login(user: str = Depends(login_of)) -> Question:
            raise AssertionError

        def default(doc: str = "d1") -> Question:
            raise AssertionError

        def explicit(doc: str = Path()) -> Question:
            raise AssertionError

        def rest(**doc: str) -> Question:
            raise AssertionError

        def untyped(doc, user):  # type: ignore[no-untyped-def]
            raise AssertionError

        def route() -> None:
            pass

        strays: list[Any] = [asks, of_login, default, explicit, rest, untyped, functools.partial(asks, doc="d1")]
        for ask in [*strays, annotated, of_annotated_login]:
            for path in ("/", "/{document}", "/{Doc}"):
                with self.subTest(ask=ask, path=path), self.assertRaisesRegex(TypeError, "doc|Annotated"):
                    FastAPI().get(path, dependencies=[Depends(fastapi.protect(client, ask))])(route)
        with self.assertRaises(TypeError):  # as a parameter of the route, of all routes, and of a router's

            @FastAPI().get("/")
            def of_route(permit: Permit = Depends(fastapi.protect(client, asks))) -> None:
                pass

        with self.assertRaises(TypeError):
            FastAPI(dependencies=[Depends(fastapi.protect(client, asks))]).get("/")(route)
        router = APIRouter(dependencies=[Depends(fastapi.protect(client, asks))])
        router.get("/")(route)
        with self.assertRaises(TypeError):
            FastAPI().include_router(router, prefix="/{id}")
        FastAPI().include_router(router, prefix="/{doc}")

        # A router without an app makes no route of one. It answers no request all the same.
        with TestClient(Starlette(routes=[Mount("/app", router)]), raise_server_exceptions=False) as http:
            self.assertEqual(http.get("/app/?doc=d1").status_code, 500)

    def test_annotated_is_trusted_where_fastapi_reads_it(self) -> None:
        def by_header(user: Annotated[str, Header()]) -> Question:
            return {
                "subject": {"type": "user", "id": user},
                "action": {"name": "read"},
                "resource": {"type": "doc", "id": "d1"},
            }

        def of_login(user: str = Depends(by_header)) -> Question:
            raise AssertionError

        if fastapi._reads_annotated:
            with PDP(says(True)) as pdp, TestClient(app_of(Client(pdp.url), by_header)[0]) as http:
                self.assertEqual(http.get("/fastapi/d1?user=mallory", headers={"user": "alice"}).status_code, 200)
                self.assertEqual([body["subject"]["id"] for _, _, body in pdp.asked], ["alice"])
            return
        asks: list[Any] = [by_header, of_login, annotated]
        for ask in asks:
            with self.assertRaisesRegex(TypeError, "Annotated.*install FastAPI 0.95"):
                app_of(Client("http://127.0.0.1:1"), ask)

    def test_parameters_that_say_where_they_come_from(self) -> None:
        def named(
            request: Request,
            doc: str,
            version: str = Query(),
            x_user: str = Header(),
            tenant: str = Depends(lambda: "acme"),
        ) -> Question:
            asked = question(request)
            asked["context"] = {"version": version, "user": x_user, "tenant": tenant}
            return asked

        with PDP(says(True)) as pdp, TestClient(app_of(Client(pdp.url), named)[0]) as http:
            self.assertEqual(http.get("/fastapi/d1?version=2", headers={"X-User": "alice"}).status_code, 200)
            [(_, _, body)] = pdp.asked
            self.assertEqual((body["resource"]["id"], body["context"]["version"]), ("d1", "2"))

    def test_tenants(self) -> None:
        kinds: tuple[type[Client] | type[AsyncClient], ...] = (Client, AsyncClient)

        def asked_in(tenant: Any) -> Callable[[Request], Any]:
            return lambda request: {**question(request), "tenant": tenant}

        async def asked_later(request: Request) -> fastapi.RouteQuestion:
            asked = question(request)
            return {
                "subject": asked["subject"],
                "action": asked["action"],
                "resource": asked["resource"],
                "tenant": "globex",
            }

        def fails(request: Request) -> Any:
            raise LookupError

        for kind in kinds:
            with PDP(says(True)) as pdp:
                client = kind(pdp.url)

                async def later(request: Request) -> Client | AsyncClient:
                    return client.for_tenant(request.headers["X-User"])

                cases: list[tuple[Any, Any, int, str]] = [
                    (client, question, 200, ""),
                    (client, asked_in("acme"), 200, "/tenants/acme"),
                    (client, asked_later, 200, "/tenants/globex"),
                    (client.for_tenant("globex"), asked_in("acme"), 200, "/tenants/acme"),
                    (client.for_tenant("globex"), asked_in("default"), 200, ""),
                    (lambda request: client.for_tenant("acme"), question, 200, "/tenants/acme"),
                    (later, question, 200, "/tenants/alice"),
                    (later, asked_in("acme"), 200, "/tenants/acme"),
                    *((client, asked_in(name), 503, "") for name in (None, "", "../x", 1, ["acme"])),
                    *((lambda request, got=got: got, question, 503, "") for got in (None, "acme", 1)),
                    (fails, question, 500, ""),
                    (lambda request: client.for_tenant(""), question, 500, ""),
                ]
                for n, (asking, ask, status, tenant) in enumerate(cases):
                    for path in ("/fastapi/d1", "/async/d1"):
                        logged: Any = self.assertLogs("policy_service") if status == 503 else contextlib.nullcontext()
                        with self.subTest(client=kind.__name__, case=n, path=path), logged:
                            pdp.asked.clear()
                            app, ran = app_of(asking, ask, closes=client)
                            with TestClient(app, raise_server_exceptions=False) as http:
                                answer = http.get(path, headers={"X-User": "alice"})
                            self.assertEqual((answer.status_code, ran), (status, ["d1"] if status == 200 else []))
                            paths = [tenant + "/access/v1/evaluation"] if status == 200 else []
                            self.assertEqual([path for _, path, _ in pdp.asked], paths)

    def test_other_endpoints(self) -> None:
        with PDP(says(True)) as pdp, TestClient(app_of(Client(pdp.url))[0]) as http:
            self.assertEqual(http.get("/sync/d1", headers={"X-User": "alice"}).text, "sync endpoint")
            self.assertEqual(http.get("/class/d1", headers={"X-User": "alice"}).text, "of a class")
        with PDP(says(False)) as pdp, TestClient(app_of(Client(pdp.url))[0]) as http:
            self.assertEqual(http.get("/sync/d1", headers={"X-User": "alice"}).status_code, 403)
            self.assertEqual(http.get("/class/d1", headers={"X-User": "alice"}).status_code, 403)

    def refused(self, status: int, detail: str, after: str | None = None) -> Callable[[Any, list[str], str], None]:
        def check(answer: Any, ran: list[str], path: str) -> None:
            text = answer.json()["detail"] if path.startswith("/fastapi") else answer.text
            self.assertEqual((answer.status_code, text, ran), (status, detail, []))
            self.assertEqual(answer.headers.get("Retry-After"), after)
            self.assertNotIn(SECRET, str(answer.headers) + answer.text)

        return check

    def test_no(self) -> None:
        with self.assertLogs("policy_service") as logs:
            self.each(says(False), self.refused(403, "access denied"))
            self.each(says(False, reason_user="Documents are kept."), self.refused(403, "Documents are kept."))
            self.each(says(False, reason="secret_rule"), self.refused(403, "access denied"))
        self.assertNotIn(SECRET, str(logs.output))

    def test_no_decision(self) -> None:
        with self.assertLogs("policy_service", "WARNING"):
            self.each(says(True, 500), self.refused(503, "access denied"), retries=0)
            self.each(says(True, 503, {"Retry-After": "7"}), self.refused(503, "access denied", "7"), retries=0)
            self.each(says(1), self.refused(503, "access denied"))
            self.each(says(True, 302, {"Location": "/elsewhere"}), self.refused(503, "access denied"))

    def test_question_that_fails(self) -> None:
        def broken(request: Request) -> Question:
            raise KeyError("user")

        def gone(request: Request) -> Question:
            raise HTTPException(404, "no such document")

        def nothing(request: Request) -> Any:
            return None

        def more(request: Request) -> Any:
            return {**question(request), "options": {}}

        def status(wanted: int) -> Callable[[Any, list[str], str], None]:
            def check(answer: Any, ran: list[str], path: str) -> None:
                self.assertEqual((answer.status_code, ran), (wanted, []))

            return check

        with self.assertLogs("policy_service", "WARNING"):
            for ask, wanted in ((broken, 500), (gone, 404), (nothing, 503), (more, 503)):
                self.each(says(True), status(wanted), ask=ask)

    def test_wait_that_runs_out(self) -> None:
        def check(answer: Any, ran: list[str], path: str) -> None:
            self.assertEqual((answer.status_code, ran), (403, []))
            self.assertIn("waiting for approval", answer.text)

        waits: list[Any] = [0.2, Wait(timeout=0.2, join=False)]
        for wait in waits:
            with PDP(pending) as pdp, Client(pdp.url) as client, TestClient(app_of(client, wait=wait)[0]) as http:
                http.get("/async/d1", headers={"X-User": "alice"})
            self.assertGreater(len(pdp.names), 1)
            self.assertNotIn("idempotency-key", set().union(*pdp.names))
        with self.assertLogs("policy_service"):
            self.each(pending, check, wait=0.2)
            self.each(pending, check, wait=Wait(timeout=0.2, justification="why"))

    def test_what_is_refused_at_once(self) -> None:
        client: Any = Client("http://127.0.0.1:1")
        fixed: Any = {"subject": {}}
        for protect in (fastapi.protect, starlette.protect):
            with self.assertRaises(TypeError):
                protect(client, fixed)
            with self.assertRaises(TypeError):
                protect(fixed, question)
            with self.assertRaises(ValueError):
                protect(
                    client,
                    question,
                    wait=Wait(timeout=1, resume={"version": 1, "pdp": "", "id": "", "status_endpoint": ""}),
                )


def pending(method: str, path: str, body: Any) -> Said:
    """A PDP whose people do not decide."""
    if path.endswith("/evaluation"):
        request = {"expires_at": "2999-01-01T00:00:00Z", "binding_token": "b"}
        said = {"reason": "approval_required", "reason_user": "Ask a lead.", "access_request": request}
        return 200, {"decision": False, "context": said}, {}
    task = {
        "id": "t1",
        "status": "pending",
        "status_endpoint": "PDP_URL/tasks/t1",
        "expires_at": "2999-01-01T00:00:00Z",
    }
    return (201 if method == "POST" else 200), {"task": task}, {}


if __name__ == "__main__":
    unittest.main()
