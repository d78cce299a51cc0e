import type { Task } from "./approvals.js";
import { isObject, members } from "./json.js";
import type { Json, JsonObject } from "./types.js";

/**
 * The kinds of a no that was decided:
 * - `denied`: the PDP says no; with reason `approval_required`, people can approve;
 * - `obligated`: obligations were not discharged;
 * - `not_approved`: there is no approval, or not in time, or it has ended.
 */
export type DeniedKind = "denied" | "obligated" | "not_approved";

/**
 * The kinds of a no because no decision came:
 * - `not_asked`, `open`: nothing was sent: the question cannot be asked; the circuit breaker is open;
 * - `unreachable`, `timed_out`, `cancelled`: no connection, or it broke; no answer in time; your signal was aborted;
 * - `refused`, `unavailable`: the PDP refuses the request (4xx); it cannot answer now (429, 5xx): see `retryAfter`;
 * - `odd`: no answer came back;
 * - `bad_item`, `skipped`: the PDP refused this item of a batch; it did not decide it, as an earlier one was enough.
 */
export type UndecidedKind =
	| "not_asked"
	| "open"
	| "unreachable"
	| "timed_out"
	| "cancelled"
	| "refused"
	| "unavailable"
	| "odd"
	| "bad_item"
	| "skipped";

/** The kind of a no. */
export type Kind = DeniedKind | UndecidedKind;

/** The failures after which a request may be sent again: see transport.ts. */
export type Again = "never" | "unsent" | "unanswered" | "asked_to_wait";

/** Why there is no yes, before the call is known that it is an error of. */
export class Failure extends Error {
	pdpStatus?: number | undefined;
	/** Seconds. */
	retryAfter?: number | undefined;
	/** In place of the usual one of the kind. */
	remedy?: string | undefined;
	again: Again = "never";
	/** A request went out, and may have had an effect. */
	sent = true;
	task?: Task | undefined;
	reason?: string | undefined;

	constructor(
		readonly kind: Kind,
		/** More than the kind says, or "". */
		public detail: string,
		more: Partial<Failure> = {},
	) {
		super(detail);
		Object.assign(this, more);
	}
}

/** Nothing was sent, because the call cannot be. */
export function notAsked(detail: string): Failure {
	return new Failure("not_asked", detail, { sent: false });
}

/** The reply is no answer. */
export function odd(detail: string): Failure {
	return new Failure("odd", detail);
}

/** A failure as it is, and any other error as an odd answer. */
export function failureOf(error: unknown): Failure {
	return error instanceof Failure ? error : odd("it cannot be read");
}

/** The call that an error is of. */
export interface About {
	op: string;
	pdp: string;
	reason?: string | undefined;
	reasonUser?: string | undefined;
	decisionId?: string | undefined;
	requestId?: string | undefined;
	context?: JsonObject | undefined;
	/** The request presents an approval or a capability. */
	presents?: boolean | undefined;
	/** Texts that the error does not repeat. */
	secrets?: readonly string[] | undefined;
}

const words: { readonly [kind in Kind]: readonly [happened: string, remedy: string] } = {
	denied: ["the PDP denies", "ask for the rights that the act needs, or do without it"],
	obligated: ["the PDP allows, and its obligations were not discharged", "give the client handlers that discharge them, and use enforce"],
	not_approved: ["people did not approve", "ask people anew, or do without the act"],
	not_asked: ["nothing was sent", "correct the call"],
	open: [
		"the PDP did not answer lately, and nothing was sent",
		"see that the PDP runs; the breaker lets a call through after its cool-down",
	],
	unreachable: ["the PDP cannot be reached", "see that the PDP runs, and that the client has its url"],
	timed_out: ["the PDP did not answer in time", "ask again, or give the client a longer timeout"],
	cancelled: ["the answer was no longer waited for", "ask again if the act is still wanted"],
	refused: ["the PDP refuses the request", "correct the question"],
	unavailable: ["the PDP cannot answer now", "ask again later"],
	odd: ["what came is no answer", "see that the url is a PDP's, and that nothing on the way changes its answers"],
	bad_item: ["the PDP could not decide the question", "correct the question"],
	skipped: ["the question was not decided", "ask it by itself"],
};

const remedies: { readonly [status: number]: string } = {
	401: "give the client a credential that the PDP knows",
	403: "give the client's credential the permission for the call",
	404: "correct the url or the tenant of the client",
	413: "ask with a smaller context, or fewer questions at once",
};

const gone = "the use of the approval or of the capability may be gone without an answer: look into the decision log, or ask for a new one";

/** A no. It holds no credential, no token and no proof. */
export abstract class AuthorizationError extends Error {
	declare readonly kind: Kind;
	/** The machine-readable reason of the PDP, such as `unknown_entity`. */
	declare readonly reason?: string;
	/** The sentence for the user, by the author of the policy. */
	declare readonly reasonUser?: string;
	/** The next thing to try: the last part of the message. */
	declare readonly remedy: string;
	/** The HTTP status of the PDP, or that of an item of a batch. */
	declare readonly pdpStatus?: number;
	/** How many seconds the PDP asked to be left alone. */
	declare readonly retryAfter?: number;
	/** Names the record of the decision. */
	declare readonly decisionId?: string;
	/** The `X-Request-ID` of the request. */
	declare readonly requestId?: string;
	/** The use of an approval or of a capability may be gone, with no answer. */
	declare readonly spent: boolean;
	/** The approval request that people have not decided yet. Go on with it by `wait: {timeout, resume: task}`. */
	declare readonly task?: Task;
	/** The HTTP status for a response of your own. */
	abstract readonly status: 403 | 503;
	/** The context of the PDP's answer. */
	declare readonly context?: JsonObject;

	/** @internal */
	constructor(failure: Failure, about: About) {
		const { kind, pdpStatus, retryAfter, task, detail } = failure;
		const [happened, usual] = words[kind];
		const spent = about.presents === true && failure.sent && lost(failure);
		const status = pdpStatus === undefined ? "" : ` (status ${pdpStatus})`;
		let remedy = failure.remedy ?? (kind === "refused" ? remedies[pdpStatus ?? 0] : undefined) ?? usual;
		if (kind === "unavailable" && retryAfter !== undefined) remedy = `ask again after ${Math.ceil(retryAfter)} s`;
		if (spent) remedy = gone;
		super(`authzen ${about.op} at ${about.pdp}: ${happened}${status}${detail && `: ${detail}`}; ${remedy}`);
		const { decisionId, requestId, secrets = [] } = about;
		const [reason, reasonUser, context] = [failure.reason ?? about.reason, about.reasonUser, about.context].map((v) => hidden(v, secrets));
		const facts = { kind, remedy, spent, reason, reasonUser, pdpStatus, retryAfter, decisionId, requestId, task, context };
		for (const [name, value] of Object.entries(facts)) {
			if (value !== undefined) Object.defineProperty(this, name, { value, enumerable: true });
		}
		if (failure.cause !== undefined) Object.defineProperty(this, "cause", { value: failure.cause });
	}
}

/** Whether no answer says the outcome of the request. 429 and 503 are the PDP's own word, any other status may be a proxy's. */
function lost({ kind, pdpStatus }: Failure): boolean {
	return (
		["unreachable", "timed_out", "cancelled", "odd"].includes(kind) || (kind === "unavailable" && pdpStatus !== 429 && pdpStatus !== 503)
	);
}

/** It was decided: no. */
export class Denied extends AuthorizationError {
	declare readonly kind: DeniedKind;
	readonly status = 403;
	override readonly name = "Denied";
}

/** No decision came, so it is no. */
export class Undecided extends AuthorizationError {
	declare readonly kind: UndecidedKind;
	readonly status = 503;
	override readonly name = "Undecided";
}

/** The error of a failure. */
export function errorOf(failure: Failure, about: About): Denied | Undecided {
	const decided = ["denied", "obligated", "not_approved"].includes(failure.kind);
	return decided ? new Denied(failure, about) : new Undecided(failure, about);
}

/** A value without secrets: an answer may quote them. */
function hidden(v: Json | undefined, secrets: readonly string[]): Json | undefined {
	if (typeof v === "string") return without(v, secrets);
	if (Array.isArray(v)) return v.map((item: Json) => hidden(item, secrets) as Json);
	if (!isObject(v)) return v;
	return members(Object.fromEntries(Object.entries(v).map(([name, value]) => [without(name, secrets), hidden(value, secrets)])));
}

function without(text: string, secrets: readonly string[]): string {
	return secrets.reduce((left, secret) => (secret === "" ? left : left.replaceAll(secret, "…")), text);
}

/** One line of a log, of a text from elsewhere, without secrets. It is cut last: half a secret is not found. */
export function printable(text: string, secrets: readonly string[] = []): string {
	const line = without(text, secrets)
		.toWellFormed()
		.replace(/[\p{Cc}\u2028\u2029]/gu, " ");
	return line.length > 512 ? `${line.slice(0, 512).toWellFormed()}…` : line;
}
