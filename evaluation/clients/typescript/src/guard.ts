import { isTenant } from "./core.js";
import { errorOf, notAsked } from "./errors.js";
import { AuthorizationError, Client, type Permit, type Question } from "./index.js";

/** Options of a middleware. */
export interface GuardOptions {
	/** How long a request waits for people's approval, in milliseconds. Equal requests join, so a later try finds the approval. */
	wait?: number;
}

/** The client that asks, or a function that chooses one for each request, such as `client.forTenant(name)`. */
export type Asks<R> = Client | ((request: R) => Client | Promise<Client>);

/** Returns the client for one request, undefined where the function chooses none: no other client may stand for it. */
export async function chosen<R>(asks: Asks<R>, request: R): Promise<Client | undefined> {
	const client = typeof asks === "function" ? await asks(request) : asks;
	return client instanceof Client ? client : undefined;
}

const unasked = (why: string) => errorOf(notAsked(why), { op: "authorize", pdp: "no PDP" });

/** The question of a route. With a tenant it is asked about that one, and not about the client's. */
export type RouteQuestion = Question & { tenant?: string };

/** Returns the permit for one request, or throws. */
export async function admit<R>(
	asks: Asks<R>,
	question: (request: R) => RouteQuestion | Promise<RouteQuestion>,
	request: R,
	signal: AbortSignal,
	{ wait }: GuardOptions,
): Promise<Permit> {
	let client = await chosen(asks, request);
	if (client === undefined) throw unasked("there is no client for the request");
	let asked = await question(request);
	if (Object.hasOwn(Object(asked), "tenant")) {
		const { tenant, ...rest } = asked;
		if (!isTenant(tenant)) throw unasked("the tenant of the question has no legal name");
		client = client.forTenant(tenant);
		asked = rest;
	}
	return await client.authorize(asked, wait === undefined ? { signal } : { signal, wait: { timeout: wait, join: true } });
}

/** The part of a no that the client of a route may see: no reason but the one that the policy has for users. */
export interface Shown {
	status: 403 | 503;
	message: string;
	headers: Record<string, string>;
}

/** The words for a route's or a tool's user whose approval request people have not decided. */
export const waiting = "waiting for approval; try again later";

export function shown(no: AuthorizationError): Shown {
	const status = no.status === 403 ? 403 : 503;
	const { reason, retryAfter = 0 } = no;
	return {
		status,
		message: reason === "approval_pending" ? waiting : no.reasonUser || "access denied",
		headers: retryAfter > 0 && Number.isFinite(retryAfter) ? { "Retry-After": String(Math.ceil(retryAfter)) } : {},
	};
}

/** An exception as an error: to a framework, `throw undefined` could read as a yes. */
export function asError(thrown: unknown): Error {
	return thrown instanceof Error ? thrown : new Error("the question of a protected route cannot be made", { cause: thrown });
}

export { AuthorizationError };
