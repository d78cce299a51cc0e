"""The client in front of servers that answer, that lie, and that fall silent."""

from __future__ import annotations

import decimal
import enum
import functools
import json
import pickle
import re
import socket
import ssl
import subprocess
import tempfile
import threading
import unittest
import warnings
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any
from unittest.mock import patch

from policy_service import Answer, AuthorizationError, Breaker, Client, Denied, Permit, Undecided, Wait
from policy_service.answer import read

from .liar import Liar, answer, echo
from .pdp import ADOPTS, PDP, Said, own

SECRET = "psk_0123456789_this_is_secret"
QUESTION: Any = {
    "subject": {"type": "user", "id": "alice"},
    "action": {"name": "read"},
    "resource": {"type": "doc", "id": "d1"},
}
USERS: Any = {**QUESTION, "subject": {"type": "user"}}


def question(**context: Any) -> Any:
    return {**QUESTION, "context": context}


def says(decision: Any, **context: Any) -> Callable[..., Said]:
    return lambda method, path, body: (200, {"decision": decision, "context": context}, {"X-Decision-Id": "d-1"})


def owes(*types: str, decision: bool = True) -> Callable[..., Said]:
    return says(decision, obligations=[own(f"o{n}", t) for n, t in enumerate(types)])


def always(*pieces: bytes | None) -> Callable[[int, bytes], Iterator[bytes | None]]:
    return lambda n, request: iter(pieces)


def echoes(n: int, request: bytes) -> Iterator[bytes]:
    yield answer(headers=echo(request))


class Receipts(PDP):
    """A PDP that keeps receipts."""

    def __init__(self, answer: Callable[..., Said]) -> None:
        self.receipts: list[Any] = []
        self.heard: Callable[[], object] = lambda: None

        def answers(method: str, path: str, body: Any) -> Said:
            if path.startswith("/v1/decisions/"):
                self.receipts += [(o["id"], o["status"]) for o in body["obligations"]]
                self.heard()
                return 204, None, {}
            return answer(method, path, body)

        super().__init__(answers, receipts=False)


class Tests(unittest.TestCase):
    def no(self, call: Callable[[], object], kind: str) -> AuthorizationError:
        with self.assertRaises(AuthorizationError) as caught:
            call()
        self.assertEqual(caught.exception.kind, kind, caught.exception)
        self.assertIsInstance(caught.exception, Denied if caught.exception.status == 403 else Undecided)
        text = str(caught.exception)
        self.assertNotIn("\n", text)
        for shown in (text, repr(caught.exception), repr(vars(caught.exception))):
            self.assertNotIn(SECRET, shown)
        self.assertTrue(text.endswith(caught.exception.remedy), text)
        return caught.exception


class Questions(Tests):
    def test_refused_before_anything_is_sent(self) -> None:
        cyclic: dict[str, Any] = {}
        cyclic["self"] = cyclic
        bad: list[Any] = [
            None,
            "text",
            [],
            {},
            {**QUESTION, "options": {}},
            {**QUESTION, "evaluations": []},
            {**QUESTION, "unknown": []},
            {**QUESTION, "context": None},
            {**QUESTION, "context": []},
            {**QUESTION, "action": "read"},
            {**QUESTION, "action": {"name": 1}},
            {**QUESTION, "subject": {"type": "user"}},
            {**QUESTION, "subject": {"type": "user", "id": 1}},
            {**QUESTION, "resource": {"type": "a", "id": "b", "c": 1}},
            {**QUESTION, "resource": {"type": "a", "id": "\ud800"}},
            {**QUESTION, "resource": {"type": "a", "id": None}},
            {**QUESTION, "subject": {"type": "a", "id": "b", "properties": []}},
            question(x=float("nan")),
            question(x=float("inf")),
            question(x=decimal.Decimal(1)),
            question(x=datetime.now()),
            question(x={1: 2}),
            question(x=b"bytes"),
            question(x={1}),
            question(x="\udfff"),
            question(x=cyclic),
            question(x=10**5000),
        ]
        with PDP(says(True)) as pdp, Client(pdp.url) as client:
            for n, q in enumerate(bad):
                with self.subTest(n):
                    self.no(lambda: client.authorize(q), "not_asked")
                    self.assertEqual(client.evaluate(q).permitted, False)
                    self.no(lambda: client.enforce_all([QUESTION, q], lambda permits: 1), "not_asked")
            nothing: list[Any] = [[], (), None, {}, "text"]
            for none in nothing:
                self.no(lambda: client.enforce_all(none, lambda permits: 1), "not_asked")
                self.no(lambda: client.evaluate_batch(none), "not_asked")
            self.assertEqual(pdp.asked, [])

    def test_questions_that_go_while_they_are_asked(self) -> None:
        questions: Any = [QUESTION]

        def credential() -> str:
            questions.clear()
            return "token"

        with Liar(always(None)) as liar, Client(liar.url, credential) as client:
            self.no(lambda: client.enforce_all(questions, self.fail), "unreachable")

    def test_what_is_sent(self) -> None:
        with PDP(says(True)) as pdp, Client(pdp.url, handlers={"log": lambda o: None}, tenant="t1") as client:
            authors = {"supported_obligations": ["redact"], "supported_mandatory_extensions": ["obligations", "x"]}
            client.authorize(question(**authors, n=(1, 2)))
            client.evaluate(question(**authors))
            (_, path, first), (_, _, second) = pdp.asked
            self.assertEqual(path, "/tenants/t1/access/v1/evaluation")
            self.assertEqual(first["context"], {**ADOPTS, "n": [1, 2]})
            self.assertEqual(second["context"], {})

    def test_urls(self) -> None:
        for url in (
            "ftp://x",
            "http://",
            "",
            "localhost:80",
            "https://user:pw-secret@x/",
            "https://x/?a=pw-secret",
            "https://x/#",
            "https://x/\r\n",
            "https://x\\@y",
            "http://pdp.example.com",
            "http://127.0.0.1.example.com",
            "unix:/run/x",
            None,
        ):
            with self.subTest(url), self.assertRaises(ValueError) as caught:
                Client(url)  # type: ignore[arg-type]
            self.assertNotIn("pw-secret", str(caught.exception))
        for url in ("http://localhost:1", "http://[::1]:1/base/", "https://pdp.example.com"):
            Client(url)
        Client("http://pdp.example.com", plain_http=True)
        for credential in ("", "a b", "a\r\nb", 1):
            with self.assertRaises(ValueError):
                Client("https://x", credential)  # type: ignore[arg-type]


class Answers(Tests):
    def test_no_careless_yes(self) -> None:
        with PDP(says(False)) as pdp, Client(pdp.url) as client:
            got: Any = client.evaluate(QUESTION)
            kinds: list[Any] = [Answer, Permit]
            yes = True
            lines: list[Callable[[], object]] = [
                lambda: bool(got),
                lambda: not got,
                lambda: got == yes,
                lambda: got != yes,
                lambda: got["decision"],
                lambda: got.decision,
                lambda: got.allow,
                lambda: list(got),
                lambda: all([got]),
                lambda: len(got),
                lambda: kinds[0](),
                lambda: kinds[1](),
                lambda: Answer(got._facts, None),
                lambda: setattr(got, "permitted", True),
            ]
            for careless in lines:
                with self.assertRaises((TypeError, AttributeError)):
                    careless()
            self.assertEqual((got.permitted, got.error.kind, got.decision_id), (False, "denied", "d-1"))

    def test_many_obligations_are_read_in_linear_time(self) -> None:
        compared: list[str] = []

        class Text(str):
            __hash__ = str.__hash__

            def __eq__(self, other: object) -> bool:
                compared.append(self)
                return str.__eq__(self, other)

        types = [Text(n) for n in range(500)]
        owed = {"obligations": dict.fromkeys(types, True), "obligation_details": [{"type": t} for t in types]}
        self.assertEqual(len(read({"decision": False, "context": owed}).obligations), 500)
        self.assertLess(len(compared), 5000)

    def test_lies(self) -> None:
        yes = b'{"decision": true}'
        big = b'{"decision": true, "context": {"x": "' + b"x" * (1 << 20) + b'"}}'
        for name, said, kind in (
            ("302", answer(yes, "302 Found", "Location: /other\r\n"), "odd"),
            ("204", b"HTTP/1.1 204 No Content\r\n\r\n", "odd"),
            ("201", answer(yes, "201 Created"), "odd"),
            ("no HTTP", b"hello\r\n\r\n", "unreachable"),
            ("another id", answer(headers="X-Request-ID: 1\r\n"), "odd"),
            ("coded", answer(headers="Content-Encoding: gzip\r\n"), "odd"),
            ("two types", answer(headers="Content-Type: application/json\r\n"), "odd"),
            ("two lengths", answer(headers="Content-Length: 2\r\n"), "unreachable"),
            ("too large", answer(big), "odd"),
            ("twice", answer(b'{"decision": false, "decision": true}'), "odd"),
            ("twice inside", answer(b'{"decision": true, "context": {"a": {"b": 1, "b": 2}}}'), "odd"),
            ("trailing", answer(yes + b"{}"), "odd"),
            ("bad UTF-8", answer(b'{"decision": true, "a": "\xff"}'), "odd"),
            ("surrogate", answer(rb'{"decision": true, "a": "\ud800"}'), "odd"),
            ("deep", answer(b'{"decision": true, "a": ' + b"[" * 64 + b"]" * 64 + b"}"), "odd"),
            ("1", answer(b'{"decision": 1}'), "odd"),
            ("text", answer(b'{"decision": "true"}'), "odd"),
            ("allow", answer(b'{"allow": true}'), "odd"),
            ("possible", answer(b'{"decision": true, "context": {"possible": true}}'), "odd"),
            (
                "owes",
                answer(json.dumps({"decision": True, "context": {"obligations": [own("1", "log")]}}).encode()),
                "obligated",
            ),
            ("owes natively", answer(b'{"decision": true, "obligations": {"log": true}}'), "obligated"),
            ("owes with details", answer(b'{"decision": true, "obligation_details": []}'), "odd"),
            ("503", answer(b'{"detail": "' + SECRET.encode() + b'\\n"}', "503 Busy"), "unavailable"),
        ):
            with self.subTest(name), Liar(always(said, None)) as liar, Client(liar.url, SECRET) as client:
                self.no(lambda: client.authorize(QUESTION), kind)
                self.assertEqual(len(liar.requests), 1)

    def test_a_refusal_before_all_was_sent(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:

            def serve() -> None:
                for status in ("413 Large", "200 OK"):
                    connection, _ = server.accept()
                    with connection:
                        connection.recv(1000)
                        connection.sendall(answer(status=status))
                        connection.shutdown(socket.SHUT_WR)

            thread = threading.Thread(target=serve)
            thread.start()
            with Client(f"http://127.0.0.1:{server.getsockname()[1]}", retries=0) as client:
                error = pickle.loads(pickle.dumps(self.no(lambda: client.authorize(QUESTION), "refused")))
                self.assertEqual((error.pdp_status, str(error).count("413")), (413, 1))
                with self.assertRaises(AuthorizationError):
                    client.authorize(question(x="x" * (8 << 20)))
            thread.join()

    def test_endless_answers_end(self) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"

        def endless(n: int, request: bytes) -> Iterator[bytes]:
            yield head
            while True:
                yield b"1000\r\n" + b" " * 0x1000 + b"\r\n"

        def drips(n: int, request: bytes) -> Iterator[bytes]:
            yield head
            paused = threading.Event()
            while not paused.wait(0.02):
                yield b"1\r\n \r\n"

        def negative(n: int, request: bytes) -> Iterator[bytes]:
            yield head + b"-1\r\n"
            while True:
                yield b" " * 0x10000

        for stream, kind in ((endless, "odd"), (negative, "unreachable"), (drips, "timed_out")):
            with self.subTest(kind), Liar(stream) as liar, Client(
                liar.url, timeout=0.3 if kind == "timed_out" else 5
            ) as client:
                self.no(lambda: client.authorize(QUESTION), kind)

    def test_tls_is_verified(self) -> None:
        with tempfile.TemporaryDirectory() as directory, socket.create_server(("127.0.0.1", 0)) as server:
            key, certificate = f"{directory}/key", f"{directory}/certificate"
            subprocess.run(
                ["openssl", "req", "-x509", "-newkey", "ed25519", "-nodes", "-keyout", key, "-out", certificate]
                + ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
                check=True,
                capture_output=True,
            )
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(certificate, key)
            failures: list[Exception] = []

            def serve() -> None:
                connection, _ = server.accept()
                try:
                    tls.wrap_socket(connection, server_side=True).close()
                except ssl.SSLError as error:
                    failures.append(error)

            thread = threading.Thread(target=serve)
            thread.start()
            error = self.no(
                lambda: Client(f"https://localhost:{server.getsockname()[1]}").authorize(QUESTION), "unreachable"
            )
            thread.join()
            self.assertIn("CERTIFICATE_VERIFY_FAILED", str(error))
            self.assertEqual(len(failures), 1)


class Repeats(Tests):
    def test_which_failures_are_tried_again(self) -> None:
        later = answer(b"{}", "503 Busy", "Retry-After: 0\r\n")
        cases: list[tuple[str, list[bytes | None], dict[str, Any], int, bool]] = [
            ("no byte", [None], {}, 3, False),
            ("a part of an answer", [b"HTTP/1.1 2", None], {}, 1, False),
            ("cut", [answer()[:-1], None], {}, 1, False),
            ("later", [later, None], {}, 3, False),
            ("no byte, of an approval", [None], {"approval_id": "a"}, 1, True),
            ("cut, of a capability", [answer()[:-1], None], {"capability": {"token": "t", "proof": "p"}}, 1, True),
            ("later, of an approval", [later, None], {"approval": {"id": "a"}}, 1, False),
            ("never, of an approval", [answer(b"{}", "500 No"), None], {"approval": {"id": "a"}}, 1, True),
            ("too often, of an approval", [answer(b"{}", "429 No"), None], {"approval": {"id": "a"}}, 1, False),
        ]
        for name, said, context, times, spent in cases:
            with self.subTest(name), Liar(always(*said)) as liar, Client(liar.url) as client:
                error = self.no(
                    lambda: client.authorize(question(**context)),
                    "unavailable" if re.search("503|500|429", str(said)) else "unreachable",
                )
                self.assertEqual((len(liar.requests), error.spent), (times, spent))
                self.assertEqual("may be gone" in error.remedy, spent)

    def test_nothing_is_spent_where_nothing_was_sent(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            url = f"http://127.0.0.1:{server.getsockname()[1]}"
        error = self.no(lambda: Client(url).authorize(question(approval_id="a")), "unreachable")
        self.assertFalse(error.spent)

    def test_connections(self) -> None:
        def unsolicited(n: int, request: bytes) -> Iterator[bytes]:
            yield answer(b'{"decision": true}' if n == 1 else b'{"decision": false}', headers=echo(request))
            yield answer()

        for says_which, connections in ((echoes, [1, 2]), (always(answer()), [2, 3])):
            with Liar(says_which) as liar, Client(liar.url) as client:
                client.authorize(QUESTION)
                client.authorize(QUESTION)
                self.assertEqual(liar.connections, connections[0])
                client.authorize(question(approval_id="a"))
                self.assertEqual(liar.connections, connections[1])
        with Liar(unsolicited) as liar, Client(liar.url) as client:
            client.authorize(QUESTION)
            with self.assertRaises(AuthorizationError):
                client.authorize(QUESTION)

    def test_credentials_that_a_pdp_repeats(self) -> None:
        def repeats(method: str, path: str, body: Any) -> Said:
            said = {
                "reason": SECRET,
                "reason_user": SECRET,
                "x": {SECRET: [SECRET + body["context"]["capability"]["proof"]]},
            }
            return 200, {"decision": False, "context": said}, {"X-Decision-Id": SECRET}

        with PDP(repeats) as pdp, Client(pdp.url, SECRET) as client:
            shown = question(
                capability={
                    "token": "the-token-of-a-holder",
                    "proof": "the-proof-of-a-holder",
                    "channel": {"session": SECRET[:-1]},
                }
            )
            error = self.no(lambda: client.authorize(shown), "denied")
            self.assertEqual((error.reason, error.reason_user, error.decision_id), ("…", "…", "…"))
            self.assertEqual(error.context and error.context["x"], {"…": ["……"]})
            self.assertEqual(client.evaluate(shown).context["x"], {"…": ["……"]})

    def test_short_texts_are_no_secrets(self) -> None:
        with Receipts(owes("log")) as pdp, Client(pdp.url, handlers={"log": lambda o: None}) as client:
            shown = question(capability={"token": "1", "proof": "-", "channel": {"session": "d"}})
            self.assertEqual(client.authorize(shown).decision_id, "d-1")

    def test_credentials_that_a_pdp_repeats_elsewhere(self) -> None:
        yes: Any = {"decision": True, "obligations": [own(SECRET, SECRET)]}
        said: dict[str, Any] = {
            "evaluations": [yes],
            "results": [],
            "error": {"message": SECRET + "the-token-of-a-holder"},
        }
        shown = question(capability={"token": "the-token-of-a-holder", "proof": "the-proof-of-a-holder"})
        search: Any = {**shown, "subject": {"type": "user"}}
        with PDP(lambda method, path, body: (200, {**yes, **said}, {})) as pdp, Client(pdp.url, SECRET) as client:
            for call in (lambda: client.enforce_all([shown], self.fail), lambda: list(client.search_subjects(search))):
                self.assertNotIn("the-token-of-a-holder", str(self.no(call, "bad_item")))
            del said["error"]
            self.no(lambda: client.authorize(QUESTION), "obligated")

    def test_a_batch_whose_answer_is_lost(self) -> None:
        with PDP(says(True)) as pdp, Client(pdp.url) as client:
            one, other = client.evaluate_batch([question(approval_id="a"), QUESTION])
            self.assertEqual(
                [a.error and (a.error.kind, a.error.spent) for a in (one, other)], [("odd", True), ("odd", False)]
            )

    def test_breaker(self) -> None:
        told: list[str] = []
        with Liar(always(answer(b"{}", "500 No"))) as liar:
            client = Client(liar.url, breaker=Breaker(2, 1000), on_undecided=lambda error: told.append(error.kind))
            for kind in ("unavailable", "unavailable", "open"):
                self.no(lambda: client.authorize(QUESTION), kind)
            self.assertEqual(len(liar.requests), 2)
            self.assertEqual(told, ["unavailable", "unavailable", "open"])
            client.close()

    def test_tenants(self) -> None:
        def answers(n: int, request: bytes) -> Iterator[bytes]:
            path = request.split(b" ")[1]
            lost, broken = path.startswith(b"/tenants/lost/"), path.startswith(b"/tenants/broken/")
            yield answer(b"{}", "404 Lost") if lost else answer(b"{}", "500 No") if broken else answer()

        def key(tenant: str) -> str:
            return "key-of-" + tenant

        with Liar(answers) as liar, Client(liar.url, key, breaker=Breaker(2, 1000), retries=0) as client:
            acme = client.for_tenant("acme")
            for one in (client, acme, acme.for_tenant("default"), acme.for_tenant("globex")):
                self.assertTrue(one.evaluate(QUESTION).permitted)
            sent = [(r.split(b" ")[1], re.findall(rb"Bearer (\S+)", r)) for r in liar.requests]
            path = b"/access/v1/evaluation"
            self.assertEqual(
                sent,
                [
                    (path, [b"key-of-default"]),
                    (b"/tenants/acme" + path, [b"key-of-acme"]),
                    (path, [b"key-of-default"]),
                    (b"/tenants/globex" + path, [b"key-of-globex"]),
                ],
            )
            for _ in range(3):
                self.no(lambda: client.for_tenant("lost").authorize(QUESTION), "refused")
            self.no(lambda: client.for_tenant("broken").authorize(QUESTION), "unavailable")
            self.no(lambda: client.for_tenant("lost").authorize(QUESTION), "refused")  # no sign of life
            self.no(lambda: client.for_tenant("broken").authorize(QUESTION), "unavailable")
            for one in (client, acme, client.for_tenant("new")):
                self.no(lambda: one.authorize(QUESTION), "open")
            nobody: list[Any] = ["", "../x", "a/b", " a", "a\n", None, 1, b"a"]
            for name in nobody:
                with self.assertRaises(ValueError):
                    client.for_tenant(name)
            of_another: Any = {**QUESTION, "tenant": "globex"}
            self.no(lambda: acme.authorize(of_another), "not_asked")

    def test_credentials_of_tenants(self) -> None:
        def named(tenant: str = "default") -> str:
            return "key-of-" + tenant

        def required(name: str, /) -> str:
            return "key-of-" + name

        def other(timeout: float = 1.0) -> str:
            raise AssertionError

        def by_name(*, tenant: str = "default") -> str:
            raise AssertionError

        def second(realm: str, tenant: str = "default") -> str:
            raise AssertionError

        class Tenant(str, enum.Enum):
            ACME = "acme"

        sources: list[Any] = [named, required, lambda *a: f"key-of-{a[0]}"]
        with Liar(lambda n, request: iter([answer()])) as liar:
            for source in sources:
                with Client(liar.url, source) as client:
                    for tenant in ("acme", Tenant.ACME):
                        client.for_tenant(tenant).authorize(QUESTION)
            with Client(liar.url, named, tenant=Tenant.ACME) as client:
                client.authorize(QUESTION)
            sent = [(r.split(b" ")[1], re.findall(rb"Bearer (\S+)", r)) for r in liar.requests]
            self.assertEqual(sent, [(b"/tenants/acme/access/v1/evaluation", [b"key-of-acme"])] * 7)
        unclear: list[Any] = [other, by_name, second, functools.partial(named, tenant="acme")]
        for source in unclear:
            with self.assertRaisesRegex(TypeError, r"def credential\(tenant\)"):
                Client("https://x", source)
        Client("https://x", functools.partial(lambda *, scope: str(scope), scope="a"))

    def test_receipts_of_tenants(self) -> None:
        receipts: list[str] = []

        def answers(method: str, path: str, body: Any) -> Said:
            if path.endswith("/obligations"):
                receipts.append(path)
                return 404, {}, {}
            return owes("log")(method, path, body)

        with PDP(answers, receipts=False) as pdp, Client(pdp.url, handlers={"log": lambda o: None}) as client:
            for name in ("a", "b", "c"):
                client.for_tenant(name).authorize(QUESTION)
            self.assertEqual(len(receipts), 1)  # the PDP does not take them, whoever asks

    def test_credentials(self) -> None:
        given = iter([SECRET + "1", SECRET + "2"])
        with PDP(says(True)) as pdp:
            client = Client(pdp.url, lambda: next(given))
            client.authorize(QUESTION)
            client.authorize(QUESTION)

            def breaks() -> str:
                raise RuntimeError(SECRET)

            sources: list[Any] = [breaks, lambda: "", lambda: "a b", lambda: None]
            for source in sources:
                self.no(lambda: Client(pdp.url, source).authorize(QUESTION), "not_asked")
            self.assertEqual(len(pdp.asked), 2)
            client.close()


class Enforcing(Tests):
    def test_all_are_tried_in_order(self) -> None:
        for decision in (True, False):
            ran: list[str] = []

            def fails(o: Any) -> None:
                ran.append(o["type"])
                raise ValueError(SECRET)

            handlers: Any = {"a": fails, "b": lambda o: ran.append(o["type"]), "c": lambda o: True}
            with Receipts(owes("a", "unknown", "b", "c", decision=decision)) as pdp, Client(
                pdp.url, handlers=handlers
            ) as c:
                self.no(lambda: c.enforce(QUESTION, self.fail), "obligated")
                self.assertEqual(ran, ["a", "b"])
                done = [("o0", "failed"), ("o1", "failed"), ("o2", "discharged"), ("o3", "failed")]
                self.assertEqual(pdp.receipts, done)

    def test_interrupted(self) -> None:
        ran: list[str] = []

        def interrupted(o: Any) -> None:
            raise KeyboardInterrupt

        with Receipts(owes("a", "b")) as pdp:
            client = Client(pdp.url, handlers={"a": interrupted, "b": lambda o: ran.append("b")})
            with self.assertRaises(KeyboardInterrupt):
                client.enforce(QUESTION, self.fail)
            self.assertEqual((ran, pdp.receipts), (["b"], [("o0", "failed"), ("o1", "discharged")]))
            client.close()

    def test_promises(self) -> None:
        def upper(o: Any) -> Callable[[Any], Any]:
            return lambda result: result.upper()

        def raises(permit: Permit) -> str:
            raise LookupError

        with Receipts(owes("redact", "log")) as pdp:
            client = Client(pdp.url, handlers={"redact": upper, "log": lambda o: None})

            def receipts() -> list[Any]:
                got, pdp.receipts = list(pdp.receipts), []
                return got

            kept, broken = [("o0", "discharged"), ("o1", "discharged")], [("o0", "failed"), ("o1", "discharged")]
            self.assertEqual(client.enforce(QUESTION, lambda permit: "text"), "TEXT")
            self.assertEqual(receipts(), kept)
            self.no(lambda: client.enforce(QUESTION, lambda permit: 1), "obligated")
            self.assertEqual(receipts(), broken)
            with self.assertRaises(LookupError):
                client.enforce(QUESTION, raises)
            self.assertEqual(receipts(), broken)
            with client.enforce(QUESTION) as permit:
                self.assertEqual(receipts(), [])
                self.assertEqual(permit.release("text"), "TEXT")
            self.assertEqual(receipts(), kept)
            held = client.enforce(QUESTION)

            def leave() -> str:
                with held:
                    return "text"

            self.assertIn("release", self.no(leave, "obligated").remedy)
            self.assertEqual(receipts(), broken)
            self.no(lambda: held.release("text"), "obligated")
            with self.assertRaises(LookupError), client.enforce(QUESTION) as permit:
                raises(permit)
            self.assertEqual(receipts(), broken)

            def hide() -> str:
                with client.enforce(QUESTION) as permit:
                    self.no(lambda: permit.release(1), "obligated")
                    return "text"

            self.no(hide, "obligated")
            self.assertEqual(receipts(), broken)
            with self.assertWarns(ResourceWarning):
                client.enforce(QUESTION)
            self.assertEqual(receipts(), broken)
            acts: list[Any] = [1, "text"]
            for act_done in acts:
                with self.assertRaises(TypeError):
                    client.enforce(QUESTION, act_done)
            self.assertEqual(receipts(), [])

            def about(name: str) -> Any:
                return {**QUESTION, "resource": {"type": "doc", "id": name}}

            @client.enforced(about)
            def act(name: str) -> str:
                return name

            self.assertEqual(act("d7"), "D7")
            self.assertEqual(pdp.asked[-2][2]["resource"]["id"], "d7")
            receipts()
            self.no(lambda: client.authorize(QUESTION), "obligated")
            self.assertEqual(receipts(), broken)
            client.close()

    def test_a_permit_without_a_promise_may_be_left(self) -> None:
        with Receipts(owes("log")) as pdp, Client(pdp.url, handlers={"log": lambda o: None}) as client:
            with client.enforce(QUESTION):
                pass
            self.assertEqual(pdp.receipts, [("o0", "discharged")])

    def test_a_warning_is_no_reason_to_leave_a_receipt_out(self) -> None:
        with Receipts(owes("redact")) as pdp, Client(pdp.url, handlers={"redact": lambda o: str}) as client:
            with warnings.catch_warnings(), patch("sys.unraisablehook") as hook:
                warnings.simplefilter("error")
                client.enforce(QUESTION)
                self.assertIs(hook.call_args[0][0].exc_type, ResourceWarning)
            self.assertEqual(pdp.receipts, [("o0", "failed")])

    def test_an_async_handler_is_no_handler_here(self) -> None:
        async def handle(o: Any) -> None:
            pass

        with Receipts(owes("log")) as pdp, Client(pdp.url, handlers={"log": handle}) as client:  # type: ignore
            self.no(lambda: client.authorize(QUESTION), "obligated")

    def test_batches(self) -> None:
        def each(*decisions: Any) -> Callable[..., Said]:
            items = [{"decision": d, "context": {"obligations": [own("o", "log")]}} for d in decisions]
            return lambda method, path, body: (200, {"evaluations": items}, {"X-Decision-Id": "d"})

        ran: list[str] = []
        for said, kind, done in (
            ((True, True), "", ["log", "log"]),
            ((True, False), "denied", ["log"]),
            ((True, 1), "odd", []),
            ((True,), "odd", []),
            ((True, True, True), "odd", []),
            ((), "odd", []),
        ):
            with self.subTest(said), Receipts(each(*said)) as pdp:
                client, ran = Client(pdp.url, handlers={"log": lambda o: ran.append("log")}), []
                if kind:
                    self.no(lambda: client.enforce_all([QUESTION, QUESTION], self.fail), kind)
                else:
                    self.assertEqual(client.enforce_all([QUESTION, QUESTION], len), 2)
                self.assertEqual(ran, done)
                self.assertEqual([e["context"] for e in pdp.asked[0][2]["evaluations"]], [ADOPTS] * 2)
                client.close()

    def test_searches(self) -> None:
        def page(method: str, path: str, body: Any) -> Said:
            token = body.get("page", {}).get("token")
            found = [{"type": "user", "id": token or "first"}]
            return 200, {"results": found, "page": {"next_token": {"p2": ""}.get(token, "p2")}}, {}

        def circle(method: str, path: str, body: Any) -> Said:
            return 200, {"results": [{"type": "user", "id": "x"}], "page": {"next_token": "same"}}, {}

        with PDP(page) as pdp, Client(pdp.url) as client:
            found = client.search_subjects(USERS)
            self.assertEqual(pdp.asked, [])
            self.assertEqual([one["id"] for one in found], ["first", "p2"])
            self.assertEqual(pdp.asked[0][2]["subject"], {"type": "user"})

        def other(method: str, path: str, body: Any) -> Said:
            return 200, {"results": [{"type": "doc", "id": "x"}]}, {}

        lies: list[Callable[..., Said]] = [circle, says(True), other]
        for answers in lies:
            with PDP(answers) as pdp, Client(pdp.url) as client:
                self.no(lambda: list(client.search_subjects(USERS)), "odd")


class Names(Tests):
    def test_looking_a_name_up_has_an_end(self) -> None:
        late = threading.Event()
        with patch("socket.getaddrinfo", lambda *args, **kwargs: late.wait(20)):
            self.no(lambda: Client("https://pdp.example.com", timeout=0.1).authorize(QUESTION), "timed_out")
            late.set()
        with patch("socket.getaddrinfo", side_effect=socket.gaierror("no such name")):
            self.no(lambda: Client("https://pdp.example.com").authorize(QUESTION), "unreachable")


class People(Tests):
    """A PDP whose people have a say."""

    def served(
        self,
        status: str = "approved",
        refuse: int = 0,
        elsewhere: bool = False,
        use: Any = True,
        schema: str | None = None,
        result: bool = True,
    ) -> PDP:
        def task(status: str) -> dict[str, Any]:
            at = "http://127.0.0.1:1" if elsewhere else pdp.url
            task = {"id": "t1", "status": status, "status_endpoint": at + "/tasks/t1?sig=x"}
            approval = {"id": "a1", "approved_until": "2999-01-01T00:00:00Z"}
            return {"task": task, **({"result": {"mode": "reevaluate", "approval": approval}} if result else {})}

        def answers(method: str, path: str, body: Any) -> Said:
            if path.endswith("/requests"):
                return (
                    (503, {}, {"Retry-After": "0"}) if pdp.paths().count(path) <= refuse else (201, task("pending"), {})
                )
            if path.startswith("/tasks/"):
                return 200, task(status), {}
            if body["context"].get("approval", {}).get("id") == "a1":
                return 200, {"decision": use}, {}
            offer = {"expires_at": "2999-01-01T00:00:00Z", "binding_token": "b"}
            if schema is not None:
                at = pdp.url + path.removesuffix("/evaluation") + "/requests"
                offer |= {"endpoint": at, "request_schema_url": pdp.url + schema}
            return 200, {"decision": False, "context": {"reason": "approval_required", "access_request": offer}}, {}

        pdp = PDP(answers)
        return pdp

    def test_people_who_cannot_be_asked(self) -> None:
        unasked = {"decision": False, "context": {"reason": "approval_required"}}
        with PDP(lambda method, path, body: (200, unasked, {})) as pdp, Client(pdp.url) as client:
            error = self.no(lambda: client.authorize(QUESTION, wait=60), "denied")
            self.assertIn("permission request", error.remedy)
            unasked["context"] = {"reason": "schema_mismatch"}
            for wait in (None, 60):
                self.assertIn("X-Explain", self.no(lambda: client.authorize(QUESTION, wait=wait), "denied").remedy)

    def test_a_schema_that_may_require_something(self) -> None:
        for tenant in ("default", "acme"):
            with self.served(schema="/access/v1/requests/schema") as pdp, Client(pdp.url, tenant=tenant) as client:
                client.authorize(QUESTION, wait=60)
            for schema in ("/schemas/finance", "/tenants/acme/access/v1/requests/schema"):
                with self.served(schema=schema) as pdp, Client(pdp.url, tenant=tenant) as client:
                    error = self.no(lambda: client.authorize(QUESTION, wait=60), "not_asked")
                    self.assertIn("request_schema_url", error.remedy)
                    self.assertEqual(len(pdp.asked), 1)

    def test_a_status_that_is_unknown(self) -> None:
        for result in (True, False):
            with self.served(status="needs-info", result=result) as pdp, Client(pdp.url) as client:
                self.no(lambda: client.authorize(QUESTION, wait=60), "not_approved")

    def test_an_act_that_takes_no_permit(self) -> None:
        act: Any = lambda: self.fail("it ran")  # noqa: E731
        with self.served() as pdp, Client(pdp.url) as client:
            for call in (lambda: client.enforce(QUESTION, act, wait=60), lambda: client.enforce_all([QUESTION], act)):
                with self.assertRaisesRegex(TypeError, "takes the permit"):
                    call()
            self.assertEqual(pdp.asked, [])
            self.assertIn("Permit", client.enforce(QUESTION, str, wait=60))

    def test_from_a_no_to_a_yes(self) -> None:
        kept: list[Any] = []
        with self.served(refuse=1) as pdp, Client(pdp.url) as client:
            self.assertIn("wait", self.no(lambda: client.authorize(QUESTION), "denied").remedy)
            pdp.asked.clear()
            client.authorize(question(n=1), wait=Wait(60, justification="why", keep=kept.append))
            first, twice, filed, look, last = pdp.asked
            self.assertEqual((twice, filed[2]["context"]["business_justification"]), (filed, "why"))
            self.assertEqual(
                filed[2]["denial"],
                {"expires_at": "2999-01-01T00:00:00Z", "binding_token": "b", "reason": "approval_required"},
            )
            self.assertEqual(look[1], "/tasks/t1?sig=x&wait=20s")
            self.assertEqual(last[2]["context"]["approval"]["id"], "a1")
            self.assertNotIn("business_justification", last[2]["context"])
            self.assertEqual(
                json.loads(json.dumps(kept)),
                [{"version": 1, "pdp": pdp.url, "id": "t1", "status_endpoint": pdp.url + "/tasks/t1?sig=x"}],
            )
            pdp.asked.clear()
            client.authorize(question(n=1), wait=Wait(60, resume=kept[0]))
            self.assertEqual(pdp.paths(), ["/tasks/t1?sig=x&wait=20s", "/access/v1/evaluation"])

    def test_noes(self) -> None:
        def breaks(task: Any) -> None:
            raise RuntimeError(SECRET)

        with self.served(status="denied") as pdp, Client(pdp.url) as client:
            self.no(lambda: client.authorize(QUESTION, wait=60), "not_approved")
            self.no(lambda: client.authorize(QUESTION, wait=Wait(60, keep=breaks)), "cancelled")
            task: Any = {"version": 1, "pdp": pdp.url, "id": "t1", "status_endpoint": "http://127.0.0.1:1/t1"}
            damaged: list[Any] = [
                task,
                {**task, "pdp": "x"},
                {**task, "version": True},
                {**task, "more": 1},
                {},
                "text",
            ]
            for bad in damaged:
                self.no(lambda: client.authorize(QUESTION, wait=Wait(60, resume=bad)), "not_asked")
            waits: list[Any] = [-1, float("nan"), "1", True, []]
            for wait in waits:
                self.no(lambda: client.authorize(QUESTION, wait=wait), "not_asked")
            self.no(lambda: client.authorize(question(approval_id="a"), wait=60), "not_asked")
            both = Client(pdp.url, handlers={"approval_required": lambda o: None})
            self.no(lambda: both.authorize(QUESTION, wait=60), "not_asked")
        told: list[Any] = []
        with self.served(use=1) as pdp, Client(pdp.url, on_undecided=told.append) as client:
            error = self.no(lambda: client.authorize(QUESTION, wait=60), "odd")
            self.assertEqual((told, error.spent), ([error], True))
        with self.served(status=SECRET) as pdp, Client(pdp.url, SECRET) as client:
            self.no(lambda: client.authorize(QUESTION, wait=60), "not_approved")
        with self.served(elsewhere=True) as pdp, Client(pdp.url) as client:
            error = self.no(lambda: client.authorize(QUESTION, wait=60), "not_asked")
            self.assertIn("public_url", error.remedy)
        with self.served(status="pending") as pdp, Client(pdp.url) as client:
            error = self.no(lambda: client.authorize(QUESTION, wait=0), "not_approved")
            self.assertEqual((error.reason, error.task and error.task["id"]), ("approval_pending", "t1"))


if __name__ == "__main__":
    unittest.main()
