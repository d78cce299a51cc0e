"""Capabilities: a holder's key, its proofs, and the token that it shows. It needs the extra cryptography."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import secrets
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, cast
from urllib.parse import quote

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, utils
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from . import _json
from ._effects import Flow, Sleep
from .approvals import Wait, wait_of
from .errors import AuthorizationError, failure, not_asked, odd
from .types import CapabilityAsk, Obligation

if TYPE_CHECKING:
    from ._core import Link

__all__ = ["Capability", "CapabilityAsk", "Holder", "canonical", "hash_arguments", "hash_request"]

_MAX_DEPTH = _json.MAX_DEPTH
_MAX_TOKEN, _MAX_MEMBER = 8192, 2048  # bytes


def canonical(value: Any) -> str:
    """The form of RFC 8785 of a JSON value. A ValueError refuses a number that it rounds, and all that is no JSON."""
    return _canonical(value, 0)


def _canonical(value: Any, depth: int) -> str:
    if depth > _MAX_DEPTH:
        raise ValueError(f"the value nests more than {_MAX_DEPTH} deep")
    if value is None or value is True or value is False:
        return {None: "null", True: "true", False: "false"}[value]
    if type(value) is str:
        value.encode()  # refuses a lone surrogate
        return json.dumps(value, ensure_ascii=False)
    if type(value) is int or type(value) is float:
        return _number(value)
    if type(value) is list or type(value) is tuple:
        return "[" + ",".join(_canonical(v, depth + 1) for v in value) + "]"
    if type(value) is not dict or any(type(name) is not str for name in value):
        raise ValueError(f"a {type(value).__name__} is no JSON, or has names that are no strings")
    names = sorted(value, key=_utf16)
    return "{" + ",".join(_canonical(n, depth) + ":" + _canonical(value[n], depth + 1) for n in names) + "}"


def _utf16(name: str) -> bytes:
    return name.encode("utf-16-be")


def _number(value: int | float) -> str:
    """A number as ECMAScript writes it."""
    try:
        double = float(value)
    except OverflowError:
        double = math.inf
    if not math.isfinite(double) or double != value:
        raise ValueError("a number is no double, so that no proof can be about it; send it as a string")
    sign, digits, exponent = "-" if double < 0 else "", *_digits(abs(double))
    if not digits:
        return "0"
    if 0 < exponent <= 21:
        whole, rest = digits[:exponent].ljust(exponent, "0"), digits[exponent:]
        return sign + whole + ("." + rest if rest else "")
    if -6 < exponent <= 0:
        return sign + "0." + "0" * -exponent + digits
    rest = "." + digits[1:] if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{rest}e{exponent - 1:+d}"


def _digits(double: float) -> tuple[str, int]:
    """The shortest digits of a double, to be read behind "0.", and the power of ten."""
    mantissa, _, power = repr(double).partition("e")
    whole, _, rest = mantissa.partition(".")
    digits = (whole + rest).lstrip("0")
    exponent = len(whole + rest) - len(digits)
    return digits.rstrip("0"), len(whole) - exponent + int(power or 0)


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    """The bytes of the one base64url text of them."""
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if _encode(raw) != text:
        raise ValueError("not base64url")
    return raw


def _digest(text: str) -> str:
    return _encode(hashlib.sha256(text.encode()).digest())


def hash_arguments(arguments: Mapping[str, Any]) -> str:
    """The hash of a call's arguments that its proof holds."""
    return _digest(canonical(dict(arguments)))


def _thumbprint(jwk: Mapping[str, Any]) -> str:
    return _digest(canonical({name: jwk[name] for name in ("crv", "kty", "x", "y") if name in jwk}))


def hash_request(body: Mapping[str, Any], parent: str | None = None) -> str:
    """The hash of a request for a capability that its proof holds. parent is the capability that is handed on by it."""
    names = ("tools", "audience", "duration", "valid_from", "valid_until", "max_uses", "arguments")
    terms = {name: body.get(name) for name in names}
    terms["max_depth"] = body.get("max_depth") or None
    terms["offline"] = body.get("offline") or None
    terms["jkt"] = _thumbprint(body["key"])
    if "channel" in body:
        terms["channel"] = {"session": _digest(body["channel"]["session"])}
    if "encrypt_to" in body:
        terms["encrypt_to"] = _thumbprint(body["encrypt_to"])
    if parent is not None:
        terms["parent"], terms["holder"] = parent, {n: body["holder"][n] for n in ("type", "id")}
    return _digest(canonical({name: value for name, value in terms.items() if value is not None}))


def _constraint(value: Any) -> Any:
    typed = isinstance(value, dict) and "constraint_type" in value
    return value if typed else {"constraint_type": "exact", "value": value}


class Holder:
    """The key of a holder: one for each agent, or each run of one. No text of it has the private half."""

    __slots__ = ("_alg", "_jwk", "_key")

    def __init__(self, key: ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey) -> None:
        self._key = key
        public = key.public_key()
        if isinstance(public, ed25519.Ed25519PublicKey):
            raw = public.public_bytes(Encoding.Raw, PublicFormat.Raw)
            self._alg, self._jwk = "EdDSA", {"crv": "Ed25519", "kty": "OKP", "x": _encode(raw)}
        elif isinstance(public, ec.EllipticCurvePublicKey) and isinstance(public.curve, ec.SECP256R1):
            raw = public.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
            x, y = _encode(raw[1:33]), _encode(raw[33:])
            self._alg, self._jwk = "ES256", {"crv": "P-256", "kty": "EC", "x": x, "y": y}
        else:
            raise ValueError("a holder's key is neither of Ed25519 nor of P-256; make an Ed25519 key")

    @classmethod
    def generate(cls, kind: Literal["Ed25519", "P-256"] = "Ed25519") -> Holder:
        """A new key, which lasts as long as the program unless private_jwk is kept."""
        if kind not in ("Ed25519", "P-256"):
            raise ValueError("a holder's key is Ed25519 or P-256")
        ed = kind == "Ed25519"
        return cls(ed25519.Ed25519PrivateKey.generate() if ed else ec.generate_private_key(ec.SECP256R1()))

    @classmethod
    def from_jwk(cls, jwk: Mapping[str, Any]) -> Holder:
        """The key of a private JWK."""
        try:
            raw = _decode(jwk["d"])
            if len(raw) != 32:
                raise ValueError
            if jwk.get("crv") == "Ed25519":
                holder = cls(ed25519.Ed25519PrivateKey.from_private_bytes(raw))
            else:
                holder = cls(ec.derive_private_key(int.from_bytes(raw, "big"), ec.SECP256R1()))
            if {**jwk, **holder._jwk} != dict(jwk):
                raise ValueError
        except (KeyError, TypeError, ValueError, UnsupportedAlgorithm):
            raise ValueError("not a private JWK of Ed25519 or P-256 whose halves belong together") from None
        return holder

    @property
    def jwk(self) -> dict[str, str]:
        """The public half, as a JWK."""
        return dict(self._jwk)

    def private_jwk(self) -> dict[str, str]:
        """Both halves, to be kept where no other program can read them."""
        if isinstance(self._key, ed25519.Ed25519PrivateKey):
            raw = self._key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
        else:
            raw = self._key.private_numbers().private_value.to_bytes(32, "big")
        return {**self._jwk, "d": _encode(raw)}

    @property
    def thumbprint(self) -> str:
        """The thumbprint of the key, RFC 7638."""
        return _thumbprint(self._jwk)

    def __repr__(self) -> str:
        return f"Holder({self._jwk['crv']}, {self.thumbprint})"

    def request(
        self, ask: Mapping[str, Any], issuer: str, *, iat: int | None = None, jti: str | None = None
    ) -> dict[str, Any]:
        """The body for POST /v1/capabilities: the request, with the key and a proof of it for the service."""
        body = {name: value for name, value in ask.items() if name != "proof"}
        if "encrypt_to" in body:
            raise ValueError("this client reads no encrypted tokens; leave encrypt_to out")
        if not isinstance(body["tools"], list | tuple) or not isinstance(body["audience"], str):
            raise ValueError("tools is no list, or audience no text")
        body["key"] = self.jwk
        body["tools"] = [tool if ":" in tool else f"{body['audience']}:{tool}" for tool in body["tools"]]
        if "arguments" in body:
            body["arguments"] = {name: _constraint(value) for name, value in body["arguments"].items()}
        return self._proven(body, issuer, None, iat, jti)

    def hand_on(
        self, ask: Mapping[str, Any], parent: str, issuer: str, *, iat: int | None = None, jti: str | None = None
    ) -> dict[str, Any]:
        """The body for POST /v1/capabilities/PARENT/delegate. It is written out, and has the key of the new holder."""
        return self._proven({name: value for name, value in ask.items() if name != "proof"}, issuer, parent, iat, jti)

    def _proven(
        self, body: dict[str, Any], issuer: str, parent: str | None, iat: int | None, jti: str | None
    ) -> dict[str, Any]:
        payload = {"aud": issuer, "req": hash_request(body, parent)}
        return {**body, "proof": self._sign("cap-request+jwt", payload, iat, jti)}

    def prove(
        self,
        *,
        cap: str,
        aud: str,
        tool: str,
        arguments: Mapping[str, Any],
        nonce: str | None = None,
        iat: int | None = None,
        jti: str | None = None,
    ) -> str:
        """The proof of one call, by the id of the token. aud is the gateway's name, or else the token's audience."""
        payload = {"cap": cap, "aud": aud, "tool": tool, "args": hash_arguments(arguments)}
        if nonce is not None:
            payload["nonce"] = nonce
        if not all(type(text) is str and 0 < len(text.encode()) <= _MAX_MEMBER for text in payload.values()):
            raise ValueError("a proof needs the token's id, an audience and a tool")
        return self._sign("cap-proof+jwt", payload, iat, jti)

    def _sign(self, typ: str, payload: dict[str, Any], iat: int | None, jti: str | None) -> str:
        payload["iat"] = int(time.time()) if iat is None else iat
        payload["jti"] = secrets.token_urlsafe(24) if jti is None else jti
        if not re.fullmatch(r"[!-~]{16,128}", payload["jti"]):
            raise ValueError("the id of a proof has 16 to 128 visible characters of ASCII")
        header = f'{{"alg":"{self._alg}","typ":"{typ}"}}'
        signed = _encode(header.encode()) + "." + _encode(canonical(payload).encode())
        if isinstance(self._key, ed25519.Ed25519PrivateKey):
            signature = self._key.sign(signed.encode())
        else:
            r, s = utils.decode_dss_signature(self._key.sign(signed.encode(), ec.ECDSA(SHA256())))
            signature = r.to_bytes(32, "big") + s.to_bytes(32, "big")
        return signed + "." + _encode(signature)


class Capability:
    """A token with the key of its holder, made by request_capability, or again from a token that was kept.

    ask is what it was granted by; without it, the capability cannot be renewed. Keep the object for the calls that
    follow: it remembers the nonce that the PDP wants. A capability permits nothing by itself.
    """

    __slots__ = ("_claims", "_token", "ask", "holder", "nonce", "obligations")

    def __init__(self, token: str, holder: Holder, ask: CapabilityAsk | None = None) -> None:
        self._claims = _claims(token)
        if _thumbprint(self._claims["cnf"]["jwk"]) != holder.thumbprint:
            raise ValueError("the capability is bound to another key than the holder's")
        self._token = token
        self.holder = holder
        self.ask = ask
        self.nonce: str | None = None
        self.obligations: tuple[Obligation, ...] = ()
        """Owed for the grant, each once. They are the program's to discharge."""

    @property
    def token(self) -> str:
        """The token, to be kept out of logs."""
        return self._token

    @property
    def id(self) -> str:
        """The id, which a renewal keeps."""
        return str(self._claims["jti"])

    @property
    def audience(self) -> str:
        """The server of the tools."""
        return str(self._claims["aud"])

    @property
    def expires(self) -> datetime:
        """The end. From then on it counts no more."""
        return datetime.fromtimestamp(self._claims["exp"], UTC)

    def prove(self, question: Mapping[str, Any]) -> str:
        """The proof of the call that a question is about: its resource's id, and the arguments in its context."""
        arguments = question.get("context", {}).get("arguments", {})
        if not isinstance(arguments, Mapping):
            raise ValueError("the arguments are no object, and no proof can be about them")
        tool = question["resource"]["id"]
        return self.holder.prove(cap=self.id, aud=self.audience, tool=tool, arguments=arguments, nonce=self.nonce)

    def __repr__(self) -> str:
        return f"Capability({self.id}, for {self.audience}, until {self.expires:%Y-%m-%dT%H:%M:%SZ})"


def _claims(token: str) -> dict[str, Any]:
    """The claims of a token. Nothing is allowed by it: only the PDP knows its worth."""
    try:
        if len(token) > _MAX_TOKEN:
            raise ValueError
        header, payload, signature = token.split(".")
        _decode(signature)
        claims = _json.read_object(_decode(payload))
        read = _json.read_object(_decode(header))["typ"] == "cap+jwt"
        read = read and all(type(claims[name]) is str and claims[name] for name in ("jti", "aud"))
        datetime.fromtimestamp(claims["exp"], UTC)
        if not read or type(claims["exp"]) is not int or type(claims["cnf"]["jwk"]) is not dict:
            raise ValueError
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, OSError):
        raise ValueError("this is no token of a capability") from None
    return claims


def request_flow(
    link: Link, holder: Holder, ask: CapabilityAsk, wait: Wait | float | None, renews: str | None = None
) -> Flow[Capability]:
    """Asks for a capability, or for a new token of one, and waits for people if they have to approve it."""
    given = wait_of(wait)
    if given and given != Wait(given.timeout, join=given.join):
        raise not_asked("the wait for a capability has a timeout alone; say why as reason of what is asked for")
    timeout = given.timeout if given else None
    end = None if timeout is None else time.monotonic() + timeout
    answer = yield from _ask(link, holder, ask, renews)
    approval = answer.get("approval") if answer.get("granted") is not True else None
    if isinstance(approval, dict) and approval.get("id"):
        if timeout is None:
            raise _refused(answer, "approval_required", "people have to approve it; give wait, in seconds")
        approval_id = _text(approval["id"])
        status = yield from link.decided(approval_id, timeout)
        if status != "approved":
            raise failure("not_approved", f"the request for a capability is {status}")
        answer = yield from _ask_again(link, holder, {**ask, "approval_id": approval_id}, renews, end)
        if answer.get("granted") is not True and answer.get("approval"):
            raise failure("not_approved", "the approval counts no more")
    if answer.get("granted") is not True:
        raise _refused(answer, answer.get("reason"), "")
    return _granted(answer, holder, ask)


def renew_flow(link: Link, capability: Capability, wait: Wait | float | None) -> Flow[Capability]:
    """Asks for a new token of a capability, by the terms of its grant, and waits as request_flow does."""
    if capability.ask is None:
        raise not_asked("the capability was made without ask, and is renewed by what it was granted by; give it ask")
    return (yield from request_flow(link, capability.holder, capability.ask, wait, capability.id))


def _ask(link: Link, holder: Holder, ask: Mapping[str, Any], renews: str | None) -> Flow[dict[str, Any]]:
    try:
        body = holder.request(_json.copy(ask), link.pdp)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise not_asked(f"the request for a capability cannot be made: {error}") from None
    path = "" if renews is None else f"/{quote(renews, safe='')}/renew"
    url, secrets_ = f"{link.base}/v1/capabilities{path}", (body["proof"],)
    answer = yield from link.send("request", url, body, secrets=secrets_, statuses=(200, 201, 202), once=True)
    said: dict[str, Any] = answer.json if answer.json.get("granted") is True else answer.secrets.hidden(answer.json)
    return said


def _ask_again(
    link: Link, holder: Holder, ask: Mapping[str, Any], renews: str | None, end: float | None
) -> Flow[dict[str, Any]]:
    """Asks once people have approved. The same question gets the same token, so that a lost answer is got again."""
    while True:
        try:
            return (yield from _ask(link, holder, ask, renews))
        except AuthorizationError as error:
            pause = max(1.0, error.retry_after or 0.0)
            passing = error.kind in ("unreachable", "timed_out", "unavailable")
            if not passing or end is None or time.monotonic() + pause >= end:
                raise
        yield Sleep(pause)


def _text(value: Any) -> str:
    if type(value) is not str or not value:
        raise odd("a member of the answer is no text")
    return value


def _refused(answer: dict[str, Any], reason: Any, remedy: str) -> AuthorizationError:
    error = failure("denied", "the capability is not granted", remedy=remedy)
    error.op = "request"
    error.reason = reason if isinstance(reason, str) else None
    error.reason_user = answer["reason_user"] if isinstance(answer.get("reason_user"), str) else None
    error.context = {name: value for name, value in answer.items() if name != "token"}
    return error


def _granted(answer: dict[str, Any], holder: Holder, ask: CapabilityAsk) -> Capability:
    """The capability, only if its token is bound to the key, as the answer says."""
    kept = {name: value for name, value in _json.copy(ask).items() if name != "approval_id"}
    try:
        capability = Capability(_text(answer.get("token")), holder, cast(CapabilityAsk, kept))
    except ValueError:
        raise odd("the token is none, or of another key") from None
    owed = answer.get("obligations", [])
    if capability.id != answer.get("id") or answer.get("encrypted") or not isinstance(owed, list):
        raise odd("the token is encrypted, or of another capability, or what is owed for it cannot be read")
    capability.obligations = tuple(owed)
    return capability
