import assert from "node:assert/strict";
import { test } from "node:test";
import { no, pdp, question } from "./pdp.js";

async function all<T>(found: AsyncIterable<T>): Promise<T[]> {
	const values: T[] = [];
	for await (const value of found) values.push(value);
	return values;
}

const document = (id: string) => ({ type: "document", id });

test("a search goes from page to page, as far as it is asked for", async (t) => {
	const { client, asked } = await pdp(t, ({ body }) => {
		const n = Number(body.page?.token ?? 0);
		return { json: { results: n === 1 ? [] : [document(`${n}`)], page: { next_token: n < 3 ? `${n + 1}` : "" } } };
	});
	const found = client().searchResources(question);
	assert.deepEqual(await all(found), [document("0"), document("2"), document("3")]);
	assert.deepEqual(await all(found), [document("0"), document("2"), document("3")]);
	assert.equal(asked.length, 8);
	assert.equal(asked[0]?.path, "/access/v1/search/resource");
	assert.deepEqual(asked[0]?.body, { ...question, resource: { type: "document" } });
	assert.deepEqual(asked[3]?.body.page, { token: "3" });
	for await (const { id } of client().searchResources(question)) {
		assert.equal(id, "0");
		break;
	}
	assert.equal(asked.length, 9);
});

test("subjects and actions are found alike", async (t) => {
	const { client, asked } = await pdp(t, ({ path }) => ({
		json: { results: path.endsWith("action") ? [{ name: "read" }] : [{ type: "user", id: "bob" }] },
	}));
	assert.deepEqual(await all(client().searchActions(question)), [{ name: "read" }]);
	assert.deepEqual(await all(client().searchSubjects(question)), [{ type: "user", id: "bob" }]);
	assert.equal(asked[0]?.body.action, undefined);
	assert.deepEqual(asked[1]?.body.subject, { type: "user" });
});

test("a page that is odd ends the search with an error", async (t) => {
	const pages: [unknown, string][] = [
		[[], "odd"],
		[{}, "odd"],
		[{ results: {} }, "odd"],
		[{ results: ["x"] }, "odd"],
		[{ results: [{ type: "document" }] }, "odd"],
		[{ results: [{ type: "user", id: "x" }] }, "odd"],
		[{ results: [document("1")], page: { next_token: 1 } }, "odd"],
		[{ results: [document("1")], obligations: { x: true } }, "obligated"],
		[{ results: [], page: { next_token: "same" } }, "odd"],
	];
	for (const [json, kind] of pages) {
		const { client } = await pdp(t, () => ({ json }));
		const seen: unknown[] = [];
		const search = async () => {
			for await (const one of client().searchResources(question)) seen.push(one);
		};
		assert.equal((await no(search())).kind, kind, JSON.stringify(json));
		assert.equal(seen.length, 0);
	}
	const owing = { results: [document("1"), { ...document("2"), context: { obligations: [{ id: "1", type: "x" }] } }] };
	const july = await pdp(t, () => ({ json: owing }));
	assert.equal((await no(all(july.client({ obligations: "july" }).searchResources(question)))).kind, "obligated");
	const { client, asked } = await pdp(t, () => ({ json: { results: [] } }));
	for (const bad of [undefined, { ...question, options: {} }, { ...question, subject: { type: "user" } }, { ...question, resource: {} }]) {
		assert.equal((await no(all(client().searchResources(bad as never)))).kind, "not_asked");
	}
	assert.equal(asked.length, 0);
});
