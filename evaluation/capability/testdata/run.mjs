// Reads a case a line, and writes an answer a line: what holder.mjs makes of it.
import { createPrivateKey } from "node:crypto";
import { createInterface } from "node:readline";
import { canonical, hashArguments, hashRequest, Holder } from "../holder.mjs";

const answers = {
  arguments: ({ json }) => ({ sent: JSON.stringify(JSON.parse(json)), jcs: canonical(JSON.parse(json)), hash: hashArguments(JSON.parse(json)) }),
  body: ({ json }) => ({ hash: hashRequest(JSON.parse(json)) }),
  request: ({ json, key, at, issuer }) => {
    const body = new Holder(createPrivateKey({ key, format: "jwk" })).request(JSON.parse(json), issuer, { iat: at });
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
