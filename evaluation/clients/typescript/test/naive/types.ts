// Careless lines. `tsc --strict` refuses each line that stands below a comment with the code of an error, by that error, and
// no other line. naive.test.ts runs those that JavaScript or tsc takes.
import express from "express";
import { Hono } from "hono";
import { Client, type Permit, type Question } from "policy-service-client";
import { protect } from "policy-service-client/express";
import { protect as guard } from "policy-service-client/hono";

declare const q: Question;
declare const body: unknown;
declare function act(): void;
declare function acts(): Promise<string>;

const client = new Client({ url: "https://pdp.example" });

// An answer without its branches.
// TS2801 TS2554
if (client.evaluate(q)) act();
// TS2554
if (await client.evaluate(q)) act();
// TS2571 TS2554
if ((await client.evaluate(q)).allow) act();
// TS2345
await client.evaluate(q, { allow: act });
// TS2345
await client.evaluate(q, { deny: act });
// TS2345
await client.evaluate(q, {});
// TS2345
await client.evaluate(q, act, act);
// TS2801
if (client.evaluate(q, { allow: () => true, deny: () => false })) act();

// A promise is no permit.
// TS2801
if (client.authorize(q)) act();
// TS2801
client.authorize(q) && act();
// TS2801
client.authorize(q) ? act() : undefined;
// TS2367
if (client.authorize(q) === true) act();
const promise = client.authorize(q);
// TS2801
if (promise) act();
// TS2801
if (Math.random() < 0.5 && client.authorize(q)) act();
// TS2801
if (Math.random() < 0.5 || client.authorize(q)) act();
// TS2801
if (client.authorize(q).catch(() => false)) act();
// TS2322
const may: boolean = client.authorize(q);
// TS2322
const mayToo = (): boolean => client.authorize(q);

// Lines that tsc takes: no type is refused after `!` but void. They are errors in the log, which naive.test.ts looks for.
if (!client.authorize(q)) throw new Error("no");
if (![q].every((q) => client.authorize(q))) throw new Error("no");
while (client.authorize(q)) act();
client.authorize(q) || act();
client.authorize(q);

// A permit has no decision to read: that it is there is the yes.
const permit = await client.authorize(q);
// TS2339
if (permit.allow) act();
// TS2551
if (permit.decision) act();
// TS2367
if (permit === true) act();
// TS2339
if (!(await client.authorize(q)).denied) act();

// No permit is made by hand.
// TS2741
const forged: Permit = { requestId: "r", context: {} };
// TS2741
const copied: Permit = JSON.parse("{}") as { requestId: string; context: {} };

// An act that is missing, or that ran already.
// TS2554
await client.enforce(q);
// TS2345
await client.enforce(q, act());
// TS2345
await client.enforce(q, acts());
// TS2345
await client.enforceAll(q, act);
// TS2554
await client.enforceAll([q]);
// TS2801
if (client.enforceAll([q], act)) act();

// A batch.
// TS2554
if ((await client.evaluateBatch([q])).every(Boolean)) act();
// TS2345
await client.evaluateBatch([q], { allow: act });
// TS2801
if (client.evaluateBatch([q], { allow: () => true, deny: () => false })) act();
// TS2322
await client.evaluateBatch([q], { allow: act, deny: act }, { semantic: "any" });

// A no has no decision either.
// TS2339
await client.evaluate(q, { allow: act, deny: (error) => error.allow && act() });
// TS2551
await client.evaluate(q, { allow: act, deny: (error) => error.decision && act() });

// A question that another program wrote, or that says more than a question.
// TS2345
await client.enforce(body, act);
// TS2353
await client.enforce({ ...q, options: { evaluations_semantic: "permit_on_first_permit" } }, act);
// TS2353
await client.enforce({ ...q, evaluations: [] }, act);
// TS2322
await client.enforce({ subject: "alice", action: q.action, resource: q.resource }, act);
// TS2322
await client.enforce({ subject: q.subject, action: "read", resource: q.resource }, act);
// TS2345
await client.enforce({ subject: q.subject, action: q.action }, act);
// TS2322
await client.enforce({ ...q, context: { at: new Date() } }, act);

// Options.
// TS2322
await client.enforce(q, act, { wait: "4h" });
// TS2322
await client.enforce(q, act, { wait: true });
// TS2345
new Client({});
// TS2345
new Client("https://pdp.example");
// TS2322
new Client({ url: "https://pdp.example", handlers: { notification: true } });

// Routes.
const app = express();
// TS2769
app.get("/", protect);
// TS2554
app.get("/", protect(client));
// TS2345
app.get("/", protect(client, q));
// TS2322
app.get("/", protect(client, () => undefined));
// TS2322
app.get("/", protect(client, () => true));
// TS2322
app.get("/", protect(client, () => q, { wait: true }));
const hono = new Hono();
// TS2345
hono.get("/", guard(client, q));
// TS2322
hono.get("/", guard(client, () => undefined));

void [forged, copied, may, mayToo];
