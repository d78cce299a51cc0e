import type { Owed } from "./october.js";
import { before } from "./transport.js";
import type { Obligation, Question } from "./types.js";

/** Changes the result of an act, as a handler promised. */
export type Change = (result: unknown) => unknown | Promise<unknown>;

/**
 * Discharges one obligation. If it returns, the obligation is discharged; if it throws, it is not. Where it can only be
 * kept on the result of the act (redact), it returns a {@link Change}: `enforce` and `enforceAll` apply it. The question is a
 * frozen copy.
 */
export type Handler = (
	obligation: Obligation,
	about: { question: Question; signal: AbortSignal },
	// biome-ignore lint/suspicious/noConfusingVoidType: handlers are written without a return
) => void | Change | Promise<void | Change>;

/** Handlers by the type of the obligation. */
export type Handlers = { readonly [type: string]: Handler };

/** A copy of handlers that nothing inherits. */
export function handlersOf(handlers: Handlers = {}): Map<string, Handler> {
	const all = new Map(Object.entries(handlers));
	for (const [type, handler] of all) {
		if (type === "" || typeof handler !== "function") throw new TypeError("policy-service-client: a handler is no function, or of no type");
	}
	return all;
}

// How obligations fail. A receipt says one of these, and nothing that a handler said.
const faults = {
	noType: "it has no type",
	noId: "it has no id",
	sameId: "another obligation has its id",
	malformed: "it is malformed, or of an unknown type",
	noHandler: "there is no handler for its type",
	broken: "its handler promised it, and it was not done",
	forgone: "it was not tried, because the act was denied for another reason",
	noResult: "its handler changes a result, and there is none",
	failed: "its handler failed",
	ended: "the decision was no longer waited for",
} as const;

interface Outcome {
	readonly obligation: Obligation;
	fault?: (typeof faults)[keyof typeof faults] | undefined;
	error?: unknown;
	change?: Change;
}

/** The outcomes of the obligations of a decision. */
export class Report {
	readonly outcomes: Outcome[] = [];
	/** The caller's signal came meanwhile. */
	ended = false;

	/** Names the obligations that were not discharged. */
	get text(): string {
		const undone = this.outcomes.filter((one) => one.fault !== undefined);
		return undone.map(({ obligation: { id, type }, fault }) => `obligation "${id}" of type "${type}": ${fault}`).join("; ");
	}

	/** The errors of handlers. */
	get cause(): unknown {
		const errors = this.outcomes.filter((one) => one.error !== undefined).map((one) => one.error);
		return errors.length > 1 ? new AggregateError(errors) : errors[0];
	}

	get promises(): boolean {
		return this.outcomes.some((one) => one.change !== undefined);
	}

	/** Applies the promises of handlers. It throws if one cannot be kept. */
	async apply(result: unknown): Promise<unknown> {
		for (const one of this.outcomes) {
			if (!one.change) continue;
			try {
				result = await one.change(result);
			} catch (error) {
				one.error = error;
				this.break();
				throw error;
			}
		}
		return result;
	}

	/** Takes back the promises of handlers: they were not kept. */
	break(): void {
		for (const one of this.outcomes) if (one.change) one.fault ??= faults.broken;
	}

	/** The outcomes as the PDP is sent them. One without an id of its own cannot be named there. */
	get receipts(): { id: string; status: string; detail?: string }[] {
		const named = new Map(this.outcomes.filter((one) => one.obligation.id !== "").map((one) => [one.obligation.id, one]));
		return [...named].map(([id, { fault }]) => (fault ? { id, status: "failed", detail: fault } : { id, status: "discharged" }));
	}
}

/** The report of obligations that are not tried, because the act is denied for another reason. */
export function forgo(owed: readonly Obligation[]): Report {
	const report = new Report();
	for (const obligation of owed) report.outcomes.push({ obligation, fault: faults.forgone });
	return report;
}

function frozen(question: Question): Question {
	return JSON.parse(JSON.stringify(question), (_, value) => Object.freeze(value));
}

/** For how many milliseconds obligations go on together if the caller's signal has come. */
const grace = 5000;

/**
 * Discharges the obligations, one after the other. Each is tried, also if one before it failed, and also on
 * a deny: a PEP that cannot ask for approval must still send the notification. For the same reason the caller's signal,
 * which fails the one that is being discharged, does not stop those after it.
 */
export async function discharge(
	owed: readonly Owed[],
	handlers: ReadonlyMap<string, Handler>,
	question: Question,
	options: { signal: AbortSignal | undefined; changes: boolean },
): Promise<Report> {
	const report = new Report();
	let signal = options.signal ?? new AbortController().signal;
	let timer: ReturnType<typeof setTimeout> | undefined;
	const shown = owed.length > 0 ? frozen(question) : question; // once: it can be large
	const ids = new Map<string, number>();
	for (const { id } of owed) ids.set(id, (ids.get(id) ?? 0) + 1);
	for (const obligation of owed) {
		if (timer === undefined && options.signal?.aborted) {
			const late = new AbortController();
			timer = setTimeout(() => late.abort(), grace);
			signal = late.signal;
		}
		const { id, type, malformed } = obligation;
		const untried = malformed ? faults.malformed : id && ids.get(id) !== 1 ? faults.sameId : undefined;
		const flaw = !type ? faults.noType : !id ? faults.noId : undefined;
		const outcome: Outcome = { obligation };
		report.outcomes.push(outcome);
		const handler = type && !untried ? handlers.get(type) : undefined;
		if (!handler) {
			outcome.fault = untried ?? flaw ?? faults.noHandler;
			continue;
		}
		try {
			// a change by a handler is seen by no other
			const change = await before(signal, handler(structuredClone(obligation), { question: shown, signal }));
			if (typeof change === "function" && options.changes) outcome.change = change;
			else if (typeof change === "function") outcome.fault = faults.noResult;
			else if (change !== undefined) outcome.fault = faults.failed;
		} catch (error) {
			outcome.error = error;
			outcome.fault = faults.failed;
		}
		if (signal.aborted) outcome.fault = faults.ended;
		outcome.fault = flaw ?? outcome.fault;
	}
	clearTimeout(timer);
	report.ended = options.signal?.aborted === true;
	return report;
}
