import { ofAll, qualified } from "./answer.js";
import { digest } from "./bytes.js";
import { type Core, contextOf, only, partOf, plain } from "./core.js";
import { failureOf, notAsked, odd } from "./errors.js";
import { isObject, members, present, textOf } from "./json.js";
import { undeclared } from "./october.js";
import { ask } from "./transport.js";
import type { Action, Entity, Json, JsonObject } from "./types.js";

/** The sought part. */
export type Sought = "subject" | "resource" | "action";

const mostPages = 10_000;
const mostEmpty = 1_000;

/**
 * Yields the permitted results, page after page, as long as it is asked for. A result that carries obligations is left out, as
 * they were not discharged. By the draft of July it is an error.
 */
export async function* search(
	core: Core,
	what: Sought,
	query: unknown,
	signal: AbortSignal | undefined,
): AsyncGenerator<Entity | Action, void, void> {
	try {
		const question = queryOf(what, query);
		const type = what === "action" ? "" : (question[what] as JsonObject & { type: string }).type;
		const seen = new Set<string>();
		let token = "";
		for (let pages = 1, empty = 0; ; pages++) {
			const found: (Entity | Action)[] = [];
			let next = "";
			const body = token === "" ? question : { ...question, page: { token } };
			const { failure } = await ask(
				core.settings,
				{ url: core.access(`search/${what}`), body, repeat: "unanswered", breaker: core.breaker, signal },
				(reply) => {
					next = readPage(reply.body, what, type, found, core.draft === "october"); // all of it, before any of it is yielded
					return undefined;
				},
			);
			if (failure) throw failure;
			yield* found;
			if (next === "") return;
			token = next;
			empty = found.length > 0 ? 0 : empty + 1;
			const hash = await digest(token); // tokens can be long, and many
			if (seen.has(hash)) throw odd("a page's token came twice");
			if (pages >= mostPages) throw odd("there are more pages than any search has");
			if (empty >= mostEmpty) throw odd("too many pages in a row were empty");
			seen.add(hash);
		}
	} catch (error) {
		throw core.error("search", failureOf(error));
	}
}

/** The query, of whose sought part all but the type is left out. */
function queryOf(what: Sought, value: unknown): JsonObject {
	const q = members(undeclared(plain(value))) as { [name: string]: Json | undefined };
	only(q, "the query", ["subject", "action", "resource", "context"]);
	if (what === "action") {
		delete q.action;
	} else {
		const sought = q[what];
		if (!isObject(sought) || typeof sought.type !== "string") throw notAsked(`the ${what} has no type`);
		only(sought, `the ${what}`, ["type", "id", "properties"]);
		q[what] = { type: sought.type };
	}
	for (const name of ["subject", "action", "resource"] as const) if (name !== what) partOf(q, name);
	contextOf(q);
	return q;
}

/** Reads a page, and returns the token of the next one, "" at the end. */
function readPage(body: Json, what: Sought, type: string, found: (Entity | Action)[], october: boolean): string {
	if (!isObject(body) || !Array.isArray(body.results)) throw odd("the body is not an object with an array of results");
	const ofPage = october ? released(body) : { rest: body, owes: false };
	const whole = ofAll(ofPage.rest, "the page", october);
	if (whole) throw whole;
	for (const result of body.results) {
		if (!isObject(result)) throw odd("a result is not an object");
		const { rest, owes = ofPage.owes } = october ? released(result) : { rest: result, owes: false };
		const besides = october && present(result.obligations); // as July's draft has them
		const one = readResult(besides ? { ...rest, obligations: null } : rest, what, type);
		if (!owes && !besides) found.push(one);
	}
	const { page } = body;
	if (!present(page)) return "";
	if (!isObject(page) || (present(page.next_token) && typeof page.next_token !== "string"))
		throw odd("the page of the answer cannot be read");
	return textOf(page.next_token) ?? "";
}

/** A body without the obligations in its context, and whether there were any. The context of the page is that of results without one. */
function released(body: JsonObject): { rest: JsonObject; owes?: boolean } {
	if (!isObject(body.context)) return { rest: body };
	const { obligations, ...context } = body.context;
	return { rest: { ...body, context: members(context) }, owes: obligations !== undefined };
}

function readResult(result: JsonObject, what: Sought, type: string): Entity | Action {
	const { failure } = qualified(result, false);
	if (failure) throw failure;
	if (what === "action") {
		if (typeof result.name !== "string") throw odd("an action that was found has no name");
		return { name: result.name };
	}
	if (typeof result.type !== "string" || typeof result.id !== "string") throw odd("an entity that was found has no type or no id");
	if (result.type !== type) throw odd("an entity that was found is of another type");
	return { type, id: result.id };
}
