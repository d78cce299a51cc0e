import { AuthorizationError, type Client, type Permit, type Question } from "./index.js";

/** Options of a middleware. */
export interface GuardOptions {
	/** How long a request waits for people's approval, in milliseconds. Equal requests join, so a later try finds the approval. */
	wait?: number;
}

/** The permit for one request, or an exception. */
export async function admit(
	client: Client,
	question: () => Question | Promise<Question>,
	signal: AbortSignal,
	{ wait }: GuardOptions,
): Promise<Permit> {
	const asked = await question();
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
