"""Obligations by the drafts of October and July 2026, against a PDP on a port of its own."""

from __future__ import annotations

import time
import unittest
from typing import Any

from policy_service import AuthorizationError, Client

from .pdp import ADOPTS, PDP, Said, own

QUESTION: Any = {
    "subject": {"type": "user", "id": "alice"},
    "action": {"name": "read"},
    "resource": {"type": "doc", "id": "d1"},
}
DOCUMENTS: Any = {**QUESTION, "resource": {"type": "doc"}}
TYPES = ("step-up", "notification", "session_termination", "custom", "redact", "log")


def step(id: str, **properties: Any) -> dict[str, Any]:
    return {"id": id, "type": "step-up", "properties": properties or {"acr_value": "gold"}}


def end(id: str, **properties: Any) -> dict[str, Any]:
    return {"id": id, "type": "session_termination", "properties": properties}


def tell(**properties: Any) -> dict[str, Any]:
    return {"id": "tell", "type": "notification", "properties": properties}


LAST = end("last", subject="alice")
REDACT = {"id": "hide", "type": "redact", "properties": {"fields": ["/a"]}}

# What an adopted PEP must not act upon. The last obligation of each is executed all the same, if it can be read.
LIES: dict[str, Any] = {
    "no obligation": [],
    "an object": {},
    "null": None,
    "the native form": {"redact": True},
    "no object": ["x", LAST],
    "null among them": [None, LAST],
    "no id": [{"type": "custom", "properties": {}}, LAST],
    "no type": [{"id": "1", "properties": {}}, LAST],
    "an id that is no text": [{**step("1"), "id": 1}, LAST],
    "no properties": [{"id": "1", "type": "custom"}, LAST],
    "properties beside it": [{"id": "1", "type": "step-up", "acr_value": "gold"}, LAST],
    "an unknown type": [{"id": "1", "type": "unheard-of", "properties": {}}, LAST],
    "an own name as the type": [REDACT, LAST],
    "an unknown own type": [own("1", "unheard-of"), LAST],
    "a standard type of ours": [own("1", "step-up", acr_value="gold"), LAST],
    "an own type without properties": [
        {"id": "1", "type": "custom", "properties": {"vendor": "policy-service", "type": "redact"}},
        LAST,
    ],
    "an own type, flat": [
        {"id": "1", "type": "custom", "properties": {"vendor": "policy-service", "type": "redact", "fields": []}},
        LAST,
    ],
    "a text as the destinations": [tell(to="ann", body="b"), LAST],
    "no destination": [tell(to=[], body="b"), LAST],
    "a destination that is no text": [tell(to=["a", 1], body="b"), LAST],
    "no body": [tell(to=["a"]), LAST],
    "an unknown member": [step("1", acr_value="gold", max_age=1), LAST],
    "no acr_value": [step("1", amr_values=["mfa"]), LAST],
    "amr_values that are a text": [step("1", acr_value="gold", amr_values="mfa"), LAST],
    "a topic that is null": [tell(to=["a"], body="b", topic=None), LAST],
    "no subject": [end("1"), LAST],
    "one that is malformed, and like another": [tell(to=["ann"], body="b"), tell(to="ann", body="b"), LAST],
    "two of one id": [step("1"), step("1", acr_value="silver"), LAST],
    "two of one id that Python takes for one": [own("1", "log", a=1), own("1", "log", a=True), LAST],
}


def allow(*obligations: Any) -> dict[str, Any]:
    return {"decision": True, "context": {"obligations": list(obligations)}}


class Drafts(unittest.TestCase):
    def enforce(self, answer: Any, **options: Any) -> tuple[str, list[Any], Any, list[Any]]:
        """The outcome of an answer, the obligations that were handled, the context that was sent, and the receipts."""
        handled: list[Any] = []
        receipts: list[Any] = []

        def answers(method: str, path: str, body: Any) -> Said:
            if path.startswith("/v1/"):
                receipts.extend((o["id"], o["status"]) for o in body["obligations"])
                return 204, None, {}
            return 200, answer, {"X-Decision-Id": "d"}

        handlers = {kind: handled.append for kind in TYPES}
        acted: list[Any] = []
        with PDP(answers, receipts=False) as pdp, Client(pdp.url, handlers=handlers, **options) as client:
            try:
                client.enforce(QUESTION, acted.append)
                outcome = "yes"
            except AuthorizationError as error:
                outcome = error.kind
            self.assertEqual(len(acted), 1 if outcome == "yes" else 0)
            return outcome, handled, pdp.asked[0][2]["context"], receipts

    def test_a_question_that_is_enforced_adopts_october(self) -> None:
        standard = ["custom", "notification", "session_termination", "step-up"]
        self.assertEqual(self.enforce({"decision": True})[2], {**ADOPTS, "supported_obligations": standard})
        july = self.enforce({"decision": True}, obligations="july")
        self.assertEqual(july[2], {"supported_obligations": sorted(TYPES)})
        other: Any = "june"
        with self.assertRaises(ValueError):
            Client("http://127.0.0.1:1", obligations=other)

    def test_handlers_get_one_form(self) -> None:
        full = step("a", acr_value="gold", amr_values=["mfa"])
        vendors = {"id": "a", "type": "custom", "properties": {"vendor": "dlp", "type": "redact"}}
        for sent, want in (
            (full, full),
            (tell(to=["ann"], body="b", topic="t"), tell(to="ann", body="b", topic="t")),
            (tell(to=["ann", "bob"], body="b"), tell(to=["ann", "bob"], body="b")),
            (LAST, LAST),
            (own("hide", "redact", fields=["/a"]), REDACT),
            (vendors, vendors),
            ({**LAST, "comment": "ignored"}, LAST),
        ):
            with self.subTest(sent):
                outcome, handled, _, receipts = self.enforce(allow(sent))
                self.assertEqual((outcome, handled, receipts), ("yes", [want], [(want["id"], "discharged")]))

    def test_an_adopted_client_does_not_act_upon_lies(self) -> None:
        for name, obligations in LIES.items():
            for decision in (True, False):
                with self.subTest(name):
                    outcome, handled, _, _ = self.enforce(
                        {"decision": decision, "context": {"obligations": obligations}}
                    )
                    self.assertNotEqual(outcome, "yes")
                    self.assertEqual(handled, [LAST] if isinstance(obligations, list) and obligations else [])

    def test_an_adopted_client_does_not_act_upon_the_answer_of_july(self) -> None:
        """A proxy has deleted the member that adopts October's draft."""
        lies: list[tuple[Any, list[Any]]] = [
            (allow(REDACT), []),
            ({**allow(REDACT), "obligations": [REDACT]}, []),
            (allow(tell(to="ann", body="b")), []),
            ({"decision": True, "obligations": {"redact": True}}, []),
            ({"decision": True, "obligations": {"redact": True}, "obligation_details": [REDACT]}, []),
            (allow(REDACT, step("up")), [step("up")]),
        ]
        for answer, want in lies:
            with self.subTest(answer):
                outcome, handled, _, _ = self.enforce(answer)
                self.assertNotEqual(outcome, "yes")
                self.assertEqual(handled, want)

    def test_one_obligation_is_executed_once(self) -> None:
        for draft in ("october", "july"):
            for answer in (allow(step("1"), step("1")), {**allow(step("1")), "obligations": [step("1")]}):
                outcome, handled, _, receipts = self.enforce(answer, obligations=draft)
                self.assertEqual((outcome, handled, receipts), ("yes", [step("1")], [("1", "discharged")]))
            outcome, handled, _, receipts = self.enforce(
                allow(step("1"), step("1", acr_value="silver")), obligations=draft
            )
            self.assertEqual((outcome, handled, receipts), ("obligated", [], [("1", "failed")]))

    def test_a_large_obligation_is_compared_once(self) -> None:
        """A PDP that lies cannot keep a client busy."""
        large: dict[str, Any] = {"id": "1", "type": "custom", "properties": {str(n): "x" for n in range(40_000)}}
        for draft in ("october", "july"):
            began = time.monotonic()
            outcome, handled, _, _ = self.enforce(
                allow(large, *[{**large, "properties": {}}] * 8_000), obligations=draft, receipts=False
            )
            self.assertEqual((outcome, handled), ("obligated", []))
            self.assertLess(time.monotonic() - began, 12)

    def test_an_item_of_a_batch_is_read_as_adopted(self) -> None:
        items = [allow(own("a", "redact")), allow(REDACT), allow()]
        with PDP(lambda method, path, body: (200, {"evaluations": items}, {})) as pdp:
            with Client(pdp.url, handlers={"redact": lambda o: None}) as client:
                answers = client.evaluate_batch([QUESTION] * 3)
                self.assertEqual([a.error and a.error.kind for a in answers], [None, "obligated", "obligated"])
        whole = {"evaluations": [{"decision": True}], "context": {"obligations": []}}
        with PDP(lambda method, path, body: (200, whole, {})) as pdp, Client(pdp.url) as client:
            self.assertFalse(client.evaluate_batch([QUESTION])[0].permitted)


class Searches(unittest.TestCase):
    def find(self, *results: Any, context: Any = None, **options: Any) -> tuple[list[str], list[str], Any]:
        """The ids of the results that are left and of the obligations that were handled, and the context sent."""
        body = {"results": [{"type": "doc", "id": str(n), **more} for n, more in enumerate(results, 1)]}
        if context is not None:
            body["context"] = context
        handled: list[str] = []

        def handle(o: Any) -> None:
            handled.append(o["id"])
            if o["id"] == "fails":
                raise RuntimeError("no")

        options = {"handlers": {"step-up": handle, "redact": handle}, **options}
        query: Any = {**DOCUMENTS, "context": {"a": 1, **ADOPTS}}
        with PDP(lambda method, path, asked: (200, body, {})) as pdp, Client(pdp.url, **options) as client:
            found = [one["id"] for one in client.search_resources(query)]
            return found, handled, pdp.asked[0][2]["context"]

    def owing(self, *obligations: Any) -> Any:
        return {"context": {"obligations": list(obligations)}}

    def test_one_id_is_executed_once_a_page(self) -> None:
        found, handled, sent = self.find(
            self.owing(step("a")),
            self.owing(step("a"), step("b")),
            self.owing(step("fails")),
            self.owing(step("fails")),
            {},
        )
        self.assertEqual((found, handled), (["1", "2", "5"], ["a", "b", "fails"]))
        self.assertEqual(sent, {"a": 1, **ADOPTS, "supported_obligations": ["custom", "step-up"]})

    def test_results_that_cannot_be_complied_with_are_left_out(self) -> None:
        silver = step("a", acr_value="silver")
        both = {"obligations": [REDACT], **self.owing(REDACT)}
        for name, results, context, want in (
            ("unknown type", [self.owing({**step("a"), "type": "x"}), {}], None, ["2"]),
            ("July's answer", [both, {}, {"obligations": [REDACT]}], None, ["2"]),
            ("malformed", [self.owing(), {"context": {"obligations": {}}}, {}, {"context": "x"}], None, ["3"]),
            ("ids alike", [self.owing(step("a")), self.owing(step("b")), self.owing(silver)], None, ["2"]),
            (
                "ids alike in the page",
                [self.owing(step("a")), {"context": {}}, {}],
                self.owing(silver)["context"],
                ["2"],
            ),
            ("of the page", [{}, {"context": {}}], self.owing(step("fails"))["context"], ["2"]),
            (
                "of the page, done",
                [{}, {"context": {}}, {"context": None}],
                self.owing(step("a"))["context"],
                ["1", "2", "3"],
            ),
            ("of the page, malformed", [{}, {"context": {}}], {"obligations": []}, ["2"]),
        ):
            with self.subTest(name):
                self.assertEqual(self.find(*results, context=context)[0], want)

    def test_a_large_page_costs_by_its_size(self) -> None:
        page = self.owing(*(step(str(n)) for n in range(2000)))["context"]
        started = time.process_time()
        found, handled, _ = self.find(*({} for _ in range(2000)), context=page)
        self.assertEqual((len(found), len(handled)), (2000, 2000))
        self.assertLess(time.process_time() - started, 20)

    def test_without_handlers(self) -> None:
        found, _, sent = self.find(
            self.owing(step("a")), {}, {"obligations": [REDACT]}, {"context": {"b": 1}}, handlers={}
        )
        self.assertEqual((found, sent), (["2", "4"], {"a": 1}))
        with self.assertRaises(AuthorizationError):
            self.find(self.owing(step("a")), {}, handlers={}, obligations="july")

    def test_july_has_obligations_in_two_places(self) -> None:
        both = {"obligations": [REDACT], **self.owing(REDACT)}
        found, handled, sent = self.find(
            both, {"obligations": [REDACT]}, {"obligations": [REDACT, step("hide")]}, obligations="july"
        )
        self.assertEqual((found, handled), (["1", "2"], ["hide", "hide"]))
        self.assertEqual(sent, {"a": 1, "supported_obligations": ["redact", "step-up"]})


if __name__ == "__main__":
    unittest.main()
