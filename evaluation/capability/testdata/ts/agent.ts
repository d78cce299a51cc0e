import { createRemoteJWKSet, exportJWK, generateKeyPair } from "jose";
import { Holder, verifyToken } from "./holder.js";

const [service = "", credential = ""] = process.argv.slice(2); // the service's public_url, and an API key
const post = async (path: string, body: unknown): Promise<any> => {
  const headers = { "Content-Type": "application/json", Authorization: `Bearer ${credential}` };
  return (await fetch(service + path, { method: "POST", headers, body: JSON.stringify(body) })).json();
};

const { privateKey } = await generateKeyPair("EdDSA", { crv: "Ed25519", extractable: true });
const holder = new Holder(await exportJWK(privateKey));
const tool = "agent-b:restart", subject = { type: "agent", id: "agent-a" };
const grant = await post("/v1/capabilities", await holder.request({
  tenant_id: "default", holder: subject, audience: "agent-b", tools: [tool], duration: 600,
  arguments: { target: { constraint_type: "exact", value: "staging" } },
}, service));
console.log("granted", grant.granted, grant.tools.join());
const claims = await verifyToken(grant.token, createRemoteJWKSet(new URL(service + "/.well-known/jwks.json")), service);
console.log("token of", claims.sub, "for", claims.aud);

// What follows is the agent's in its first line, and its PEP's in the rest.
const call = async (args: { target: string }, nonce?: string, proof?: string) => {
  proof ??= await holder.prove({ cap: claims.jti!, aud: "agent-b", tool, args, nonce });
  const context = { arguments: args, capability: { token: grant.token, proof } };
  const answer = await post("/v1/authorize", {
    tenant_id: "default", actor: { actor_type: subject.type, actor_id: subject.id }, action: "tool.invoke", resource: { type: "tool", id: tool }, context,
  });
  return { proof, nonce: answer.capability.nonce, says: answer.allow ? "allowed" : answer.capability.reason };
};
const first = await call({ target: "staging" });
console.log("first call", first.says);
const again = first.says === "nonce_required" ? await call({ target: "staging" }, first.nonce) : first;
console.log("with its nonce", again.says);
console.log("once more", (await call({ target: "staging" }, again.nonce, again.proof)).says);
console.log("another target", (await call({ target: "production" }, again.nonce ?? first.nonce)).says);
