"""AsyncClient: its differences from Client."""

from __future__ import annotations

import asyncio
import gc
import os
import unittest
import unittest.mock
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from policy_service import AsyncClient, AuthorizationError, Breaker, Client, Permit, Undecided

from .liar import Liar, answer, echo
from .pdp import PDP, Said
from .test_client import QUESTION, USERS, Receipts, always, owes, question, says


class Async(unittest.IsolatedAsyncioTestCase):
    async def no(self, call: Any, kind: str) -> AuthorizationError:
        with self.assertRaises(AuthorizationError) as caught:
            await call
        self.assertEqual(caught.exception.kind, kind, caught.exception)
        return caught.exception

    async def test_a_forgotten_await_is_no_yes(self) -> None:
        with PDP(says(True)) as pdp:
            async with AsyncClient(pdp.url) as client:
                calls: list[Any] = [
                    client.evaluate(QUESTION),
                    client.authorize(QUESTION),
                    client.enforce(QUESTION),
                    client.enforce(QUESTION, lambda permit: 1),
                    client.enforce_all([QUESTION], len),
                    client.evaluate_batch([QUESTION]),
                ]
                for call in calls:
                    with self.assertRaises(TypeError):
                        bool(call)
                    with self.assertRaises((TypeError, AttributeError)):
                        call.permitted
                    call.close()
                self.assertEqual(pdp.asked, [])
                self.assertTrue((await client.evaluate(QUESTION)).permitted)
                self.assertIsInstance(await asyncio.create_task(client.authorize(QUESTION)), Permit)

    async def test_all_may_be_async(self) -> None:
        async def key() -> str:
            return "a-key"

        async def upper(result: str) -> str:
            return result.upper()

        async def handle(o: Any) -> Callable[[Any], Any]:
            return upper

        async def act(permit: Permit) -> str:
            return "text"

        kept, broken = [("o0", "discharged")], [("o0", "failed")]
        with Receipts(owes("redact")) as pdp:
            async with AsyncClient(pdp.url, key, handlers={"redact": handle}) as client:

                def receipts() -> list[Any]:
                    got, pdp.receipts = list(pdp.receipts), []
                    return got

                self.assertEqual(await client.enforce(QUESTION, act), "TEXT")
                self.assertEqual(receipts(), kept)
                self.assertEqual(await client.enforce(QUESTION, lambda permit: "plain"), "PLAIN")
                self.assertEqual(receipts(), kept)
                async with client.enforce(QUESTION) as permit:
                    self.assertEqual(await permit.release("text"), "TEXT")
                self.assertEqual(receipts(), kept)

                async def leave() -> str:
                    async with client.enforce(QUESTION):
                        return "text"

                self.assertIn("release", (await self.no(leave(), "obligated")).remedy)
                self.assertEqual(receipts(), broken)

                async def forget() -> Any:
                    async with client.enforce(QUESTION) as permit:
                        permit.release("text").close()  # in the place of await
                        return "text"

                await self.no(forget(), "obligated")
                self.assertEqual(receipts(), broken)

                async def fail() -> None:
                    async with client.enforce(QUESTION):
                        raise LookupError

                with self.assertRaises(LookupError):
                    await fail()
                self.assertEqual(receipts(), broken)

                def about(name: str) -> Any:
                    return QUESTION

                @client.enforced(about)
                async def decorated(name: str) -> str:
                    return name

                self.assertEqual(await decorated("d7"), "D7")
                self.assertEqual(receipts(), kept)

    async def test_obligations_outlive_their_caller(self) -> None:
        ran: list[str] = []
        started, goes_on, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def slow(o: Any) -> None:
            started.set()
            await goes_on.wait()

        async def last(o: Any) -> None:
            ran.append("last")

        loop = asyncio.get_running_loop()

        with Receipts(owes("slow", "last")) as pdp:
            pdp.heard = lambda: loop.call_soon_threadsafe(done.set)
            async with AsyncClient(pdp.url, handlers={"slow": slow, "last": last}) as client:
                task = asyncio.create_task(client.authorize(QUESTION))
                await started.wait()
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
                goes_on.set()
                await done.wait()
                self.assertEqual((ran, pdp.receipts), (["last"], [("o0", "discharged"), ("o1", "discharged")]))

    async def test_a_call_given_up_says_nothing_of_the_pdp(self) -> None:
        asked = asyncio.Event()
        loop = asyncio.get_running_loop()

        def silent(n: int, request: bytes) -> Iterator[bytes | None]:
            loop.call_soon_threadsafe(asked.set)
            if n > 1:
                yield answer()

        with Liar(silent) as liar:
            async with AsyncClient(liar.url, breaker=Breaker(1, 1000)) as client:
                task = asyncio.create_task(client.authorize(QUESTION))
                await asked.wait()
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
                await client.authorize(QUESTION)

    async def test_lies(self) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"

        def endless(n: int, request: bytes) -> Iterator[bytes]:
            yield head
            while True:
                yield b"1000\r\n" + b" " * 0x1000 + b"\r\n"

        moved = answer(status="307 Elsewhere", headers="Location: /other\r\n")
        later = answer(b"{}", "503 Busy", "Retry-After: 0\r\n")
        cases: list[tuple[str, Any, dict[str, Any], str, int, bool]] = [
            ("endless", endless, {}, "odd", 1, False),
            ("a part of it", always(head + b"1\r\n{\r\n"), {}, "timed_out", 1, False),
            ("nothing", always(), {"approval_id": "a"}, "timed_out", 1, True),
            ("moved", always(moved), {}, "odd", 1, False),
            ("coded", always(answer(headers="Content-Encoding: gzip\r\n")), {}, "odd", 1, False),
            ("no byte", always(None), {}, "unreachable", 3, False),
            ("no byte, of an approval", always(None), {"approval_id": "a"}, "unreachable", 1, True),
            ("cut", always(answer()[:-1], None), {}, "unreachable", 1, False),
            ("later", always(later), {}, "unavailable", 3, False),
        ]
        for name, said, context, kind, times, spent in cases:
            with self.subTest(name), Liar(said) as liar:
                async with AsyncClient(liar.url, timeout=2 if kind == "timed_out" else 20) as client:
                    error = await self.no(client.authorize(question(**context)), kind)
                    self.assertEqual((len(liar.requests), error.spent), (times, spent))

    async def test_framing(self) -> None:
        """Both clients take the same answers, and refuse the same."""
        body, coded = b'{"decision": true}', b'12\r\n{"decision": true}\r\n0\r\n\r\n'
        length, chunked, status = b"Content-Length: 18", b"Transfer-Encoding: chunked", b"HTTP/1.1 200 OK"
        interim = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"

        def head(*headers: bytes, status: bytes = status) -> bytes:
            return b"\r\n".join([status, b"Content-Type: application/json", *headers, b"", b""])

        taken = [
            head(length) + body,
            head(chunked) + coded,
            head(length, length) + body,
            head(b"Content-Length: 18, 18") + body,
            head(b"Transfer-Encoding: CHUNKED") + coded,
            head(b"X-A: b\r\n c", length) + body,
            interim + head(length) + body,
            head(length, status=b"HTTP/1.0 200 OK") + body,
        ]
        refused = [
            head(length, chunked) + coded,
            head(chunked, length) + coded,
            head(length, chunked) + body,
            head(length, b"Content-Length: 5") + body,
            head(b"Content-Length: 18, 5") + body,
            head(b"Content-Length: +18") + body,
            head(b"Content-Length: -1") + body,
            head(b"Content-Length: 0x12") + body,
            head(b"Content-Length: 1_8") + body,
            head(b"Content-Length: ") + body,
            head(b"Content-Length: " + b"0" * 20 + b"18") + body,
            head(b"Content-Length: 18\x0b") + body,
            head(chunked, chunked) + coded,
            head(b"Transfer-Encoding: chunked, chunked") + coded,
            head(b"Transfer-Encoding: gzip, chunked") + coded,
            head(b"Transfer-Encoding: identity", length) + body,
            head(b"Transfer-Encoding: ", length) + body,
            head(b"Transfer-Encoding: \x0bchunked") + coded,
            head(b"Transfer-Encoding : chunked", length) + body,
            head(b"Content-Length : 18") + body,
            head(b"X-A: a\x00b", length) + body,
            head(b"nonsense", length) + body,
            head(length, *(b"X-%d: a" % n for n in range(120))) + body,
            head(length, status=b"HTTP/2.0 200 OK") + body,
            head(length, status=b"HTTP/1.1 101 Switching") + body,
        ]
        for said in taken + refused:
            with self.subTest(said[:80]), Liar(always(said, None)) as liar, Client(liar.url, retries=0) as client:
                async with AsyncClient(liar.url, retries=0) as other:
                    calls: list[Any] = [asyncio.to_thread(client.authorize, QUESTION), other.authorize(QUESTION)]
                    for call in calls:
                        if said in taken:
                            self.assertTrue((await call).request_id)
                        else:
                            with self.assertRaises(Undecided):
                                await call

    async def test_tenants(self) -> None:
        async def key(tenant: str) -> str:
            return "key-of-" + tenant

        def answers(n: int, request: bytes) -> Iterator[bytes]:
            yield answer(b"{}", "500 No") if b"/tenants/broken/" in request else answer(headers=echo(request))

        with Liar(answers) as liar:
            async with AsyncClient(liar.url, key, breaker=Breaker(1, 1000), retries=0) as client:
                await client.for_tenant("acme").authorize(QUESTION)
                self.assertIn(b"/tenants/acme/", liar.requests[0])
                self.assertIn(b"Bearer key-of-acme\r\n", liar.requests[0])
                await self.no(client.for_tenant("broken").authorize(QUESTION), "unavailable")
                await self.no(client.authorize(QUESTION), "open")

    async def test_nothing_of_the_environment_or_of_an_answer_is_kept(self) -> None:
        def cookie(n: int, request: bytes) -> Iterator[bytes]:
            yield answer(headers=echo(request) + "Set-Cookie: a=b; Path=/\r\n")

        with Liar(cookie) as liar, Liar(always(answer())) as proxy:
            with unittest.mock.patch.dict(os.environ, {"HTTP_PROXY": proxy.url, "ALL_PROXY": proxy.url}):
                async with AsyncClient(liar.url) as client:
                    for connections in (1, 2, 2):
                        await client.authorize(QUESTION)
                        self.assertEqual(liar.connections, connections)
                    await client.authorize(question(approval_id="a"))
                    self.assertEqual((liar.connections, proxy.connections), (3, 0))
            self.assertNotIn(b"cookie", b"".join(liar.requests).lower())

    async def test_no_answer_is_anothers(self) -> None:
        def unsolicited(n: int, request: bytes) -> Iterator[bytes]:
            yield answer(b'{"decision": true}' if n < 3 else b'{"decision": false}', headers=echo(request))
            yield answer()

        with Liar(unsolicited) as liar:
            async with AsyncClient(liar.url) as client:
                await client.authorize(QUESTION)
                await client.authorize(QUESTION)
                with self.assertRaises(AuthorizationError):
                    await client.authorize(QUESTION)

    def test_one_client_in_several_loops(self) -> None:
        with PDP(says(True)) as pdp:
            client = AsyncClient(pdp.url)

            async def once() -> None:
                await client.authorize(QUESTION)

            async def twice() -> None:
                await once()
                await client.aclose()

            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)  # of the connection that the first loop left open
                asyncio.run(once())
                asyncio.run(twice())
                gc.collect()
            self.assertEqual(len(pdp.asked), 2)

    async def test_a_name_that_cannot_be(self) -> None:
        with self.assertRaises(Undecided) as caught:
            await AsyncClient("https://xn--").authorize(QUESTION)
        self.assertEqual(caught.exception.kind, "unreachable")

    async def test_searches(self) -> None:
        def page(method: str, path: str, body: Any) -> Said:
            owed = [{"id": "o", "type": "log" if body["page"]["token"] else "other"}] if "page" in body else []
            return 200, {"results": [{"type": "user", "id": "x", "obligations": owed}], "page": {"next_token": ""}}, {}

        with PDP(page) as pdp:
            async with AsyncClient(pdp.url, obligations="july") as client:
                self.assertEqual(
                    [found async for found in client.search_subjects(USERS)], [{"type": "user", "id": "x"}]
                )


if __name__ == "__main__":
    unittest.main()
