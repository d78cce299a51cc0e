import type { Task } from "./approvals.js";
import type { JsonObject } from "./types.js";

/** The kinds of a no that was decided, by the PDP, by an obligation or by people. */
export type DeniedKind = "denied" | "obligated" | "not_approved";

/** The kinds of a no because no decision came. */
export type UndecidedKind =
	| "not_asked"
	| "open"
	| "unreachable"
	| "timed_out"
	| "cancelled"
	| "refused"
	| "unavailable"
	| "odd"
	| "unsupported"
	| "bad_item"
	| "skipped";

/** What kind of no it is. */
export type Kind = DeniedKind | UndecidedKind;

/** The facts of an error, as the client collects them. */
export interface Facts {
	kind: Kind;
	/** What happened, and where. */
	text: string;
	/** What to try. */
	remedy: string;
	reason?: string | undefined;
	reasonUser?: string | undefined;
	pdpStatus?: number | undefined;
	retryAfter?: number | undefined;
	decisionId?: string | undefined;
	requestId?: string | undefined;
	spent?: boolean | undefined;
	task?: Task | undefined;
	context?: JsonObject | undefined;
	cause?: unknown;
}

/** A no. It holds no credential, no token and no proof. */
export abstract class AuthorizationError extends Error {
	declare readonly kind: Kind;
	/** The machine-readable reason of the PDP, such as `unknown_entity`. */
	declare readonly reason?: string;
	/** The sentence for the user, by the author of the policy. */
	declare readonly reasonUser?: string;
	/** What to try: the last part of the message. */
	declare readonly remedy: string;
	/** The HTTP status of the PDP, or that of an item of a batch. */
	declare readonly pdpStatus?: number;
	/** How many seconds the PDP asked to be left alone. */
	declare readonly retryAfter?: number;
	/** Names the record of the decision. */
	declare readonly decisionId?: string;
	declare readonly requestId?: string;
	/** The use of an approval or of a capability may be gone, with no answer. */
	declare readonly spent: boolean;
	/** The approval request that people have not decided yet. Go on with it by `wait: {resume: task}`. */
	declare readonly task?: Task;
	/** The HTTP status for a response of your own. */
	abstract readonly status: 403 | 503;
	/** The context of the PDP's answer. */
	declare readonly context?: JsonObject;

	/** @internal */
	constructor(facts: Facts) {
		super(`${facts.text}; ${facts.remedy}`, facts.cause === undefined ? undefined : { cause: facts.cause });
		this.kind = facts.kind;
		this.remedy = facts.remedy;
		this.spent = facts.spent === true;
		for (const name of ["reason", "reasonUser", "pdpStatus", "retryAfter", "decisionId", "requestId", "task", "context"] as const) {
			if (facts[name] !== undefined) {
				Object.defineProperty(this, name, { value: facts[name], enumerable: true });
			}
		}
	}
}

/** It was decided: no. */
export class Denied extends AuthorizationError {
	declare readonly kind: DeniedKind;
	readonly status = 403;
	override readonly name = "Denied";
}

/** No decision came, so: no. */
export class Undecided extends AuthorizationError {
	declare readonly kind: UndecidedKind;
	readonly status = 503;
	override readonly name = "Undecided";
}
