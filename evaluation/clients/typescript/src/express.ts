/** Express 5 and 4: a route that runs only with a permit. @packageDocumentation */
import type { Request, RequestHandler } from "express";
import { type Asks, AuthorizationError, admit, asError, type GuardOptions, type RouteQuestion, shown } from "./guard.js";

export type { Asks, GuardOptions, RouteQuestion };

/** A no as Express shows it: status, header Retry-After, and words that may be shown. `cause` has the reasons, for your log. */
export class Refusal extends Error {
	readonly status: 403 | 503;
	readonly headers: Record<string, string>;
	/** The message may be shown. */
	readonly expose = true;
	declare readonly cause: AuthorizationError;

	constructor(cause: AuthorizationError) {
		const { message, status, headers } = shown(cause);
		super(message, { cause });
		this.name = `${cause.name} (${cause.kind})`;
		this.status = status;
		this.headers = headers;
	}
}

/**
 * Asks for each request, and lets it on to the next handler only with a yes. The permit is then in `res.locals.permit`. A no
 * goes to `next` as a {@link Refusal} of status 403 or 503. A request that is aborted gives up its wait.
 */
export function protect<P = Record<string, string>>(
	client: Asks<Request<P>>,
	question: (req: Request<P>) => RouteQuestion | Promise<RouteQuestion>,
	options: GuardOptions = {},
): RequestHandler<P> {
	return async (req, res, next) => {
		const gone = new AbortController();
		const leave = () => gone.abort();
		res.once("close", leave);
		if (req.socket.destroyed) leave(); // it closed before this handler's turn
		try {
			res.locals.permit = await admit(client, question, req, gone.signal, options);
		} catch (thrown) {
			return next(thrown instanceof AuthorizationError ? new Refusal(thrown) : asError(thrown));
		} finally {
			res.off("close", leave);
		}
		next();
	};
}
