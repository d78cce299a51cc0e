import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, request, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { after, describe, test } from "node:test";
import { getRequestListener } from "@hono/node-server";
import express, { type ErrorRequestHandler } from "express";
import express4 from "express4";
import { Hono } from "hono";
import { HTTPException } from "hono/http-exception";
import { protect, type Refusal } from "../src/express.js";
import type { Asks, RouteQuestion } from "../src/hono.js";
import { protect as guard } from "../src/hono.js";
import { Denied, type Question } from "../src/index.js";
import { pdp, type Reply } from "./pdp.js";

type Ask = (id: string) => RouteQuestion | Promise<RouteQuestion>;
type Of = Asks<unknown>;

/** A route that is protected: acted is how often it ran, errors are those that the app's own handler saw. */
interface App {
	url: string;
	acted: number;
	errors: unknown[];
}

/** With the app's own error handler, and how long a request waits for people. */
interface How {
	own?: boolean;
	wait?: number;
}

async function listen(server: Server): Promise<string> {
	server.listen(0, "127.0.0.1");
	await once(server, "listening");
	after(() => {
		server.closeAllConnections();
		server.close();
	});
	return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const says =
	(answer: unknown, status = 200, headers: Record<string, string> = {}) =>
	(): Reply => ({ json: answer, status, headers });

const question = (id: string): Question => ({
	subject: { type: "user", id: "ann" },
	action: { name: "read" },
	resource: { type: "doc", id },
});

/** How each framework protects the route /ID: with its own way to show errors, or with a handler of the app's. */
const frameworks: Record<string, (client: Of, ask: Ask, how?: How) => Promise<App>> = {
	express: (client, ask, how) => byExpress(express, client, ask, how),
	express4: (client, ask, how) => byExpress(express4, client, ask, how),
	hono: async (client, ask, how = {}) => {
		const app: App = { url: "", acted: 0, errors: [] };
		const hono = new Hono();
		hono.get(
			"/:id",
			guard<"/:id">(client, (c) => ask(c.req.param("id")), how),
			(c) => {
				app.acted++;
				return c.text(`done ${typeof c.var.permit.requestId}`);
			},
		);
		if (how.own) {
			hono.onError((error, c) => {
				app.errors.push(error);
				return error instanceof HTTPException ? c.text(error.message, error.status) : c.text("failed", 500);
			});
		}
		app.url = await listen(createServer(getRequestListener(hono.fetch)));
		return app;
	},
};

async function byExpress(framework: typeof express, client: Of, ask: Ask, how: How = {}): Promise<App> {
	const app: App = { url: "", acted: 0, errors: [] };
	const made = framework();
	made.get(
		"/:id",
		protect(client, (req) => ask(req.params.id ?? ""), how),
		(_, res) => {
			app.acted++;
			res.send(`done ${typeof res.locals.permit.requestId}`);
		},
	);
	made.get("/:id", (_, res) => {
		app.acted++;
		res.send("another route"); // which a guard may never let a request on to
	});
	const handler: ErrorRequestHandler = (error, _req, res, _next) => {
		app.errors.push(error);
		res.status(error.status ?? 500).send(error.message);
	};
	if (how.own) made.use(handler);
	made.set("env", "test"); // which shows the stack as development does, and logs nothing
	app.url = await listen(createServer(made));
	return app;
}

for (const [name, protectedBy] of Object.entries(frameworks)) {
	describe(name, { concurrency: true }, () => {
		test("a yes runs the route, with the permit", async (t) => {
			const { client, asked } = await pdp(t, says({ decision: true }));
			const app = await protectedBy(client(), question);
			const got = await fetch(`${app.url}/d1`);
			assert.deepEqual([got.status, await got.text(), app.acted], [200, "done string", 1]);
			assert.equal(asked[0]?.body.resource.id, "d1");
		});

		test("a no is 403, and shows no reason but the one for users", async (t) => {
			const context = { reason: "secret_reason", reason_admin: { en: "secret" }, reason_user: { en: "Ask Mia." } };
			const { client } = await pdp(t, says({ decision: false, context }));
			for (const own of [false, true]) {
				const app = await protectedBy(client(), question, { own });
				const got = await fetch(`${app.url}/d1`);
				const text = await got.text();
				assert.deepEqual([got.status, app.acted, text.includes("secret")], [403, 0, false], text);
				if (own) {
					const [error] = app.errors as (Refusal | HTTPException)[];
					assert.equal(text, error?.message);
					assert.ok(error?.cause instanceof Denied && error.cause.kind === "denied");
				}
			}
		});

		test("a no without a reason for users says that access is denied", async (t) => {
			const { client } = await pdp(t, says({ decision: false, context: { reason: "secret_reason" } }));
			const app = await protectedBy(client(), question, { own: true });
			assert.equal(await (await fetch(`${app.url}/d1`)).text(), "access denied");
		});

		test("a PDP that cannot answer is 503, with its Retry-After", async (t) => {
			const { client } = await pdp(t, says({ error: "busy" }, 503, { "Retry-After": "7" }));
			const app = await protectedBy(client(), question);
			const got = await fetch(`${app.url}/d1`);
			assert.deepEqual([got.status, got.headers.get("Retry-After"), app.acted], [503, "7", 0]);
		});

		test("a PDP that does not answer, or answers nonsense, is 503", async (t) => {
			const silent: Reply = (res) => void res.destroy();
			for (const answer of [() => silent, says({ decision: 1 }), says([true]), says({ decision: true }, 204)]) {
				const { client } = await pdp(t, answer);
				const app = await protectedBy(client(), question);
				const got = await fetch(`${app.url}/d1`);
				assert.deepEqual([got.status, got.headers.get("Retry-After"), app.acted], [503, null, 0]);
			}
		});

		test("a question that cannot be made runs nothing, whatever it throws", async (t) => {
			const { client, asked } = await pdp(t, says({ decision: true }));
			for (const thrown of [undefined, null, "route", "router", 0, new Error("no user")]) {
				const app = await protectedBy(client(), () => {
					throw thrown;
				});
				assert.equal((await fetch(`${app.url}/d1`)).status, 500, String(thrown));
				assert.equal(app.acted, 0, String(thrown));
			}
			assert.equal(asked.length, 0);
		});

		test("the tenant of a question, or the client of a request, is the one that is asked", async (t) => {
			const { client, asked } = await pdp(t, says({ decision: true }));
			const c = client();
			const clients: [Of, Ask][] = [
				[c, (id) => ({ ...question(id), tenant: "a" })],
				[c.forTenant("b"), async (id) => ({ ...question(id), tenant: "a" })],
				[() => c.forTenant("a"), question],
				[async () => c.forTenant("a"), question],
			];
			for (const [of, ask] of clients) assert.equal((await fetch(`${(await protectedBy(of, ask)).url}/d1`)).status, 200);
			assert.deepEqual(
				asked.map(({ path, body }) => [path, body.tenant]),
				clients.map(() => ["/tenants/a/access/v1/evaluation", undefined]),
			);
		});

		test("without the tenant or the client that it is to have, a request runs nothing, and nobody is asked", async (t) => {
			const { client, asked } = await pdp(t, says({ decision: true }));
			const c = client();
			const fails = () => {
				throw new Error("no such user");
			};
			const clients: unknown[] = [() => undefined, async () => null, () => "a", () => ({})];
			const tenants: unknown[] = [undefined, null, "", "a/b", "..", ["a"], 1];
			const apps = [
				...clients.map((of) => protectedBy(of as Of, question)),
				...tenants.map((tenant) => protectedBy(c, (id) => ({ ...question(id), tenant }) as RouteQuestion)),
			];
			for (const app of await Promise.all(apps)) assert.deepEqual([(await fetch(`${app.url}/d1`)).status, app.acted], [503, 0]);
			for (const of of [fails, async () => fails()]) {
				const app = await protectedBy(of as Of, question);
				assert.deepEqual([(await fetch(`${app.url}/d1`)).status, app.acted], [500, 0]);
			}
			assert.equal(asked.length, 0);
		});

		test("a question that is none is 503, and nothing is asked", async (t) => {
			const { client, asked } = await pdp(t, says({ decision: true, evaluations: [{ decision: true }] }));
			const handedThrough: unknown[] = [
				undefined,
				null,
				true,
				{},
				"d1",
				{ ...question("d1"), options: {} },
				{ evaluations: [question("d1")] },
			];
			for (const body of handedThrough) {
				const app = await protectedBy(client(), () => body as Question);
				assert.equal((await fetch(`${app.url}/d1`)).status, 503, JSON.stringify(body));
				assert.equal(app.acted, 0);
			}
			assert.equal(asked.length, 0);
		});

		test("a wait that runs out says so, and a later try finds the approval of the first", async (t) => {
			let decided = false;
			const later = () => new Date(Date.now() + 60_000).toISOString();
			const offer = { evaluation_id: "d1", evaluated_at: later(), access_request: { expires_at: later(), binding_token: "b" } };
			const { client, asked } = await pdp(t, ({ path, headers, body }) => {
				const task = { id: "t1", status_endpoint: `http://${headers.host}/tasks/t1`, expires_at: later() };
				const approved = { status: "approved", result: { mode: "reevaluate", approval: { id: "a1", approved_until: later() } } };
				if (path.startsWith("/tasks/")) return () => {}; // it holds its answer back
				if (path.startsWith("/access/v1/requests")) {
					const { result, status } = decided ? approved : { status: "pending", result: undefined };
					return { status: 202, json: { task: { ...task, status }, ...(result && { result }) } };
				}
				if (body.context?.approval) return { json: { decision: true, context: { approval: { id: "a1" } } } };
				return { json: { decision: false, context: { reason: "approval_required", ...offer } } };
			});
			const app = await protectedBy(client(), question, { own: true, wait: 100 });
			const first = await fetch(`${app.url}/d1`);
			assert.deepEqual([first.status, await first.text(), app.acted], [403, "waiting for approval; try again later", 0]);
			decided = true;
			assert.deepEqual([(await fetch(`${app.url}/d1`)).status, app.acted], [200, 1]);
			const filed = asked.filter(({ path }) => path.startsWith("/access/v1/requests"));
			assert.deepEqual(
				filed.map(({ headers }) => headers["idempotency-key"]),
				[undefined, undefined],
			);
		});

		test("a request that is aborted gives up what it waits for", { timeout: 20_000 }, async (t) => {
			const { promise: left, resolve: leave } = Promise.withResolvers<void>();
			const { promise: held, resolve: hold } = Promise.withResolvers<void>();
			const { client } = await pdp(t, () => (res) => {
				res.once("close", () => leave());
				hold();
			});
			const app = await protectedBy(client({ timeout: 60_000 }), question);
			const browser = request(`${app.url}/d1`).on("error", () => {});
			browser.end();
			await held;
			browser.destroy();
			await left;
			assert.equal(app.acted, 0);
		});
	});
}
