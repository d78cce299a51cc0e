// @ts-check
// A holder of capabilities in JavaScript, with types for TypeScript: it asks for capabilities, and proves its calls. It
// needs nothing but Node. Copy it; pdp/capability/AGENT.md says how it is used. The tests of this package hold it to
// testdata/vectors.json.
import { createHash, createPrivateKey, createPublicKey, randomUUID, sign } from "node:crypto";

/** @param {string | Buffer} bytes */
const base64url = (bytes) => Buffer.from(bytes).toString("base64url");

/** @param {string} text */
const digest = (text) => createHash("sha256").update(text).digest("base64url");

/** @param {unknown} value @returns {string} */
function sorted(value) {
  if (Array.isArray(value)) return `[${value.map(sorted).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const members = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)); // by UTF-16 code units, as RFC 8785 has it
  return `{${members.map(([name, v]) => `${JSON.stringify(name)}:${sorted(v)}`).join(",")}}`;
}

/**
 * The form of RFC 8785 of what JSON.stringify sends of a value.
 * @param {unknown} value
 */
export const canonical = (value) => sorted(JSON.parse(JSON.stringify(value)));

/**
 * The hash of a call's arguments that a proof holds. Send the arguments as JSON.stringify writes them: a text that you
 * read may have numbers that JSON.parse rounds.
 * @param {object} [args] none is {}
 */
export const hashArguments = (args = {}) => digest(canonical(args));

/** The thumbprint of a key, RFC 7638. @param {Record<string, any>} key */
const thumbprint = ({ kty, crv, x, y }) => digest(canonical({ kty, crv, x, y }));

/**
 * The hash of a request that its proof holds. The request is as Holder.request returns it.
 * @param {Record<string, any>} body
 * @param {string} [parent] the id of the capability that is handed on by it
 */
export function hashRequest(body, parent) {
  const { tools, audience, duration, valid_from, valid_until, max_uses, arguments: args, channel, key, encrypt_to, holder } = body;
  const terms = { tools, audience, duration, valid_from, valid_until, max_uses, arguments: args };
  return digest(canonical({
    ...terms,
    max_depth: body.max_depth || undefined,
    offline: body.offline || undefined,
    channel: channel && { session: digest(channel.session) }, // as a token has it
    encrypt_to: encrypt_to && thumbprint(encrypt_to),
    jkt: thumbprint(key),
    ...(parent && { parent, holder: { type: holder.type, id: holder.id } }),
  }));
}

export class Holder {
  #key;
  /** @type {"EdDSA" | "ES256"} */
  #alg;

  /** @param {import("node:crypto").KeyObject | string} key private, of Ed25519 or P-256; a string is PEM */
  constructor(key) {
    this.#key = typeof key === "string" ? createPrivateKey(key) : key;
    this.jwk = createPublicKey(this.#key).export({ format: "jwk" });
    const { crv } = this.jwk;
    if (crv !== "Ed25519" && crv !== "P-256") throw new Error("a holder's key is neither of Ed25519 nor of P-256; make an Ed25519 key");
    this.#alg = crv === "Ed25519" ? "EdDSA" : "ES256";
  }

  /** @param {string} typ @param {object} payload */
  #sign(typ, payload) {
    const signed = `${base64url(canonical({ alg: this.#alg, typ }))}.${base64url(canonical(payload))}`;
    const hash = this.#alg === "ES256" ? "sha256" : null;
    return `${signed}.${base64url(sign(hash, Buffer.from(signed), { key: this.#key, dsaEncoding: "ieee-p1363" }))}`;
  }

  /**
   * The body for POST /v1/capabilities: what is asked for, with the key and a proof of it.
   * @param {Record<string, any> & {audience: string, tools: string[]}} ask
   * @param {string} issuer the service's own URL for the tenant
   * @param {{iat?: number, jti?: string, parent?: string}} [is] parent is the capability that is handed on: the body is for
   * its /delegate, and ask.key is the key of the new holder
   */
  request(ask, issuer, { iat = Math.floor(Date.now() / 1000), jti = randomUUID(), parent } = {}) {
    const key = parent ? ask.key : this.jwk;
    const whole = { ...ask, tools: ask.tools.map((t) => (t.includes(":") ? t : `${ask.audience}:${t}`)), key };
    /** @type {Record<string, any>} */
    const body = JSON.parse(JSON.stringify(whole));
    for (const [name, c] of Object.entries(body.arguments ?? {})) {
      const typed = c !== null && typeof c === "object" && Object.hasOwn(c, "constraint_type");
      if (!typed) body.arguments[name] = { constraint_type: "exact", value: c };
    }
    body.proof = this.#sign("cap-request+jwt", { aud: issuer, iat, jti, req: hashRequest(body, parent) });
    return body;
  }

  /**
   * The proof of one call. A second call needs a second proof.
   * @param {string} token
   * @param {string} tool its id, such as agent-b:restart
   * @param {object} [args] as the tool gets them
   * @param {{nonce?: string, audience?: string, iat?: number, jti?: string}} [is] audience is the gateway's, if it has one
   */
  prove(token, tool, args, { nonce, audience, iat = Math.floor(Date.now() / 1000), jti = randomUUID() } = {}) {
    const said = JSON.parse(String(Buffer.from(token.split(".")[1], "base64url")));
    const payload = { args: hashArguments(args), aud: audience ?? said.aud, cap: said.jti, iat, jti, nonce, tool };
    return this.#sign("cap-proof+jwt", payload);
  }
}
