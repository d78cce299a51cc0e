/** Hono: a route that runs only with a permit. @packageDocumentation */
import type { Context, MiddlewareHandler } from "hono";
import { HTTPException } from "hono/http-exception";
import { type Asks, AuthorizationError, admit, asError, type GuardOptions, type RouteQuestion, shown } from "./guard.js";
import type { Permit } from "./index.js";

export type { Asks, GuardOptions, RouteQuestion };

/**
 * Asks for each request, and lets it on to the next handler only with a yes. The permit is then `c.var.permit`. A no is an
 * HTTPException of status 403 or 503, whose `cause` has the reasons. A request that is aborted gives up its wait.
 */
export function protect<P extends string = string>(
	// biome-ignore lint/suspicious/noExplicitAny: the variables of the app, which only the app knows
	client: Asks<Context<any, P>>,
	// biome-ignore lint/suspicious/noExplicitAny: as above
	question: (c: Context<any, P>) => RouteQuestion | Promise<RouteQuestion>,
	options: GuardOptions = {},
): MiddlewareHandler<{ Variables: { permit: Permit } }, P> {
	return async (c, next) => {
		try {
			c.set("permit", await admit(client, question, c, c.req.raw.signal, options));
		} catch (thrown) {
			if (!(thrown instanceof AuthorizationError)) throw asError(thrown);
			const { status, message, headers } = shown(thrown);
			throw new HTTPException(status, { message, cause: thrown, res: new Response(message, { status, headers }) });
		}
		await next();
	};
}
