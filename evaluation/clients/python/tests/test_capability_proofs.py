"""Holds hashes and proofs to the vectors of evaluation/capability, and reads them by a verifier of its own."""

import base64
import json
import pathlib
import unittest
from decimal import Decimal, InvalidOperation
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, utils
from cryptography.hazmat.primitives.hashes import SHA256

from policy_service.capability import Holder, canonical, hash_arguments, hash_request

VECTORS = json.loads((pathlib.Path(__file__).parents[3] / "capability/testdata/vectors.json").read_text())
HOLDERS = {key["kid"]: Holder.from_jwk(key) for key in VECTORS["holder_keys"]}
REFUSED_PROOFS = {"proof_missing", "proof_invalid", "proof_wrong_audience", "proof_wrong_call", "proof_stale"}


def exact(text: str) -> float:
    """A number of a JSON text, unless Python reads another one than is written."""
    number = float(text)
    try:
        if Decimal(text) in (Decimal(repr(number)), Decimal(number)):
            return number
    except InvalidOperation:
        pass
    raise ValueError(text)


def decode(segment: str) -> bytes:
    return base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4))


def encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def said(token: str) -> dict[str, Any]:
    payload: dict[str, Any] = json.loads(decode(token.split(".")[1]))
    return payload


def signed_by(proof: str, jwk: dict[str, str]) -> bool:
    signed, _, segment = proof.rpartition(".")
    signature = decode(segment)
    try:
        if jwk["kty"] == "OKP":
            ed25519.Ed25519PublicKey.from_public_bytes(decode(jwk["x"])).verify(signature, signed.encode())
        else:
            numbers = ec.EllipticCurvePublicNumbers(
                int.from_bytes(decode(jwk["x"]), "big"), int.from_bytes(decode(jwk["y"]), "big"), ec.SECP256R1()
            )
            r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
            numbers.public_key().verify(utils.encode_dss_signature(r, s), signed.encode(), ec.ECDSA(SHA256()))
    except InvalidSignature:
        return False
    return True


class Vectors(unittest.TestCase):
    def same(self, made: str, proof: str, holder: Holder) -> None:
        """Signatures of P-256 are never the same: there, the signed text is, and the signature is good."""
        self.assertTrue(signed_by(made, holder.jwk))
        if holder.jwk["kty"] == "OKP":
            self.assertEqual(made, proof)
        else:
            self.assertEqual(made.split(".")[:2], proof.split(".")[:2])

    def test_arguments(self) -> None:
        for vector in VECTORS["arguments"]:
            with self.subTest(vector["arguments"]):
                if "reason" in vector:
                    with self.assertRaises(ValueError):
                        canonical(json.loads(vector["arguments"], parse_float=exact))
                    continue
                arguments = json.loads(vector["arguments"])
                self.assertEqual(canonical(arguments), vector["jcs"])
                self.assertEqual(hash_arguments(arguments), vector["hash"])

    def test_requests(self) -> None:
        made = 0
        for vector in VECTORS["requests"]:
            with self.subTest(vector["name"]):
                body = json.loads(vector["body"])
                self.assertEqual(hash_request(body, vector.get("parent")), vector["digest"])
                if "reason" in vector:
                    continue
                made += 1
                proof, claims = body["proof"], said(body["proof"])
                is_ = {"iat": claims["iat"], "jti": claims["jti"]}
                if parent := vector.get("parent"):
                    holder = HOLDERS[vector["giver"]]
                    again = holder.hand_on(body, parent, VECTORS["issuer"], **is_)
                else:
                    holder = next(h for h in HOLDERS.values() if h.jwk == body["key"])
                    ask = {n: v for n, v in body.items() if n not in ("key", "proof")}
                    if "encrypt_to" in ask:
                        with self.assertRaises(ValueError):
                            holder.request(ask, VECTORS["issuer"])
                        continue
                    again = holder.request(ask, VECTORS["issuer"], **is_)
                self.same(again["proof"], proof, holder)
                self.assertEqual({**again, "proof": ""}, {**body, "proof": ""})
        self.assertGreater(made, 8)

    def test_calls(self) -> None:
        made, first = 0, VECTORS["calls"][0]
        for vector in VECTORS["calls"]:
            call = {**first, **vector}
            if "reason" in vector and vector["reason"] not in REFUSED_PROOFS:
                continue
            with self.subTest(call["name"]):
                token = said(call["token"])
                holder = HOLDERS[kid_of(token["cnf"]["jwk"])]
                audience = call["audience"][0] if call.get("audience") else token["aud"]
                if "reason" in vector:
                    continue
                made += 1
                claims = said(call["proof"])
                again = holder.prove(
                    cap=token["jti"],
                    aud=audience,
                    tool=call["tool"],
                    arguments=json.loads(call["arguments"]),
                    nonce=claims.get("nonce"),
                    iat=claims["iat"],
                    jti=claims["jti"],
                )
                self.same(again, call["proof"], holder)
        self.assertGreater(made, 10)


def kid_of(jwk: dict[str, str]) -> str:
    return str(next(kid for kid, holder in HOLDERS.items() if holder.jwk == jwk))


class Holders(unittest.TestCase):
    def test_kinds(self) -> None:
        for kind, alg in (("Ed25519", "EdDSA"), ("P-256", "ES256")):
            holder = Holder.generate(kind)  # type: ignore[arg-type]
            again = Holder.from_jwk(holder.private_jwk())
            self.assertEqual(holder.thumbprint, again.thumbprint)
            self.assertNotIn("d", holder.jwk)
            proof = again.prove(cap="cap_1", aud="agent-b", tool="agent-b:restart", arguments={})
            self.assertEqual(json.loads(decode(proof.split(".")[0])), {"alg": alg, "typ": "cap-proof+jwt"})
            self.assertTrue(signed_by(proof, holder.jwk))
            self.assertNotEqual(proof, again.prove(cap="cap_1", aud="agent-b", tool="agent-b:restart", arguments={}))

    def test_thumbprints(self) -> None:
        for kid, holder in HOLDERS.items():
            self.assertEqual(holder.thumbprint, kid)

    def test_refused_keys(self) -> None:
        good, other = VECTORS["holder_keys"][0], VECTORS["holder_keys"][1]
        point = VECTORS["holder_keys"][2]
        bads: list[dict[str, Any]] = [
            {},
            {**good, "d": other["d"]},
            {**good, "x": other["x"]},
            {n: v for n, v in good.items() if n != "d"},
            {**good, "d": good["d"][:-1]},
            {**good, "d": 7},
            {**good, "d": good["d"] + "\n"},
            {**point, "d": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"},
            {**point, "crv": "P-384"},
            {**point, "d": encode(b"\0" + decode(point["d"]))},
        ]
        for bad in bads:
            with self.subTest(bad), self.assertRaises(ValueError) as raised:
                Holder.from_jwk(bad)
            self.assertNotIn(good["d"], str(raised.exception))
        with self.assertRaises(ValueError):
            Holder.generate("RSA")  # type: ignore[arg-type]
        with self.assertRaises(ValueError):
            Holder(ec.generate_private_key(ec.SECP384R1()))

    def test_no_text_has_the_key(self) -> None:
        holder = next(iter(HOLDERS.values()))
        for text in (repr(holder), str(holder), f"{holder}"):
            self.assertNotIn(VECTORS["holder_keys"][0]["d"], text)

    def test_what_cannot_be_proved(self) -> None:
        cyclic: list[Any] = []
        cyclic.append(cyclic)
        numbers = (2**53 + 1, -(2**53) - 1, 10**400, float("nan"), float("inf"), 1j)
        for value in (*numbers, "\ud800", {"\udfff": 1}, {1: 2}, b"", set(), cyclic):
            with self.subTest(repr(value)), self.assertRaises(ValueError):
                canonical({"value": value})
        holder = next(iter(HOLDERS.values()))
        empty = [{name: ""} for name in ("cap", "aud", "tool", "nonce")]
        for change in (*empty, {"jti": "short"}, {"jti": "with a space in it"}, {"tool": "\ud800"}):
            call: dict[str, Any] = {"cap": "cap_1", "aud": "a", "tool": "a:b", "arguments": {}, **change}
            with self.subTest(change), self.assertRaises(ValueError):
                holder.prove(**call)

    def test_what_is_asked_is_written_out(self) -> None:
        holder = next(iter(HOLDERS.values()))
        ask = {"holder": {"type": "agent", "id": "a"}, "audience": "b", "tools": ["x", "b:y"], "arguments": {"t": "s"}}
        body = holder.request({**ask, "proof": "old"}, "http://pdp")
        self.assertEqual(body["tools"], ["b:x", "b:y"])
        self.assertEqual(body["arguments"], {"t": {"constraint_type": "exact", "value": "s"}})
        self.assertEqual(said(body["proof"])["req"], hash_request(body))
        self.assertEqual(said(body["proof"])["aud"], "http://pdp")
        nothing: list[dict[str, Any]] = [{"max_depth": 0}, {"offline": False}]
        for more in nothing:
            self.assertEqual(hash_request({**body, **more}), hash_request(body))
        others: list[dict[str, Any]] = [{"max_depth": 1}, {"offline": True}, {"max_uses": 0}]
        for other in others:
            self.assertNotEqual(hash_request({**body, **other}), hash_request(body))


if __name__ == "__main__":
    unittest.main()
