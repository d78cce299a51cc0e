// A holder of capabilities by jose, and a verifier of tokens and proofs. pdp/capability/AGENT.md says how they are used.
import { base64url, calculateJwkThumbprint, compactVerify, CompactSign, importJWK, jwtVerify } from "jose";
import type { JWK, JWTPayload, JWTVerifyGetKey } from "jose";

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json | undefined };
type Members = { [name: string]: Json | undefined };

/** The form of RFC 8785 of what JSON.stringify sends of a value. */
export function canonical(value: Json): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const members = Object.entries(value).filter((m): m is [string, Json] => m[1] !== undefined);
  members.sort(([a], [b]) => (a < b ? -1 : 1)); // by UTF-16 code units
  return `{${members.map(([name, v]) => `${JSON.stringify(name)}:${canonical(v)}`).join(",")}}`;
}

const bytes = (text: string) => new TextEncoder().encode(text);
const alg = (key: JWK) => (key.crv === "P-256" ? "ES256" : "EdDSA");

const digest = async (text: string) => base64url.encode(new Uint8Array(await crypto.subtle.digest("SHA-256", bytes(text))));

export const hash = (value: Json): Promise<string> => digest(canonical(value));

/** What the proof of a request is about: of one that hands a capability on, that is the parent. */
export async function requestHash(body: Members, parent?: string): Promise<string> {
  const { tools, audience, duration, valid_from, valid_until, max_uses, arguments: args, channel, key, encrypt_to } = body;
  const { type, id } = body.holder as Members;
  return hash({
    tools, audience, duration, valid_from, valid_until, max_uses, arguments: args,
    max_depth: body.max_depth || undefined,
    offline: body.offline || undefined,
    channel: channel && { session: await digest((channel as { session: string }).session) }, // as a token has it
    encrypt_to: encrypt_to && await calculateJwkThumbprint(encrypt_to as JWK),
    jkt: await calculateJwkThumbprint(key as JWK),
    ...(parent && { parent, holder: { type, id } }),
  });
}

type Mark = { iat?: number; jti?: string };
const marked = ({ iat = Math.floor(Date.now() / 1000), jti = crypto.randomUUID() as string }: Mark) => ({ iat, jti });

export class Holder {
  readonly jwk: JWK; // the public half
  constructor(private readonly key: JWK) {
    const { kty, crv, x, y } = key;
    this.jwk = JSON.parse(JSON.stringify({ kty, crv, x, y })); // without what is undefined
  }

  private async sign(typ: string, payload: Members): Promise<string> {
    return new CompactSign(bytes(canonical(payload))).setProtectedHeader({ alg: alg(this.key), typ }).sign(await importJWK(this.key, alg(this.key)));
  }

  /** The body for POST /v1/capabilities. Tools are whole ids, and constraints have their constraint_type. */
  async request(ask: Members, issuer: string, mark: Mark = {}): Promise<Members> {
    return this.proven({ ...ask, key: this.jwk as Members }, issuer, mark);
  }

  /** The body for POST /v1/capabilities/PARENT/delegate. It has the key of the new holder. */
  async handOn(ask: Members, parent: string, issuer: string, mark: Mark = {}): Promise<Members> {
    return this.proven(ask, issuer, mark, parent);
  }

  private async proven(body: Members, issuer: string, mark: Mark, parent?: string): Promise<Members> {
    return { ...body, proof: await this.sign("cap-request+jwt", { aud: issuer, req: await requestHash(body, parent), ...marked(mark) }) };
  }

  /** The proof of one call of the holder of a token, for a gateway of some name, or else for the server of the tool. */
  async prove(call: { cap: string; aud: string; tool: string; args: Json; nonce?: string }, mark: Mark = {}): Promise<string> {
    return this.sign("cap-proof+jwt", { ...call, args: await hash(call.args), ...marked(mark) });
  }
}

/** The claims of a token. It fails if the token does not count at a moment, in seconds. */
export async function verifyToken(token: string, keys: JWTVerifyGetKey, issuer: string, now = Date.now() / 1000): Promise<JWTPayload> {
  const { payload } = await jwtVerify(token, keys, {
    algorithms: ["EdDSA"], typ: "cap+jwt", issuer, currentDate: new Date(now * 1000), clockTolerance: 10, // for nbf alone
    requiredClaims: ["sub", "aud", "exp", "iat", "nbf", "jti", "cnf", "authorization_details"],
  });
  if (payload.exp! <= now) throw new Error("expired");
  return payload;
}

/** The payload of a proof by a key. It fails if the proof has another form, or another signature. */
export async function verifyProof(proof: string, key: JWK, typ: string): Promise<Members> {
  const { payload } = await compactVerify(proof, await importJWK(key, alg(key)), { algorithms: [alg(key)] });
  const said = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(payload));
  const parts = [`{"alg":"${alg(key)}","typ":"${typ}"}`, canonical(said), base64url.decode(proof.split(".")[2]!)];
  const plain = Number.isInteger(said.iat) && /^[!-~]{16,128}$/.test(said.jti) && (said.nonce === undefined || said.nonce !== "" && typeof said.nonce === "string");
  if (!plain || parts.map((part) => base64url.encode(part)).join(".") !== proof) throw new Error("not in its one form");
  return said;
}
