// Reads a case a line, and writes an answer a line: what holder.mjs makes of it.
import { createPrivateKey, createPublicKey, verify } from "node:crypto";
import { createInterface } from "node:readline";
import { inflateSync } from "node:zlib";
import { canonical, hashArguments, hashRequest, Holder } from "../holder.mjs";

// The states of places in a status list that the key signed, in the order of the places; "" of what is no list.
function states(text, { d, ...jwk }, places) {
  try {
    const [header, payload, signature, rest] = text.split(".");
    const said = JSON.parse(String(Buffer.from(header, "base64url")));
    const good = verify(null, Buffer.from(`${header}.${payload}`), createPublicKey({ key: jwk, format: "jwk" }), Buffer.from(signature, "base64url"));
    const { sub, iat, exp, ttl, status_list: { bits, lst } } = JSON.parse(String(Buffer.from(payload, "base64url")));
    const known = said.alg === "EdDSA" && said.typ === "statuslist+jwt" && said.kid === jwk.kid && Object.keys(said).length === 3;
    const whole = [iat, exp, ttl].every((n) => Number.isInteger(n) && n > 0) && typeof sub === "string" && bits === 2;
    if (!good || !known || !whole || rest !== undefined || /\s/.test(text)) return "";
    const list = inflateSync(Buffer.from(lst, "base64url"), { maxOutputLength: 16384 });
    return places.map((n) => (list[n >> 2] >> ((n & 3) * 2)) & 3).join(",");
  } catch {
    return "";
  }
}

const answers = {
  list: ({ json, key, token }) => ({ sent: states(token, key, JSON.parse(json)) }),
  arguments: ({ json }) => ({ sent: JSON.stringify(JSON.parse(json)), jcs: canonical(JSON.parse(json)), hash: hashArguments(JSON.parse(json)) }),
  body: ({ json, parent }) => ({ hash: hashRequest(JSON.parse(json), parent) }),
  request: ({ json, key, at, issuer, parent }) => {
    const body = new Holder(createPrivateKey({ key, format: "jwk" })).request(JSON.parse(json), issuer, { iat: at, parent });
    return { sent: JSON.stringify(body) };
  },
  call: ({ json, key, at, token, tool, audience, nonce }) => ({
    sent: new Holder(createPrivateKey({ key, format: "jwk" })).prove(token, tool, JSON.parse(json), { iat: at, audience, nonce }),
  }),
};

for await (const line of createInterface({ input: process.stdin })) {
  const c = JSON.parse(line);
  process.stdout.write(JSON.stringify(answers[c.of](c)) + "\n");
}
