import assert from "node:assert/strict";
import { test } from "node:test";
import { Capability, Holder } from "../src/index.js";
import { no, pdp, type Reply } from "./pdp.js";

const call = {
	subject: { type: "agent", id: "bot" },
	action: { name: "tool.invoke" },
	resource: { type: "tool", id: "b:go" },
	context: { arguments: { n: 1.5 }, capability: { token: "of another", channel: { session: "s1" } } },
};

/** A capability whose token no service signed: the client leaves that to the PDP. */
async function capabilityOf(holder: Holder): Promise<Capability> {
	const part = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");
	const now = Math.floor(Date.now() / 1000);
	const details = [{ type: "tool_capability", layers: [{ tools: ["b:go"] }] }];
	const payload = { jti: "cap_1", iss: "http://x", aud: "b", sub: "bot", sub_type: "agent", iat: now, nbf: now, exp: now + 60 };
	return Capability.from(
		`${part({ typ: "cap+jwt", alg: "EdDSA" })}.${part({ ...payload, cnf: { jwk: holder.jwk }, authorization_details: details })}.c2ln`,
		holder,
	);
}

test("a capability is shown with a proof of its own each time, and once more with the nonce that the PDP wants", async (t) => {
	const capability = await capabilityOf(await Holder.generate());
	const wants = { decision: false, context: { reason: "capability_invalid", capability: { reason: "nonce_required", nonce: "n1" } } };
	const { client, asked } = await pdp(t, (_, n): Reply => ({ json: n === 1 ? wants : { decision: true } }));
	const c = client();
	await c.authorize(call, { capability });
	await c.evaluate(call, { allow: () => {}, deny: (e) => assert.fail(e) }, { capability });
	const shown = asked.map(({ body }) => body.context.capability);
	assert.equal(shown.length, 3);
	for (const { token, channel } of shown) assert.deepEqual([token, channel], [capability.token, { session: "s1" }]);
	const said = shown.map(({ proof }) => JSON.parse(Buffer.from(proof.split(".")[1], "base64url").toString()));
	assert.deepEqual(
		said.map(({ nonce }) => nonce),
		[undefined, "n1", "n1"],
	);
	assert.equal(new Set(said.map(({ jti }) => jti)).size, 3);
	assert.equal(call.context.capability.token, "of another");
	const always = await pdp(t, () => ({ json: wants }));
	assert.equal((await no(always.client().authorize(call, { capability }))).kind, "denied");
	assert.equal(always.asked.length, 2);
});

test("no error repeats the token or the proof, and a lost answer is a use that may be gone", async (t) => {
	const capability = await capabilityOf(await Holder.generate());
	let shown = { token: "", proof: "" };
	let reply: (text: string) => Reply = () => "";
	const { client, asked } = await pdp(t, ({ body }) => {
		shown = body.context.capability;
		return reply(`${shown.token} and ${shown.proof}`);
	});
	const replies: ((text: string) => Reply)[] = [
		(detail) => ({ status: 400, json: { detail } }),
		(reason) => ({ json: { decision: false, context: { reason, echoed: [{ [reason]: reason }] } } }),
		(message) => ({ json: { decision: true, context: { error: { message } } } }),
	];
	for (reply of replies) {
		const error = await no(client().authorize(call, { capability }));
		assert.ok(shown.proof.length > 100);
		const all = JSON.stringify(error) + error.message + error.stack;
		assert.ok(!all.includes(shown.token) && !all.includes(shown.proof) && all.includes("…"), all);
		assert.equal(error.spent, false);
	}
	reply = () => (response) => void response.destroy();
	const before = asked.length;
	const error = await no(client({ retries: 2 }).authorize(call, { capability }));
	assert.deepEqual([error.kind, error.spent, asked.length - before], ["unreachable", true, 1]);
});

test("a call that cannot be proved is not asked", async (t) => {
	const capability = await capabilityOf(await Holder.generate());
	const { client, asked } = await pdp(t, () => '{"decision":true}');
	const error = await no(client().authorize({ ...call, context: { arguments: ["no object"] } }, { capability }));
	assert.equal(error.kind, "not_asked");
	assert.equal((await no(client().authorize(call, { capability: {} as Capability }))).kind, "not_asked");
	assert.equal(asked.length, 0);
});
