// Reads a case a line, and writes an answer a line: what jose and holder.ts make of the vectors.
import { createLocalJWKSet } from "jose";
import { createInterface } from "node:readline";
import { canonical, hash, Holder, requestHash, verifyProof, verifyToken } from "./holder.js";

const refused = (e: unknown) => ({ refused: String(e) });
const answers: { [of: string]: (c: any) => Promise<object> } = {
  arguments: async ({ json }) => ({ jcs: canonical(JSON.parse(json)), hash: await hash(JSON.parse(json)) }),
  // A request is good if its proof is, and is made once more.
  request: async ({ json, key, issuer, at, parent }) => {
    const { proof, key: public_, ...ask } = JSON.parse(json);
    const req = await requestHash({ ...ask, key: public_ }, parent);
    return verifyProof(proof ?? "", parent ? new Holder(key).jwk : public_, "cap-request+jwt").then(async (said: any) => {
      const { iat, jti } = said;
      if (canonical(said) !== canonical({ aud: issuer, iat, jti, req }) || said.iat < at - 60 || said.iat > at + 10) throw new Error("another request");
      const holder = new Holder(key);
      const made = parent ? holder.handOn({ ...ask, key: public_ }, parent, issuer, said) : holder.request(ask, issuer, said);
      return { hash: req, made: (await made).proof };
    }).catch((e) => ({ hash: req, ...refused(e) }));
  },
  token: ({ token, keys, issuer, at }) => verifyToken(token, createLocalJWKSet({ keys }), issuer, at).then((said) => ({ sub: said.sub }), refused),
  proof: async ({ token, proof, key, tool, json, audience, at }) => {
    const { cnf, jti } = JSON.parse(Buffer.from(token.split(".")[1], "base64url").toString());
    return verifyProof(proof, cnf.jwk, "cap-proof+jwt").then(async (said: any) => {
      const call = { cap: jti, aud: audience, tool, args: JSON.parse(json), nonce: said.nonce };
      const wanted = { ...call, args: await hash(call.args), iat: said.iat, jti: said.jti };
      if (canonical(said) !== canonical(wanted) || said.iat < at - 60 || said.iat > at + 10) throw new Error("another call");
      return { made: await new Holder(key).prove(call, said) };
    }).catch(refused);
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const c = JSON.parse(line);
  process.stdout.write(JSON.stringify(await answers[c.of]!(c)) + "\n");
}
