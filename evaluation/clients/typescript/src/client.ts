import type { Wait } from "./approvals.js";
import * as capabilities from "./capability.js";
import type { Capability, CapabilityAsk, Holder } from "./capability.js";
import type { AuthorizationError, Undecided } from "./errors.js";
import type { Handlers } from "./obligations.js";
import type { Action, Entity, JsonObject, Question } from "./types.js";

/** Where the PDP is, and how to ask it. */
export interface ClientOptions {
	/** The PDP's base URL: https, or http on this machine. */
	url: string;
	/** A key or token, or a function that gives one before each request. */
	credential?: string | (() => string | Promise<string>);
	tenant?: string;
	handlers?: Handlers;
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

/** A yes. Only the client makes one. */
export interface Permit {
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

export interface SubjectQuery {
	subject: { type: string };
	action: Action;
	resource: Entity;
	context?: JsonObject;
}

export interface ResourceQuery {
	subject: Entity;
	action: Action;
	resource: { type: string };
	context?: JsonObject;
}

export interface ActionQuery {
	subject: Entity;
	resource: Entity;
	context?: JsonObject;
}

/** Asks one PDP about one tenant. Make one and keep it: connections and the circuit breaker are its own. */
export class Client {
	constructor(_options: ClientOptions) {}

	/** Asks, and calls one of the branches. An allow with obligations is a deny: see {@link Client.enforce}. */
	async evaluate<T, U>(_question: Question, _branches: Branches<T, U>, _options?: AskOptions): Promise<T | U> {
		throw new Error("not yet");
	}

	/** Asks, discharges the obligations, and resolves only on yes. It rejects with Denied or Undecided. */
	async authorize(_question: Question, _options?: EnforceOptions): Promise<Permit> {
		throw new Error("not yet");
	}

	/** Asks, discharges the obligations, acts only on yes, and returns the result of the act. It rejects with Denied or Undecided. */
	async enforce<T>(_question: Question, _act: (permit: Permit) => T | Promise<T>, _options?: EnforceOptions): Promise<T> {
		throw new Error("not yet");
	}

	/** One act that needs a yes to each of the questions. */
	async enforceAll<T>(
		_questions: readonly Question[],
		_act: (permits: readonly Permit[]) => T | Promise<T>,
		_options?: { signal?: AbortSignal },
	): Promise<T> {
		throw new Error("not yet");
	}

	/** Asks many questions at once. It returns one result for each question, in order. */
	async evaluateBatch<T, U>(
		_questions: readonly Question[],
		_branches: Branches<T, U>,
		_options?: { semantic?: Semantic; signal?: AbortSignal },
	): Promise<(T | U)[]> {
		throw new Error("not yet");
	}

	/** Finds the subjects of a type that may do the action on the resource. */
	searchSubjects(_query: SubjectQuery, _options?: { signal?: AbortSignal }): AsyncIterable<Entity> {
		throw new Error("not yet");
	}

	/** Finds the resources of a type that the subject may do the action on. */
	searchResources(_query: ResourceQuery, _options?: { signal?: AbortSignal }): AsyncIterable<Entity> {
		throw new Error("not yet");
	}

	/** Finds the actions that the subject may do on the resource. */
	searchActions(_query: ActionQuery, _options?: { signal?: AbortSignal }): AsyncIterable<Action> {
		throw new Error("not yet");
	}

	/** Asks for a capability for the holder's key. */
	async requestCapability(holder: Holder, ask: CapabilityAsk, options?: { wait?: Wait; signal?: AbortSignal }): Promise<Capability> {
		return capabilities.requestCapability(undefined as never, holder, ask, options);
	}

	/** Asks for a new token of a capability. */
	async renewCapability(capability: Capability, options?: { wait?: Wait; signal?: AbortSignal }): Promise<Capability> {
		return capabilities.renewCapability(undefined as never, capability, options);
	}
}
