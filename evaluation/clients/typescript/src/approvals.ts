import { denied } from "./answer.js";
import { digest } from "./bytes.js";
import { type Core, type Enforcement, type How, presentsApproval, timeOf, withContext } from "./core.js";
import { type AuthorizationError, Failure, failureOf, notAsked, odd, printable } from "./errors.js";
import { isObject, present, textOf } from "./json.js";
import type { LinkAnswer, LinkRequest } from "./link.js";
import { Report } from "./obligations.js";
import { ask, sleep } from "./transport.js";
import type { JsonObject, Question } from "./types.js";

/** An approval request that was filed at a PDP. It is JSON, so that another process can go on with it. It permits nothing. */
export interface Task {
	readonly version: 1;
	readonly pdp: string;
	readonly id: string;
	readonly status_endpoint: string;
	readonly cancel?: string;
	readonly expires_at?: string;
}

/** How long to wait for people, in milliseconds alone or with more. */
export type Wait =
	| number
	| {
			/** Milliseconds. */
			timeout: number;
			/** Why, for the people that decide. */
			justification?: string;
			/** Leaves it to the PDP to find equal approval requests. */
			join?: boolean;
			/** Is called with the task before the wait goes on. If it fails, so does the wait. */
			keep?: (task: Task) => void | Promise<void>;
			/** Goes on with this task, and asks no person anew. */
			resume?: Task;
	  };

/** The client's part in a wait. */
export interface Waiting {
	core: Core;
	wait: Exclude<Wait, number>;
	/** Date.now() when it runs out. */
	end: number;
	how: How;
	changes: boolean;
}

/** Pauses between looks, in milliseconds: people take minutes, and many PEPs may wait at one PDP. */
const firstPause = 6000;
const mostPause = 60_000;
/** For how long the PDP is asked to hold its answer back. One that did so for `held` is asked again at once. */
const hold = 20_000;
const held = 10_000;

/** The remedy where a wait is given, and approval is missing all the same. */
const inVain = "people could not be asked, or their approval did not count: see that the credential has the permission request";

/** Reads the option wait. It throws a Failure for one that cannot be: NaN, or a text, would have no end. */
export function waitOf(wait: Wait): Exclude<Wait, number> {
	const all = typeof wait === "number" ? { timeout: wait } : wait;
	if (typeof all?.timeout !== "number" || !(all.timeout >= 0)) throw notAsked("the wait has no timeout");
	const { justification = "" } = all;
	if (typeof justification !== "string" || !justification.isWellFormed()) throw notAsked("the justification is no text of Unicode");
	if (all.keep !== undefined && typeof all.keep !== "function") throw notAsked("the wait's keep is no function");
	return all;
}

export function waiting(core: Core, wait: Wait, how: How, changes: boolean): Waiting {
	const all = waitOf(wait);
	return { core, wait: all, end: Date.now() + all.timeout, how, changes };
}

/**
 * Asks, and if the PDP denies and offers an approval request, files one, waits for people, and asks again with their
 * approval. Only that answer can permit. If the approval ended between the last look and its use, people are asked once more.
 */
export async function enforceWaiting(w: Waiting, question: Question): Promise<Enforcement> {
	const { core, wait, how } = w;
	const none: Enforcement = { question, answer: denied(notAsked("")), presents: false, report: new Report() };
	let e = none;
	try {
		if (core.handlers.has("approval_required"))
			throw notAsked("there is a handler for approval_required, and a wait; leave one of the two out");
		if (presentsApproval(question.context)) throw notAsked("the question presents an approval already; leave it or the wait out");
		if (wait.justification && question.context?.business_justification !== undefined) {
			throw notAsked("the question has a business_justification already; leave one of the two out");
		}
		if (wait.resume !== undefined) {
			const task = taskOf(wait.resume, core.pdp);
			return await use(w, await decidedBy(w, task.expires_at, () => look(w, task)), question);
		}
		e = await core.enforce(await core.decide(core.declare(question), how), how.signal, w.changes);
		for (let times = 2; ; times--) {
			const offer = offerOf(e);
			if (offer.next !== "request" || times === 0) {
				if (e.failure?.kind === "denied" && e.answer.reason === "approval_required") e.failure.remedy = inVain;
				return e;
			}
			const filing = await filingOf(w, e.question, offer);
			e = await use(w, await decidedBy(w, offer.denial.expires_at, () => submit(w, filing)), question);
		}
	} catch (error) {
		return { ...e, failure: failureOf(error) };
	}
}

/** A task as the PDP had it last. */
interface Standing {
	task: Task;
	pending: boolean;
	/** The approval of people, or why it cannot be used. */
	approval?: { value: JsonObject; until: number };
	failure?: Failure;
	retryAfter: number;
	/** It was filed just now, or the answer was held back: the next look, which is held back, may come at once. */
	prompt: boolean;
}

/** Tries until people have decided. `first` is for the beginning, then it looks. */
async function decidedBy(w: Waiting, expires: string | undefined, first: () => Promise<Standing>): Promise<Standing> {
	let task: Task | undefined;
	const end = () => Math.min(timeOf(task ? task.expires_at : expires) ?? Number.POSITIVE_INFINITY, w.end);
	try {
		return await repeat(end, w.how.signal, async () => {
			const now = task ? await look(w, task) : await first();
			task = now.pending ? now.task : undefined;
			if (now.failure) throw now.failure;
			return { ...now, value: now.pending ? undefined : now };
		});
	} catch (error) {
		const failure = failureOf(error);
		if (task) failure.task = task;
		throw failure;
	}
}

/** Tries until there is a value, with pauses: again also after a failure that says nothing of people's decision. */
async function repeat<T>(
	end: () => number,
	signal: AbortSignal | undefined,
	attempt: () => Promise<{ value: T | undefined; prompt: boolean; retryAfter: number }>,
): Promise<T> {
	for (let n = 0; ; n++) {
		let pause = jitter(n);
		try {
			const { value, prompt, retryAfter } = await attempt();
			if (value !== undefined) return value;
			pause = prompt ? 0 : Math.max(pause, retryAfter);
		} catch (error) {
			const { kind, retryAfter = 0 } = error as Failure | AuthorizationError; // or an error of the caller's, without a kind
			if (!["unreachable", "timed_out", "unavailable"].includes(kind)) throw error;
			pause = Math.max(pause, retryAfter * 1000);
		}
		await pauseFor(pause, end(), signal);
	}
}

/** {@link repeat}, for requests for capabilities: see Link. */
export function until<T>(end: number, signal: AbortSignal | undefined, attempt: () => Promise<T | undefined>): Promise<T> {
	return repeat(
		() => end,
		signal,
		async () => {
			const started = performance.now();
			return { value: await attempt(), prompt: performance.now() - started >= held, retryAfter: 0 };
		},
	);
}

/** Asks with an approval, and again if the PDP says that the approval is about to count. */
async function use(w: Waiting, { approval }: Standing, question: Question): Promise<Enforcement> {
	for (let n = 0; ; n++) {
		const d = await w.core.decide(w.core.declare(question), { ...w.how, approval });
		const e = await w.core.enforce(d, w.how.signal, w.changes);
		const { next, retryAfter } = offerOf(e);
		if (next !== "retry") return e;
		try {
			await pauseFor(Math.max(jitter(n), retryAfter), Math.min(approval?.until ?? 0, w.end), w.how.signal);
		} catch (error) {
			return { ...e, failure: failureOf(error) };
		}
	}
}

function jitter(n: number): number {
	return (0.5 + Math.random() / 2) * Math.min(firstPause * 2 ** Math.min(n, 10), mostPause);
}

/** Pauses, and fails at once if the next attempt would come after the end. */
async function pauseFor(milliseconds: number, end: number, signal: AbortSignal | undefined): Promise<void> {
	if (Date.now() + milliseconds >= end) {
		throw new Failure("not_approved", "people did not decide in time", {
			reason: "approval_pending",
			remedy: "wait longer, or go on later with the error's task",
		});
	}
	if (!(await sleep(milliseconds, signal)) || signal?.aborted) throw new Failure("cancelled", "the wait for people was given up");
}

/** {@link LinkRequest} without its errors: it throws a Failure. */
export async function send(core: Core, r: LinkRequest, deadline?: number): Promise<LinkAnswer> {
	const url = URL.parse(r.url);
	if (!url || url.username || url.password || url.hash) {
		throw notAsked("a URL of the answer is none, or has a fragment or credentials");
	}
	if (url.origin !== core.settings.origin) {
		const remedy = "give the client the PDP's public_url as its url"; // localhost is not 127.0.0.1
		throw Object.assign(notAsked("a URL of the answer is at another origin than the client's url"), { remedy });
	}
	const seconds = Math.floor((r.wait ?? 0) / 1000);
	const within = seconds >= 1 ? `${r.url}${r.url.includes("?") ? "&" : "?"}wait=${seconds}s` : r.url;
	const { method, body, headers, secrets, statuses, signal } = r;
	let answer: LinkAnswer | undefined;
	const asking = { url: within, method, body, headers, secrets, statuses, signal, deadline, wait: seconds * 1000 };
	const { failure } = await ask(core.settings, { ...asking, repeat: r.once ? "unsent" : "unanswered" }, (reply) => {
		if (!isObject(reply.body)) return odd("the body is not an object");
		answer = { status: reply.status, body: reply.body, retryAfter: reply.retryAfter, secrets: reply.secrets };
		return undefined;
	});
	if (failure || !answer) throw failure ?? odd("it was not read");
	return answer;
}

/** Reads the task of another process. It throws a Failure for one that is of another PDP. */
export function taskOf(value: Task, pdp: string): Task {
	const { version, pdp: at, id, status_endpoint, cancel, expires_at, ...more } = value ?? {};
	const texts = [at, id, status_endpoint].every((v) => typeof v === "string" && v !== "");
	const optional = [cancel, expires_at].every((v) => v === undefined || typeof v === "string");
	if (version !== 1 || !texts || !optional || Object.keys(more).length > 0 || (expires_at && timeOf(expires_at) === undefined)) {
		throw notAsked("the task is damaged, or of another version; ask anew");
	}
	if (at !== pdp) throw notAsked("the task is of another PDP or tenant; use a client of the one where it was filed");
	return value;
}

/** Reads a task as the PDP describes it. */
function standingOf(body: JsonObject, pdp: string, was: Task | undefined): Omit<Standing, "retryAfter" | "prompt"> {
	const task = isObject(body.task) ? body.task : {};
	const links = isObject(task.links) ? task.links : {};
	const texts = [task.id, task.status, task.status_endpoint, task.expires_at, links.cancel];
	if (!textOf(task.id) || !textOf(task.status) || texts.some((v) => present(v) && typeof v !== "string")) throw odd("it is no task");
	const expires = textOf(task.expires_at);
	if (expires && timeOf(expires) === undefined) throw odd("the task's expires_at is no time");
	if (present(task.items)) throw odd("it is a task of several questions, and one was sent");
	if (was && was.id !== task.id) throw odd("it is about another task");
	const endpoint = textOf(task.status_endpoint);
	if (!was && !endpoint) throw odd("the task has no status_endpoint");
	const cancel = textOf(links.cancel);
	const now: Task = {
		...(was ?? { version: 1, pdp, id: task.id as string, status_endpoint: endpoint as string, ...(cancel && { cancel }) }),
		...(expires && { expires_at: expires }),
	};
	if (task.status === "pending") return { task: now, pending: true };
	try {
		return { task: now, pending: false, approval: approvalOf(task.status as string, body.result) };
	} catch (error) {
		return { task: now, pending: false, failure: failureOf(error) };
	}
}

/** The approval of an approved task. One in another status has none, even with a result beside the status. */
function approvalOf(status: string, result: JsonObject[string]): { value: JsonObject; until: number } {
	if (status !== "approved") throw new Failure("not_approved", `the request is "${printable(status)}"`);
	if (!isObject(result) || result.mode !== "reevaluate")
		throw new Failure("not_approved", "it is approved, with no result that can be used here");
	const { approval } = result;
	const until = isObject(approval) ? timeOf(approval.approved_until) : undefined;
	if (!isObject(approval) || !textOf(approval.id) || until === undefined) throw odd("the approval has no id, or no approved_until");
	return { value: approval, until };
}

async function look(w: Waiting, task: Task): Promise<Standing> {
	const started = performance.now();
	const left = Math.max(0, w.end - Date.now());
	const wait = Math.min(hold, Math.ceil(left / 1000) * 1000);
	const request: LinkRequest = { op: "await", method: "GET", url: task.status_endpoint, wait, signal: w.how.signal };
	// more than a second is added, so that an answer that is held back to the end still comes
	const { body, retryAfter = 0 } = await send(w.core, request, performance.now() + left + 2000);
	const prompt = performance.now() - started >= held;
	return { ...standingOf(body, w.core.pdp, task), retryAfter: retryAfter * 1000, prompt };
}

/** The part of a deny about approvals. */
interface Offer {
	denial: { [name: string]: string };
	endpoint: string;
	/** Where the PDP says what a submission must have besides. */
	schema: string | undefined;
	next: string;
	/** Milliseconds. */
	retryAfter: number;
}

const none: Offer = { denial: {}, endpoint: "", schema: undefined, next: "none", retryAfter: 0 };

/** The next action after a reason, where the answer has none that is known. */
const usually = new Map([
	["approval_expired", "request"],
	["approval_revoked", "request"],
	["out_of_scope", "request"],
	["grant_pending", "retry"],
	["policy_denied", "none"],
	["approval_unverifiable", "none"],
]);

/** Reads the offer of a deny that the PDP decided. */
function offerOf({ failure, answer }: Enforcement): Offer {
	if (failure?.kind !== "denied") return none;
	const context = answer.context ?? {};
	const denial: Offer["denial"] = {};
	const put = (name: string, value: unknown) => {
		if (typeof value === "string" && value !== "") denial[name] = value;
	};
	for (const name of ["evaluation_id", "evaluated_at", "reason"]) put(name, context[name]);
	const pause = context.retry_after;
	const retryAfter = typeof pause === "number" && Number.isInteger(pause) && pause >= 0 ? pause * 1000 : 0;
	const request = context.access_request;
	let endpoint = "";
	let schema: string | undefined;
	let requested = false;
	if (present(request)) {
		if (!isObject(request)) throw odd("access_request cannot be read");
		const texts = [request.endpoint, request.template, request.expires_at, request.binding_token, request.request_schema_url];
		if (texts.some((v) => present(v) && typeof v !== "string")) throw odd("access_request cannot be read");
		if (!present(request.refused)) {
			if (timeOf(request.expires_at) === undefined) throw odd("access_request has no expires_at");
			if (!textOf(request.binding_token) && !denial.evaluation_id)
				throw odd("access_request has no binding_token, and there is no evaluation_id");
			requested = true;
			endpoint = textOf(request.endpoint) ?? "";
			schema = textOf(request.request_schema_url);
			for (const name of ["expires_at", "binding_token", "template"]) put(name, request[name]);
		}
	}
	let next = textOf(context.next_action) ?? "";
	if (!["request", "retry", "none"].includes(next)) next = usually.get(denial.reason ?? "") ?? "request";
	if (next === "request" && !requested) next = "none";
	return { denial, endpoint, schema, next, retryAfter };
}

/** Returns an approval request, ready to be filed. Sent again, it is the same one. */
async function filingOf({ core, wait }: Waiting, question: Question, offer: Offer): Promise<LinkRequest> {
	const { context = {} } = wait.justification ? withContext(question, { business_justification: wait.justification }) : question;
	const { subject, action, resource } = question;
	const url = offer.endpoint || core.access("requests");
	// the schema of this service requires nothing. No other one is read, so a submission could be incomplete
	const tail = `${core.pdp.slice(core.settings.base.length)}/access/v1/requests`;
	const above = url.endsWith(tail) ? url.slice(0, -tail.length) : url;
	if (offer.schema && offer.schema !== `${above}/access/v1/requests/schema`) {
		throw new Failure("not_asked", "the PDP may require more than the denied request, by a schema that this client does not read", {
			sent: false,
			remedy: "file the request with what the schema at access_request.request_schema_url requires",
		});
	}
	const body = { subject, action, resource, context, denial: offer.denial } as unknown as JsonObject;
	const headers = wait.join ? {} : { "idempotency-key": await digest(JSON.stringify(body)) };
	return { op: "request", url, body, headers, statuses: [201, 202] };
}

async function submit(w: Waiting, filing: LinkRequest): Promise<Standing> {
	const { body, retryAfter = 0 } = await send(w.core, { ...filing, signal: w.how.signal });
	const now = standingOf(body, w.core.pdp, undefined);
	try {
		await w.wait.keep?.(now.task);
	} catch (cause) {
		throw new Failure("cancelled", "the task was not kept", { cause, task: now.task });
	}
	return { ...now, retryAfter: retryAfter * 1000, prompt: true };
}
