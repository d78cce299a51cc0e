import { enforceWaiting, send, until, type Wait, waiting } from "./approvals.js";
import { awaitable } from "./awaited.js";
import { decideAll, enforceTogether, firstDeny, questionsOf } from "./batch.js";
import type { Capability, CapabilityAsk, Holder } from "./capability.js";
import * as capabilities from "./capability.js";
import { Core, type Decided, type Enforcement, failureOfAnswer, permitOf, questionOf } from "./core.js";
import { AuthorizationError, Failure, failureOf, notAsked, printable, type Undecided } from "./errors.js";
import type { Link } from "./link.js";
import type { Handlers } from "./obligations.js";
import { type Draft, undeclared } from "./october.js";
import { search } from "./search.js";
import type { Action, ActionQuery, Entity, JsonObject, Question, ResourceQuery, SubjectQuery } from "./types.js";

/** Where the PDP is, and how to ask it. */
export interface ClientOptions {
	/** The PDP's base URL: https, or http on this machine. */
	url: string;
	/** A key or token, or a function that gives one before each request about a tenant. */
	credential?: string | ((tenant: string) => string | Promise<string>);
	/** The tenant, "default". */
	tenant?: string;
	handlers?: Handlers;
	/** The draft of AuthZEN's obligations, "october". "july" is for a PDP that knows that of July 2026 alone. */
	obligations?: Draft;
	/** Milliseconds for a call with its retries, 5000. */
	timeout?: number;
	/** How often a request is sent again, 2. */
	retries?: number;
	/** After how many failed calls in a row every call is denied at once, and for how many milliseconds: 5, 10000. */
	breaker?: { failures: number; coolDown: number };
	/** Allows http to another machine, for a network that encrypts by itself. */
	plainHttp?: boolean;
	/** Whether the PDP is sent receipts about obligations, true. */
	receipts?: boolean;
	/** Is called with the error of each question of which no decision came, for a counter and an alert. */
	onUndecided?: (error: Undecided) => void;
	fetch?: typeof fetch;
}

export interface AskOptions {
	signal?: AbortSignal;
	/** Shows a capability, with a proof of its own. */
	capability?: Capability;
}

export interface EnforceOptions extends AskOptions {
	/** Waits for people, if they have to approve. */
	wait?: Wait;
}

declare const made: unique symbol;

/** A yes. Only the client makes one. */
export interface Permit {
	readonly [made]: true;
	/** Names the record of the decision. */
	readonly decisionId?: string;
	readonly requestId: string;
	/** The context of the answer. */
	readonly context: JsonObject;
	/** The approval that this rests on ends then. */
	readonly approvedUntil?: Date;
}

/** Both ways that an answer can go. */
export interface Branches<T, U> {
	allow: (permit: Permit) => T | Promise<T>;
	deny: (error: AuthorizationError) => U | Promise<U>;
}

/** The order of a batch: all of it, or up to the first deny or permit. */
export type Semantic = "execute_all" | "deny_on_first_deny" | "permit_on_first_permit";

/** Asks one PDP about one tenant. Make one and keep it: connections and the circuit breaker are its own. */
export class Client {
	readonly #core: Core;

	/** It throws a TypeError for options that cannot be. Nothing is sent yet. */
	constructor(options: ClientOptions);
	constructor(options: ClientOptions | Core) {
		this.#core = options instanceof Core ? options : new Core(options);
	}

	/**
	 * Returns a client for another tenant of the same PDP. It costs nothing to make one for each request: options, connections and the
	 * circuit breaker are shared. It throws a TypeError for a name that no tenant can have.
	 */
	forTenant(tenant: string): Client {
		return new Client(this.#core.forTenant(tenant) as never);
	}

	/** Asks, and calls one of the branches. An allow with obligations is a deny: see {@link Client.enforce}. */
	evaluate<T, U>(question: Question, branches: Branches<T, U>, options: AskOptions = {}): Promise<T | U> {
		return this.#evaluate(question, branchesOf(branches), options); // throws at once: a promise is true in an `if`
	}

	async #evaluate<T, U>(question: Question, { allow, deny }: Branches<T, U>, options: AskOptions): Promise<T | U> {
		let d: Decided | undefined;
		let failure: Failure | undefined;
		try {
			d = await this.#core.decide(undeclared(questionOf(question)), options);
			failure = failureOfAnswer(d.answer);
		} catch (error) {
			failure = failureOf(error);
		}
		if (d && !failure) return allow(permitOf(d));
		return deny(this.#core.questionError("evaluate", failure ?? notAsked(""), d ?? {}));
	}

	/**
	 * Asks, discharges the obligations, and resolves only on yes. It rejects with Denied or Undecided. Await it, or use
	 * {@link Client.enforce}: a promise is true in every condition.
	 */
	authorize(question: Question, options: EnforceOptions = {}): Promise<Permit> {
		return awaitable(this.#yes("authorize", question, options, false).then(permitOf), new Error());
	}

	/**
	 * Asks, discharges the obligations, acts only on yes, and returns the result of the act, changed as handlers promised. It
	 * rejects with Denied or Undecided, or with the error of the act.
	 */
	enforce<T>(question: Question, act: (permit: Permit) => T | Promise<T>, options: EnforceOptions = {}): Promise<T> {
		if (typeof act !== "function") throw new TypeError("policy-service-client: enforce got no act");
		return this.#enforce(question, act, options);
	}

	async #enforce<T>(question: Question, act: (permit: Permit) => T | Promise<T>, options: EnforceOptions): Promise<T> {
		const e = await this.#yes("enforce", question, options, true);
		return this.#act([e], () => act(permitOf(e)));
	}

	/** One act that needs a yes to each of the questions. */
	enforceAll<T>(
		questions: readonly Question[],
		act: (permits: readonly Permit[]) => T | Promise<T>,
		options: { signal?: AbortSignal } = {},
	): Promise<T> {
		if (typeof act !== "function") throw new TypeError("policy-service-client: enforceAll got no act");
		return this.#enforceAll(questions, act, options);
	}

	async #enforceAll<T>(
		questions: readonly Question[],
		act: (permits: readonly Permit[]) => T | Promise<T>,
		options: { signal?: AbortSignal },
	): Promise<T> {
		const core = this.#core;
		const asked = await decideAll(core, this.#questions("enforceAll", questions), "deny_on_first_deny", options.signal);
		const all = await enforceTogether(core, asked, options.signal);
		const no = firstDeny(all);
		await core.report(no ? all : all.filter((e) => !e.report.promises));
		for (const e of all) if (e.failure && e !== no) core.questionError("enforceAll", e.failure, e);
		if (no?.failure) throw core.questionError("enforceAll", no.failure, no);
		return this.#act(all, () => act(all.map(permitOf)));
	}

	/** Asks many questions at once. It returns one result for each question, in order. */
	evaluateBatch<T, U>(
		questions: readonly Question[],
		branches: Branches<T, U>,
		options: { semantic?: Semantic; signal?: AbortSignal } = {},
	): Promise<(T | U)[]> {
		return this.#evaluateBatch(questions, branchesOf(branches), options);
	}

	async #evaluateBatch<T, U>(
		questions: readonly Question[],
		{ allow, deny }: Branches<T, U>,
		options: { semantic?: Semantic; signal?: AbortSignal },
	): Promise<(T | U)[]> {
		const { semantic = "execute_all", signal } = options;
		const core = this.#core;
		if (!semantics.includes(semantic)) throw core.questionError("evaluateBatch", notAsked("there is no such semantic"), {});
		const asked = await decideAll(core, this.#questions("evaluateBatch", questions), semantic, signal);
		const all: Enforcement[] = [];
		for (const d of asked) all.push(await core.discharge(d, signal, false));
		await core.report(all);
		const results: (T | U)[] = [];
		for (const e of all) {
			results.push(e.failure ? await deny(core.questionError("evaluateBatch", e.failure, e)) : await allow(permitOf(e)));
		}
		return results;
	}

	/** Finds the subjects of a type that may do the action on the resource. */
	searchSubjects(query: SubjectQuery, options: { signal?: AbortSignal } = {}): AsyncIterable<Entity> {
		return anew(() => search(this.#core, "subject", query, options.signal) as AsyncGenerator<Entity>);
	}

	/** Finds the resources of a type that the subject may do the action on. */
	searchResources(query: ResourceQuery, options: { signal?: AbortSignal } = {}): AsyncIterable<Entity> {
		return anew(() => search(this.#core, "resource", query, options.signal) as AsyncGenerator<Entity>);
	}

	/** Finds the actions that the subject may do on the resource. */
	searchActions(query: ActionQuery, options: { signal?: AbortSignal } = {}): AsyncIterable<Action> {
		return anew(() => search(this.#core, "action", query, options.signal) as AsyncGenerator<Action>);
	}

	/** Asks for a capability for the holder's key. */
	async requestCapability(holder: Holder, ask: CapabilityAsk, options?: { wait?: Wait; signal?: AbortSignal }): Promise<Capability> {
		return capabilities.requestCapability(this.#link(), holder, ask, options);
	}

	/** Asks for a new token of a capability. */
	async renewCapability(capability: Capability, options?: { wait?: Wait; signal?: AbortSignal }): Promise<Capability> {
		return capabilities.renewCapability(this.#link(), capability, options);
	}

	/** The decision of a question with its obligations, if it is a yes. */
	async #yes(op: string, question: Question, options: EnforceOptions, changes: boolean): Promise<Enforcement> {
		const core = this.#core;
		const { wait, signal } = options;
		let e: Partial<Enforcement>;
		try {
			const q = questionOf(question);
			const yes =
				wait === undefined
					? await core.enforce(await core.decide(core.declare(q), options), signal, changes)
					: await enforceWaiting(waiting(core, wait, options, changes), q);
			if (!yes.failure) return yes;
			e = yes;
		} catch (error) {
			e = { failure: failureOf(error) };
		}
		throw core.questionError(op, e.failure ?? notAsked(""), e);
	}

	#questions(op: string, questions: readonly Question[]): Question[] {
		try {
			return questionsOf(this.#core, questions);
		} catch (error) {
			throw this.#core.questionError(op, failureOf(error), {});
		}
	}

	/** Acts, and keeps the promises of handlers about the result. Their receipts leave then. */
	async #act<T>(all: readonly Enforcement[], act: () => T | Promise<T>): Promise<T> {
		const promising = all.filter((e) => e.report.promises);
		let result: T;
		try {
			result = await act();
		} catch (error) {
			for (const e of promising) e.report.break();
			await this.#core.report(promising);
			throw error;
		}
		for (const e of promising) {
			try {
				result = (await e.report.apply(result)) as T;
			} catch (cause) {
				for (const other of promising) other.report.break();
				await this.#core.report(promising);
				throw this.#core.error("enforce", new Failure("obligated", printable(e.report.text, e.answer.secrets), { cause }), e);
			}
		}
		await this.#core.report(promising);
		return result;
	}

	#link(): Link {
		const core = this.#core;
		const { base } = core.settings;
		const failing = async <T>(op: string, run: () => Promise<T>): Promise<T> => {
			try {
				return await run();
			} catch (error) {
				throw error instanceof AuthorizationError ? error : core.error(op, failureOf(error));
			}
		};
		return {
			base,
			pdp: core.pdp,
			tenant: core.tenant,
			now: Date.now,
			error: (op, failure) => core.error(op, failure),
			send: (request) => failing(request.op, () => send(core, request)),
			until: ({ end, signal }, attempt) => failing("await", () => until(end, signal, attempt)),
		};
	}
}

/** An iterable that begins anew each time. */
function anew<T>(start: () => AsyncGenerator<T>): AsyncIterable<T> {
	return { [Symbol.asyncIterator]: start };
}

const semantics: readonly string[] = ["execute_all", "deny_on_first_deny", "permit_on_first_permit"];

/** Both branches are needed: a missing deny would read as no difference. */
function branchesOf<T, U>(branches: Branches<T, U>): Branches<T, U> {
	if (typeof branches?.allow !== "function" || typeof branches.deny !== "function") {
		throw new TypeError("policy-service-client: give both branches, allow and deny");
	}
	return branches;
}
