import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { inspect } from "node:util";
import { base64url } from "../src/bytes.js";
import { Capability, canonical, Holder, hash, type PrivateJwk, prove, requestHash, thumbprint } from "../src/capability.js";
import type { JsonObject, Question } from "../src/types.js";
import { no, pdp } from "./pdp.js";
import { repository } from "./repository.js";

interface Key extends PrivateJwk {
	kid: string;
}
interface Call {
	name: string;
	token: string;
	proof: string;
	tool: string;
	arguments: string;
	audience: string[];
	reason?: string;
}
const vectors = JSON.parse(readFileSync(new URL("evaluation/capability/testdata/vectors.json", repository), "utf8")) as {
	issuer: string;
	holder_keys: Key[];
	arguments: { arguments: string; jcs?: string; hash?: string; reason?: string }[];
	requests: { name: string; parent?: string; giver?: string; body: string; digest: string; reason?: string }[];
	calls: Partial<Call>[];
};
const keyOf = (print: string) => vectors.holder_keys.find((k) => k.kid === print);
const payload = (jws: string) =>
	JSON.parse(Buffer.from(jws.split(".")[1] ?? "", "base64url").toString()) as JsonObject & { iat: number; jti: string };

/** Whether a key signed a JWS that has the same two first parts as one that was made. Signatures of ES256 are never the same. */
async function same(made: string, theirs: string, key: Key): Promise<void> {
	if (key.crv === "Ed25519") return assert.equal(made, theirs);
	const [head, body, signature = ""] = made.split(".");
	assert.equal(`${head}.${body}`, theirs.split(".").slice(0, 2).join("."));
	const algorithm = { name: "ECDSA", namedCurve: "P-256" };
	const { kty, crv, x, y } = key;
	const open = await crypto.subtle.importKey("jwk", { kty, crv, x, y: y ?? "" }, algorithm, false, ["verify"]);
	const signed = new TextEncoder().encode(`${head}.${body}`);
	assert.ok(await crypto.subtle.verify({ name: "ECDSA", hash: "SHA-256" }, open, Buffer.from(signature, "base64url"), signed));
}

test("the thumbprints and hashes of the vectors", async () => {
	for (const key of vectors.holder_keys) {
		assert.equal(await thumbprint(key), key.kid);
		assert.equal((await Holder.fromJwk(key)).thumbprint, key.kid);
	}
	let hashed = 0;
	for (const { arguments: text, jcs, hash: want, reason } of vectors.arguments) {
		if (reason) continue; // a reader of JSON has rounded them before
		assert.equal(canonical(JSON.parse(text)), jcs);
		assert.equal(await hash(JSON.parse(text)), want);
		hashed++;
	}
	assert.ok(hashed >= 12);
});

test("the requests of the vectors: each digest, and each good proof once more", async () => {
	let made = 0;
	for (const { name, parent, giver, body, digest, reason } of vectors.requests) {
		const { proof, key, ...ask } = JSON.parse(body) as { proof: string; key: JsonObject } & Parameters<Holder["request"]>[0];
		assert.equal(await requestHash({ ...ask, key } as unknown as JsonObject, parent), digest, name);
		if (reason) continue;
		const jwk = keyOf(giver ?? (await thumbprint(key))) as Key;
		const holder = await Holder.fromJwk(jwk);
		const { iat, jti } = payload(proof);
		const whole = parent ? { ...ask, key } : ask;
		const again = await holder.request(whole, vectors.issuer, { iat, jti, ...(parent && { parent }) });
		await same(String(again.proof), proof, jwk);
		made++;
	}
	assert.ok(made >= 5);
});

test("the calls of the vectors: each good proof once more, from the token that was kept", async () => {
	const first = vectors.calls[0] as Call;
	let made = 0;
	for (const partial of vectors.calls) {
		const call = { ...first, ...(partial.token && !("reason" in partial) && { reason: "" }), ...partial };
		if (call.reason) continue;
		const said = payload(call.token);
		const jwk = keyOf((said.cnf as { jkt: string }).jkt) as Key;
		const holder = await Holder.fromJwk(jwk);
		const { aud, nonce, iat, jti } = payload(call.proof) as { aud: string; nonce?: string; iat: number; jti: string };
		const args = JSON.parse(call.arguments) as JsonObject;
		await same(
			await holder.prove({ cap: String(said.jti), aud, tool: call.tool, args, ...(nonce && { nonce }) }, { iat, jti }),
			call.proof,
			jwk,
		);
		const capability = Capability.from(call.token, holder);
		assert.equal(capability.id, said.jti, call.name);
		if (aud === capability.audience) {
			const question: Question = {
				subject: { type: "agent", id: "a" },
				action: { name: "tool.invoke" },
				resource: { type: "tool", id: call.tool },
				context: { arguments: args },
			};
			const { token, proof } = await prove(capability, { question, nonce, now: iat * 1000 + 999 });
			assert.equal(token, call.token);
			const { jti: fresh, ...rest } = payload(proof);
			assert.deepEqual({ ...rest, jti }, payload(call.proof));
			assert.notEqual(fresh, jti);
		}
		made++;
	}
	assert.ok(made >= 13, `only ${made} good calls`);
});

test("what is no JSON is not signed", () => {
	const itself: { a?: unknown } = {};
	itself.a = itself;
	for (const odd of [
		Number.NaN,
		Number.POSITIVE_INFINITY,
		1n,
		new Date(),
		new Map(),
		() => 1,
		[undefined],
		{ a: Symbol("a") },
		"\ud800",
		{ "\ud800": 1 },
		itself,
	]) {
		assert.throws(() => canonical(odd), TypeError);
	}
	assert.equal(canonical({ b: undefined, a: [-0, 1e21, "\u2028é"] }), '{"a":[0,1e+21,"\u2028é"]}');
	assert.equal(canonical(JSON.parse('{"__proto__":1}')), '{"__proto__":1}');
});

test("a key stays private, and keys that are none are refused", async () => {
	for (const curve of ["Ed25519", "P-256"] as const) {
		const holder = await Holder.generate(curve);
		const whole = await holder.privateJwk();
		assert.equal((await Holder.fromJwk(whole)).thumbprint, holder.thumbprint);
		for (const text of [JSON.stringify(holder), inspect(holder, { depth: 9, showHidden: true })]) assert.ok(!text.includes(whole.d));
		const other = await (await Holder.generate(curve)).privateJwk();
		for (const odd of [{ ...whole, d: other.d }, { ...whole, d: "" }, { ...whole, crv: "P-384" }, { ...holder.jwk }, { ...whole, x: "" }]) {
			await assert.rejects(Holder.fromJwk(odd as PrivateJwk), (e: Error) => e instanceof TypeError && !e.message.includes(whole.d));
		}
		await assert.rejects(holder.prove({ cap: "", aud: "a", tool: "t", args: {} }), TypeError);
		await assert.rejects(holder.prove({ cap: "c", aud: "a", tool: "t", args: {} }, { jti: "short" }), TypeError);
	}
});

test("a kept capability is what it was, and one for another key is none", async () => {
	const { token } = vectors.calls[0] as Call;
	const jwk = keyOf((payload(token).cnf as { jkt: string }).jkt) as Key;
	const holder = await Holder.fromJwk(jwk);
	const capability = Capability.from(token, holder);
	const again = Capability.from(JSON.parse(JSON.stringify(capability)), holder);
	assert.equal(JSON.stringify({ ...again }), JSON.stringify({ ...capability }));
	assert.match(inspect({ capability }), /Capability\(\S+, for \S+, until /);
	assert.ok(!inspect(capability, { showHidden: true, depth: 9 }).includes(token));
	assert.ok(!inspect(capability, { showHidden: true, depth: 9 }).includes(jwk.d) && !JSON.stringify(capability).includes(jwk.d));
	const [head = "", body = "", signature] = token.split(".");
	const with_ = (change: object) => `${head}.${base64url(JSON.stringify({ ...payload(token), ...change }))}.${signature}`;
	const refused = [
		"",
		"a.b.c",
		`${head}.${body}`,
		`${token}.`,
		`${base64url('{"typ":"JWT"}')}.${body}.${signature}`,
		with_({ exp: "1" }),
		with_({ authorization_details: [] }),
		with_({ cnf: {} }),
	];
	for (const odd of refused)
		assert.throws(
			() => Capability.from(odd, holder),
			(e: Error) => e instanceof TypeError && !e.message.includes(body || "?"),
		);
	assert.throws(() =>
		Capability.from(`${head}.${base64url(`{"jti":"x",${JSON.stringify(payload(token)).slice(1)}`)}.${signature}`, holder),
	);
	const thief = await Holder.generate();
	assert.throws(() => Capability.from(token, thief), /another key/);
});

test("a wait for a capability has an end, also where the PDP does not answer after people did", async (t) => {
	const p = await pdp(t, ({ path, body }) => {
		if (path.startsWith("/v1/approvals/")) return { json: { status: "approved" } };
		return body.approval_id ? { status: 503 } : { status: 202, json: { granted: false, approval: { id: "a1" } } };
	});
	const holder = await Holder.generate();
	const ask = { holder: { type: "agent", id: "a" }, audience: "s", tools: ["t"] };
	const error = await no(p.client().requestCapability(holder, ask, { wait: 50 }));
	assert.deepEqual([error.kind, error.task?.id], ["unavailable", "a1"]);
	assert.match(error.message, /people approved it/);
	const sent = p.asked.length;
	const damaged = { version: 1, pdp: p.url, id: "a1", status_endpoint: p.url, expires_at: "soon" } as const;
	for (const wait of [Number.NaN, -1, "60000" as never, { timeout: "60000" as never }, { timeout: 50, resume: damaged }])
		assert.equal((await no(p.client().requestCapability(holder, ask, { wait }))).kind, "not_asked");
	assert.equal(p.asked.length, sent);
});

test("an error of a refusal repeats nothing secret", async (t) => {
	const p = await pdp(t, ({ body, headers }) => {
		const said = [headers.authorization, body.proof];
		return { json: { granted: false, token: "eyJ.a.token", reason: said.join(), reason_user: said.join(), needs: said } };
	});
	const credential = "psk_of-this-client";
	const holder = await Holder.generate();
	const ask = { holder: { type: "agent", id: "a" }, audience: "s", tools: ["t"] };
	const error = await no(p.client({ credential }).requestCapability(holder, ask));
	assert.deepEqual([error.kind, error.reason], ["denied", "Bearer …,…"]);
	const whole = inspect(error, { depth: 9, showHidden: true }) + JSON.stringify(error);
	for (const secret of [credential, p.asked[0]?.body.proof, "eyJ.a.token"]) assert.ok(!whole.includes(secret));
});
