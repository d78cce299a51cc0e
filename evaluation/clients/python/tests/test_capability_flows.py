"""A capability counts only if its token is bound to the key; each question shows it with a proof; it is renewed."""

from __future__ import annotations

import base64
import json
import time
import unittest
from typing import Any

from policy_service import AuthorizationError, Client, Denied, Question, Undecided, Wait
from policy_service.capability import Capability, CapabilityAsk, Holder, hash_arguments, hash_request

from .pdp import PDP, Said

HOLDER, OTHER = Holder.generate(), Holder.generate("P-256")
ASK: CapabilityAsk = {
    "tenant_id": "default",
    "holder": {"type": "agent", "id": "bot"},
    "audience": "b",
    "tools": ["go"],
    "duration": 600,
}
CALL: Question = {
    "subject": {"type": "agent", "id": "bot"},
    "action": {"name": "tool.invoke"},
    "resource": {"type": "tool", "id": "b:go"},
    "context": {"arguments": {"n": 1.5, "none": None}},
}


def encode(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def decode(proof: str) -> dict[str, Any]:
    payload = proof.split(".")[1]
    said: dict[str, Any] = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return said


NOW = int(time.time())  # one moment, so that two tokens of the same claims are equal


def token(holder: Holder = HOLDER, typ: str = "cap+jwt", **more: Any) -> str:
    claims = {"jti": "cap_1", "aud": "b", "exp": NOW + 600, "cnf": {"jwk": holder.jwk}, **more}
    return ".".join((encode({"alg": "EdDSA", "typ": typ}), encode(claims), "AAAA"))


def grants(**more: Any) -> Said:
    return 201, {"granted": True, "id": "cap_1", "token": token(), **more}, {}


class Requests(unittest.TestCase):
    def ask(self, *answers: Said, wait: Wait | float | None = None) -> tuple[Capability | AuthorizationError, PDP]:
        turn = iter(answers)
        with PDP(lambda method, path, body: next(turn)) as pdp, Client(
            pdp.url, "psk_secret_of_ours", timeout=20
        ) as client:
            try:
                return client.request_capability(HOLDER, ASK, wait=wait), pdp
            except AuthorizationError as error:
                self.assertNotIn("psk_secret_of_ours", f"{error}{error!r}{vars(error)}")
                return error, pdp

    def refused(self, *answers: Said, wait: Wait | float | None = None) -> AuthorizationError:
        error, _ = self.ask(*answers, wait=wait)
        self.assertIsInstance(error, AuthorizationError)
        assert isinstance(error, AuthorizationError)
        return error

    def test_granted(self) -> None:
        capability, pdp = self.ask(grants(obligations=[{"id": "a", "type": "log", "properties": {}}]))
        assert isinstance(capability, Capability)
        self.assertEqual((capability.id, capability.audience, capability.token), ("cap_1", "b", token()))
        self.assertEqual([o["type"] for o in capability.obligations], ["log"])
        _, path, body = pdp.asked[0]
        self.assertEqual((path, body["key"], body["tools"]), ("/v1/capabilities", HOLDER.jwk, ["b:go"]))
        self.assertEqual(decode(body["proof"])["req"], hash_request(body))
        self.assertEqual(decode(body["proof"])["aud"], pdp.url)
        for text in (repr(capability), f"{capability}", str([capability])):
            self.assertNotIn(token().split(".")[1], text)

    def test_what_is_no_grant(self) -> None:
        others: list[dict[str, Any]] = [
            {"granted": 1},
            {"granted": "true"},
            {"granted": None},
            {"token": None},
            {"token": "x"},
            {"token": "a.b.c"},
            {"token": token(OTHER)},
            {"token": token(typ="JWT")},
            {"token": token(exp="soon")},
            {"token": token(exp=1e999)},
            {"token": token(cnf=None)},
            {"token": token(jti="cap_2")},
            {"id": "cap_2"},
            {"id": None},
            {"encrypted": True},
            {"obligations": {}},
        ]
        for more in others:
            with self.subTest(more):
                self.assertIn(self.refused(grants(**more)).kind, ("odd", "denied"))
        self.assertEqual(self.refused((200, [], {})).kind, "odd")
        self.assertEqual(self.refused((403, {}, {})).kind, "refused")

    def test_policies_refuse(self) -> None:
        error = self.refused((200, {"granted": False, "reason": "no", "reason_user": "Not you.", "token": token()}, {}))
        secret = "psk_secret_of_ours"
        self.refused((200, {"granted": False, "reason": secret, "reason_user": secret, secret: secret}, {}))
        self.assertIsInstance(error, Denied)
        self.assertEqual((error.kind, error.reason, error.reason_user), ("denied", "no", "Not you."))
        self.assertNotIn("token", error.context or {})

    def test_people(self) -> None:
        waits: Said = (202, {"granted": False, "approval": {"id": "ap/1", "status": "pending"}}, {})
        error = self.refused(waits)
        self.assertEqual((error.kind, error.reason), ("denied", "approval_required"))
        self.assertIn("wait", error.remedy)
        capability, pdp = self.ask(waits, (200, {"id": "ap/1", "status": "approved"}, {}), grants(), wait=60)
        assert isinstance(capability, Capability)
        self.assertEqual(
            [path.split("?")[0] for path in pdp.paths()],
            ["/v1/capabilities", "/v1/approvals/ap%2F1", "/v1/capabilities"],
        )
        self.assertEqual(pdp.asked[2][2]["approval_id"], "ap/1")
        proofs = [decode(body["proof"]) for _, _, body in pdp.asked if body]
        self.assertNotEqual(proofs[0]["jti"], proofs[1]["jti"])
        self.assertNotIn("approval_id", capability.ask or {})
        self.assertEqual(
            self.refused(waits, (200, {"id": "ap/1", "status": "denied"}, {}), wait=60).kind, "not_approved"
        )
        self.assertEqual(
            self.refused(waits, (200, {"id": "ap/1", "status": "approved"}, {}), waits, wait=60).kind, "not_approved"
        )
        self.assertEqual(self.refused((202, {"granted": False, "approval": {"id": 7}}, {}), wait=60).kind, "odd")
        self.refused(waits, (200, {"id": "ap/1", "status": "psk_secret_of_ours"}, {}), wait=60)
        waits_for: list[Any] = [Wait(1, justification="why"), Wait(1, keep=print), Wait(float("nan")), float("inf")]
        for wait in waits_for:
            self.assertEqual(self.refused(wait=wait).kind, "not_asked")

    def test_a_lost_answer_after_people_approved(self) -> None:
        waits: Said = (202, {"granted": False, "approval": {"id": "ap_1", "status": "pending"}}, {})
        approved: Said = (200, {"id": "ap_1", "status": "approved"}, {})
        capability, pdp = self.ask(waits, approved, (500, {}, {}), grants(), wait=60)
        self.assertIsInstance(capability, Capability)
        proofs = {body["proof"] for _, _, body in pdp.asked if body}
        self.assertEqual((len(pdp.asked), len(proofs)), (4, 3))
        self.assertEqual(self.refused(waits, approved, (403, {}, {}), wait=60).kind, "refused")

    def test_an_approval_that_is_given(self) -> None:
        ask: Any = {**ASK, "approval_id": "ap_1"}
        with PDP(lambda method, path, body: grants()) as pdp, Client(pdp.url) as client:
            capability = client.request_capability(HOLDER, ask)
        self.assertEqual(pdp.asked[0][2]["approval_id"], "ap_1")
        self.assertEqual(capability.ask, ASK)

    def test_what_cannot_be_asked(self) -> None:
        others: list[dict[str, Any]] = [{"tools": "go"}, {"tools": [1]}, {"audience": None}, {"encrypt_to": OTHER.jwk}]
        for more in (*others, {"duration": 2**53 + 1}, {"reason": "\ud800"}):
            ask: Any = {**ASK, **more}
            with self.subTest(more), Client("http://127.0.0.1:1") as client, self.assertRaises(Undecided) as raised:
                client.request_capability(HOLDER, ask)
            self.assertEqual(raised.exception.kind, "not_asked")


class Uses(unittest.TestCase):
    def test_shown(self) -> None:
        def answer(method: str, path: str, body: Any) -> Said:
            if path.endswith("/renew"):
                return grants(token=token(exp=NOW + 900))
            nonce = decode(body["context"]["capability"]["proof"]).get("nonce")
            says = {"nonce": "n1"} if nonce else {"nonce": "n1", "reason": "nonce_required"}
            return 200, {"decision": nonce == "n1", "context": {"capability": says}}, {}

        with PDP(answer) as pdp, Client(pdp.url) as client:
            held = Capability(token(), HOLDER, ASK)
            self.assertEqual(client.enforce(CALL, lambda permit: "went", capability=held), "went")
            self.assertEqual(client.enforce(CALL, lambda permit: "went", capability=held), "went")
            proofs = [decode(body["context"]["capability"]["proof"]) for _, _, body in pdp.asked]
            self.assertEqual([proof.get("nonce") for proof in proofs], [None, "n1", "n1"])
            self.assertEqual(len({proof["jti"] for proof in proofs}), 3)
            for proof in proofs:
                self.assertEqual((proof["cap"], proof["aud"], proof["tool"]), ("cap_1", "b", "b:go"))
                self.assertEqual(proof["args"], hash_arguments({"n": 1.5, "none": None}))
            self.assertNotIn("capability", CALL.get("context", {}))
            again = client.renew_capability(held)
            self.assertEqual((again.id, pdp.paths()[-1]), ("cap_1", "/v1/capabilities/cap_1/renew"))
            self.assertGreater(again.expires, held.expires)
            with self.assertRaises(Undecided):
                client.renew_capability(Capability(token(), HOLDER))

    def test_a_nonce_that_no_proof_can_hold_is_forgotten(self) -> None:
        says: dict[str, Any] = {"nonce": "x" * 3000, "reason": "nonce_required"}
        answer: Said = (200, {"decision": False, "context": {"capability": says}}, {})
        with PDP(lambda method, path, body: answer) as pdp, Client(pdp.url) as client:
            held = Capability(token(), HOLDER, ASK)
            for _ in range(2):
                with self.assertRaises(Denied):
                    client.authorize(CALL, capability=held)

    def test_renewal_that_people_approve(self) -> None:
        waits: Said = (202, {"granted": False, "approval": {"id": "ap_1", "status": "pending"}}, {})
        with PDP(lambda method, path, body: waits) as pdp, Client(pdp.url) as client:
            with self.assertRaises(Denied) as raised:
                client.renew_capability(Capability(token(), HOLDER, ASK))
            self.assertIn("give wait", raised.exception.remedy)

    def test_renewal_of_a_strange_id(self) -> None:
        strange = token(jti="cap/../1?")
        answer: Said = (201, {"granted": True, "id": "cap/../1?", "token": strange}, {})
        with PDP(lambda method, path, body: answer) as pdp, Client(pdp.url) as client:
            client.renew_capability(Capability(strange, HOLDER, ASK))
        self.assertEqual(pdp.paths(), ["/v1/capabilities/cap%2F..%2F1%3F/renew"])

    def test_session_stays(self) -> None:
        with PDP(lambda method, path, body: (200, {"decision": True}, {})) as pdp, Client(pdp.url) as client:
            call: Any = {**CALL, "context": {"capability": {"channel": {"session": "ws-17"}, "token": "other"}}}
            client.authorize(call, capability=Capability(token(), HOLDER))
            shown = pdp.asked[0][2]["context"]["capability"]
            self.assertEqual((shown["channel"], shown["token"]), ({"session": "ws-17"}, token()))

    def test_what_cannot_be_proved(self) -> None:
        with PDP(lambda method, path, body: (200, {"decision": True}, {})) as pdp, Client(pdp.url) as client:
            for arguments in ([], "x", None, {"n": 2**53 + 1}, {"n": 10**400}):
                call: Any = {**CALL, "context": {"arguments": arguments}}
                with self.subTest(arguments), self.assertRaises(Undecided) as raised:
                    client.authorize(call, capability=Capability(token(), HOLDER))
                self.assertEqual(raised.exception.kind, "not_asked")
            self.assertEqual(pdp.asked, [])
        with self.assertRaises(ValueError):
            Capability(token(), HOLDER).prove({**CALL, "context": {"arguments": []}})

    def test_made_again(self) -> None:
        self.assertEqual(Capability(token(cnf={"jwk": {**HOLDER.jwk, "kid": "1"}}), HOLDER).id, "cap_1")
        for bad in ("", "a.b", token(OTHER), token() + "=", token(jti=""), token(more="x" * 9000)):
            with self.subTest(bad[:20]), self.assertRaises(ValueError) as raised:
                Capability(bad, HOLDER)
            if bad:
                self.assertNotIn(bad, str(raised.exception))


if __name__ == "__main__":
    unittest.main()
