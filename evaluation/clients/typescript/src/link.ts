import type { AuthorizationError, Failure } from "./errors.js";
import type { JsonObject } from "./types.js";

/** A client, as capability.ts sees it. Its errors are AuthorizationErrors. */
export interface Link {
	/** Begins the URLs of the service's own API; no slash at its end. */
	readonly base: string;
	/** Names the PDP and the tenant: the base, and /tenants/NAME. It is the issuer for proofs. */
	readonly pdp: string;
	readonly tenant: string | undefined;
	/** Milliseconds since 1970. */
	now(): number;
	/** The error of a failure, which notAsked, odd and the like of errors.ts make. */
	error(op: string, failure: Failure): AuthorizationError;
	/** Sends a request at the PDP's own origin, outside the breaker. */
	send(request: LinkRequest): Promise<LinkAnswer>;
	/**
	 * Tries until `attempt` returns something but undefined: again after a failure that says nothing of people's decision,
	 * with pauses, until `end`.
	 */
	until<T>(options: { end: number; signal?: AbortSignal | undefined }, attempt: () => Promise<T | undefined>): Promise<T>;
}

export interface LinkRequest {
	/** The call, for errors: "request", "await", "renew". */
	op: string;
	/** At the PDP's own origin. */
	url: string;
	method?: "GET" | "POST";
	body?: JsonObject;
	headers?: { [name: string]: string };
	/** The statuses of an answer; 200 alone without it. */
	statuses?: readonly number[];
	/** It is sent again only if no connection was made. */
	once?: boolean;
	/** Texts that no error repeats, beside the credential. */
	secrets?: readonly string[];
	/** How long the PDP is asked to hold its answer back, in milliseconds. */
	wait?: number;
	signal?: AbortSignal | undefined;
}

export interface LinkAnswer {
	status: number;
	body: JsonObject;
	/** Seconds, undefined if the PDP did not say. */
	retryAfter?: number | undefined;
	/** That were sent, and that no error repeats. */
	secrets: readonly string[];
}
