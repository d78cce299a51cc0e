import { joined } from "./bytes.js";
import { type Again, Failure, failureOf, notAsked, odd, printable } from "./errors.js";
import { isObject, readJson, textOf } from "./json.js";
import type { Json } from "./types.js";

/** The settings of a client. */
export interface Settings {
	/** Without a slash at its end. */
	base: string;
	origin: string;
	/** Whether the tenant is one that requests choose, and not the client's own. */
	chosen: boolean;
	credential: string | (() => string | Promise<string>) | undefined;
	timeout: number;
	retries: number;
	fetch: typeof fetch;
}

/** One request to the PDP. */
export interface Asking {
	url: string;
	method?: "GET" | "POST" | undefined;
	body?: Json | undefined;
	headers?: { [name: string]: string } | undefined;
	/** Beside the credential: no error repeats them. */
	secrets?: readonly string[] | undefined;
	/** The failures after which it may be sent again. */
	repeat: "unsent" | "unanswered";
	/** Of an answer; 200 alone without it. */
	statuses?: readonly number[] | undefined;
	breaker?: Circuit | undefined;
	/** How many milliseconds the PDP was asked to hold its answer back. */
	wait?: number | undefined;
	/** Ends the call before its time would. */
	deadline?: number | undefined;
	signal?: AbortSignal | undefined;
}

/** An answer that came as it should, and is still to be read. */
export interface Reply {
	status: number;
	/** null, if it has none (204). */
	body: Json;
	decisionId: string | undefined;
	retryAfter: number | undefined;
	/** That no error repeats. */
	secrets: readonly string[];
}

/** Reads a reply. It throws or returns the failure of one that is not as wanted. */
export type Reader = (reply: Reply) => Failure | undefined;

const mostBytes = 1 << 20;
const mostOfProblem = 8 << 10;

/** Sends a request until there is an answer that `read` accepts, or none can be had. It does not throw. */
export async function ask(s: Settings, a: Asking, read: Reader): Promise<{ requestId: string; failure: Failure | undefined }> {
	const requestId = crypto.randomUUID();
	// that of a request may be of another realm than the global AbortSignal, as on edge runtimes
	const { aborted, addEventListener, removeEventListener } = a.signal ?? {};
	const listens = typeof addEventListener === "function" && typeof removeEventListener === "function";
	if (a.signal && !(typeof aborted === "boolean" && listens)) return { requestId, failure: notAsked("the signal is no AbortSignal") };
	const end = Math.min(performance.now() + s.timeout + (a.wait ?? 0), a.deadline ?? Number.POSITIVE_INFINITY);
	const time = new AbortController();
	const ended: Ended = { signal: time.signal, caller: a.signal };
	const leave = a.breaker?.enter();
	if (leave instanceof Failure) return { requestId, failure: leave };
	const abort = () => time.abort();
	if (a.signal?.aborted) abort();
	a.signal?.addEventListener("abort", abort);
	const timer = setTimeout(abort, Math.min(Math.max(0, end - performance.now()), longest));
	let failure: Failure | undefined = odd("it was not read");
	try {
		for (let n = 0; ; n++) {
			failure = await once(s, a, requestId, ended, read);
			if (failure === undefined || !(await mayRepeat(s, a, failure, n, end, ended.signal))) return { requestId, failure };
		}
	} finally {
		clearTimeout(timer);
		a.signal?.removeEventListener("abort", abort);
		leave?.(outcomeOf(failure, s.chosen, a.breaker?.refused));
	}
}

/** How a call ends before its answer: by its time, or by its caller. */
interface Ended {
	signal: AbortSignal;
	caller: AbortSignal | undefined;
}

async function once(s: Settings, a: Asking, requestId: string, ended: Ended, read: Reader): Promise<Failure | undefined> {
	const hidden = [...(a.secrets ?? [])];
	const headers: { [name: string]: string } = {
		...a.headers,
		accept: "application/json",
		"accept-encoding": "identity",
		"x-request-id": requestId,
	};
	if (ended.signal.aborted) return Object.assign(broken(ended, undefined, hidden), { sent: false });
	if (s.credential !== undefined) {
		const token = await credentialOf(s.credential, ended);
		if (token instanceof Failure) return token;
		hidden.push(token);
		headers.authorization = `Bearer ${token}`;
	}
	let body: string | null = null;
	if (a.method !== "GET") {
		headers["content-type"] = "application/json";
		body = JSON.stringify(a.body ?? {});
	}
	let response: Response;
	const { fetch } = s; // a browser's takes no other `this` than its own
	try {
		// a decision that was moved is none, and a redirect is how a credential would leave its origin
		response = await fetch(a.url, { method: a.method ?? "POST", headers, body, redirect: "manual", signal: ended.signal });
	} catch (error) {
		return broken(ended, error, hidden);
	}
	try {
		return await receive(response, a, requestId, ended, hidden, read);
	} finally {
		if (!response.bodyUsed) response.body?.cancel().catch(() => {});
	}
}

async function credentialOf(source: string | (() => string | Promise<string>), ended: Ended): Promise<string | Failure> {
	let token: unknown = source;
	if (typeof source === "function") {
		try {
			token = await before(ended.signal, source());
		} catch {
			// the text of the error may hold the credential
			if (!ended.signal.aborted) return notAsked("the credential function failed");
			return Object.assign(broken(ended, undefined, []), { sent: false });
		}
	}
	return isToken(token) ? token : notAsked("the credential is empty, or has characters that no header can carry");
}

/** Whether a value is visible ASCII. */
export function isToken(v: unknown): v is string {
	return typeof v === "string" && /^[\x21-\x7e]+$/.test(v);
}

/** The value, unless the signal comes first. A promise may be that of any library. */
export function before<T>(signal: AbortSignal, value: T | Promise<T>): Promise<T> {
	return new Promise<T>((resolve, reject) => {
		const abort = () => reject(new DOMException("aborted", "AbortError"));
		if (signal.aborted) abort();
		signal.addEventListener("abort", abort, { once: true });
		Promise.resolve(value)
			.then(resolve, reject)
			.finally(() => signal.removeEventListener("abort", abort));
	});
}

/** Judges an answer by all but its body, and then has it read. */
async function receive(
	response: Response,
	a: Asking,
	requestId: string,
	ended: Ended,
	hidden: string[],
	read: Reader,
): Promise<Failure | undefined> {
	const { status, headers } = response;
	if (!(a.statuses ?? [200]).includes(status)) return refusal(response, hidden);
	const echo = headers.get("x-request-id");
	if (echo?.split(", ").some((id) => id !== requestId)) return odd("it answers another X-Request-ID");
	const reply: Reply = { status, body: null, decisionId: undefined, retryAfter: retryAfterOf(headers), secrets: hidden };
	const decisionId = headers.get("x-decision-id");
	if (decisionId) reply.decisionId = printable(decisionId, hidden);
	if (status !== 204) {
		if ((headers.get("content-encoding") ?? "identity") !== "identity") return odd("it has a Content-Encoding");
		if (!jsonType.test(headers.get("content-type") ?? "")) return odd("its Content-Type is not application/json");
		let bytes: Uint8Array | undefined;
		try {
			bytes = await bodyOf(response, mostBytes);
		} catch (error) {
			return Object.assign(broken(ended, error, hidden), { again: "never" });
		}
		if (bytes === undefined) return odd("its body is larger than 1 MiB");
		try {
			reply.body = readJson(bytes);
		} catch {
			return odd("its body is no JSON without ambiguities");
		}
	}
	let failure: Failure | undefined;
	try {
		failure = read(reply);
	} catch (error) {
		failure = failureOf(error);
	}
	if (failure) failure.detail = printable(failure.detail, hidden);
	return failure;
}

// One type; several come as one text with a comma between them.
const jsonType = /^application\/json[ \t]*(?:;[ \t]*(?:[\w!#$%&'*+.^`|~-]+=(?:[\w!#$%&'*+.^`|~-]+|"[^"\\]*"))?[ \t]*)*$/i;

/** The bytes of a body, undefined if there are more than so many. */
async function bodyOf(response: Response, limit: number): Promise<Uint8Array | undefined> {
	if (response.body === null) return new Uint8Array();
	const reader = (response.body as ReadableStream<Uint8Array>).getReader(); // not every browser iterates over a body
	const parts: Uint8Array[] = [];
	let size = 0;
	for (let next = await reader.read(); !next.done; next = await reader.read()) {
		size += next.value.byteLength;
		if (size > limit) {
			reader.cancel().catch(() => {});
			return undefined;
		}
		parts.push(next.value);
	}
	return joined(parts);
}

/** The failure of any status but one of an answer. */
async function refusal(response: Response, hidden: string[]): Promise<Failure> {
	const { status } = response;
	const kind = status === 429 || status >= 500 ? "unavailable" : status >= 400 ? "refused" : "odd";
	const failure = new Failure(kind, "", { pdpStatus: status, retryAfter: retryAfterOf(response.headers) });
	if (failure.retryAfter !== undefined && (status === 429 || status === 503)) failure.again = "asked_to_wait";
	try {
		const problem = readJson((await bodyOf(response, mostOfProblem)) ?? new Uint8Array());
		if (isObject(problem)) failure.detail = printable(textOf(problem.detail) ?? "", hidden);
	} catch {
		// it has no text that can be read
	}
	return failure;
}

/** Seconds, from a number or a date; undefined is none, and 0 an invitation. */
function retryAfterOf(headers: Headers): number | undefined {
	const text = headers.get("retry-after") ?? "";
	const seconds = /^\d{1,10}$/.test(text) ? Number(text) : / GMT$/.test(text) ? (Date.parse(text) - Date.now()) / 1000 : Number.NaN;
	return Number.isNaN(seconds) ? undefined : Math.min(Math.max(seconds, 0), 86_400);
}

/** The failure of an exchange that did not come to its end. */
function broken(ended: Ended, error: unknown, hidden: string[]): Failure {
	if (ended.caller?.aborted) return new Failure("cancelled", "");
	if (ended.signal.aborted) return new Failure("timed_out", "");
	const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
	const causes: unknown[] = cause instanceof AggregateError ? cause.errors : [cause];
	const text = causes.map((one) => (one instanceof Error ? one.message : "")).join("; ");
	if (text === "bad port")
		return new Failure("unreachable", "fetch does not ask this port", { sent: false, remedy: "give the PDP another" });
	const again = causes.map(failedAt).sort((one, other) => order.indexOf(other) - order.indexOf(one))[0] ?? "never";
	return new Failure("unreachable", printable(text, hidden), {
		again,
		sent: !causes.every((one) => noConnection(one as { code?: string; syscall?: string })),
	});
}

const order: Again[] = ["unsent", "unanswered", "never"];

/** How far a request came. */
function failedAt(error: unknown): Again {
	const { code, syscall } = (error ?? {}) as { code?: string; syscall?: string };
	if (code === "ECONNREFUSED" && syscall === "connect") return "unsent";
	return ["ECONNREFUSED", "ECONNRESET", "EPIPE", "UND_ERR_SOCKET"].includes(code ?? "") ? "unanswered" : "never";
}

/** Whether the connection was not made: the name, the way or the certificate failed. */
function noConnection({ code, syscall }: { code?: string; syscall?: string }): boolean {
	if (syscall === "connect" || syscall === "getaddrinfo" || code === "UND_ERR_CONNECT_TIMEOUT") return true;
	return /^(ERR_TLS_|UNABLE_TO_|SELF_SIGNED_|DEPTH_ZERO_)|CERT/.test(code ?? "");
}

/** Waits for the next attempt, and says whether there is one. */
async function mayRepeat(s: Settings, a: Asking, failure: Failure, n: number, end: number, signal: AbortSignal): Promise<boolean> {
	const { again } = failure;
	if (n >= s.retries || again === "never" || (again !== "unsent" && a.repeat === "unsent")) return false;
	const pause = Math.max((0.5 + Math.random()) * 50 * 2 ** Math.min(n, 10), (failure.retryAfter ?? 0) * 1000);
	if (end - performance.now() < pause) return false; // waiting would make a time-out of a clear error
	return sleep(pause, signal);
}

/** Waits, for 24 days at most, and says whether it came to its end. */
export function sleep(milliseconds: number, signal: AbortSignal | undefined): Promise<boolean> {
	return new Promise((resolve) => {
		if (signal?.aborted) return resolve(false);
		const abort = () => {
			clearTimeout(timer);
			resolve(false);
		};
		const timer = setTimeout(
			() => {
				signal?.removeEventListener("abort", abort);
				resolve(true);
			},
			Math.min(milliseconds, longest),
		);
		signal?.addEventListener("abort", abort, { once: true });
	});
}

/** A timer of more would be one of no time at all. */
const longest = 2 ** 31 - 1;

type Outcome = "answered" | "undecided" | "failed";

function outcomeOf(failure: Failure | undefined, chosen: boolean, refused: Outcome = "failed"): Outcome {
	switch (failure?.kind) {
		case undefined:
		case "bad_item":
		case "obligated":
			return "answered";
		case "refused":
			return [401, 403, 404].includes(failure.pdpStatus ?? 0) ? refused : "answered";
		case "cancelled":
		case "not_asked":
			return "undecided";
		default:
			return chosen && (failure?.kind === "odd" || failure?.pdpStatus === 429) ? "undecided" : "failed"; // it may be about the tenant
	}
}

/** Gives leave to call. */
export interface Circuit {
	/** Leave to call, which is given back with the outcome, or the failure. */
	enter(): Failure | ((outcome: Outcome) => void);
	/** The outcome of 401, 403 and 404: the caller is refused, or this one request. */
	readonly refused: Outcome;
}

/**
 * Stops asking a PDP that does not answer, so that callers are denied at once. It is closed, open, or half open: then one
 * call is let through, and decides.
 */
export class Breaker implements Circuit {
	#failures = 0;
	#since: number | undefined;
	#probing = false;
	#turn = 0; // a call of an earlier turn has no say in this one

	/** It opens after so many failures, 0 is never, for so many milliseconds. */
	constructor(
		readonly threshold: number,
		readonly coolDown: number,
		readonly refused: Outcome = "failed",
	) {}

	enter(): Failure | ((outcome: Outcome) => void) {
		if (this.#since !== undefined) {
			if (this.#probing || performance.now() - this.#since < this.coolDown) return new Failure("open", "", { sent: false });
			this.#probing = true;
		}
		const turn = this.#turn;
		return (outcome) => this.#leave(turn, outcome);
	}

	#leave(turn: number, outcome: Outcome): void {
		if (turn !== this.#turn || this.threshold === 0) return;
		if (outcome === "undecided") {
			this.#probing = false; // the next call may try
			return;
		}
		const open = this.#since !== undefined;
		if (outcome === "failed" && !open && ++this.#failures < this.threshold) return;
		if (outcome === "failed" || open) this.#turn++;
		this.#failures = 0;
		this.#probing = false;
		this.#since = outcome === "failed" ? performance.now() : undefined;
	}
}

/** Whether an origin is plain http to another machine. */
export function exposed({ protocol, hostname }: URL): boolean {
	return protocol === "http:" && hostname !== "localhost" && hostname !== "[::1]" && !/^127\.\d+\.\d+\.\d+$/.test(hostname);
}

/** Reports whether Node's fetch sends plain http to a proxy, even for this machine's own addresses. The proxy could write the answer. */
export function proxied({ protocol, hostname, host }: URL): boolean {
	const { env = {}, execArgv = [] } = (globalThis as { process?: { env?: NodeJS.ProcessEnv; execArgv?: string[] } }).process ?? {};
	const { NODE_USE_ENV_PROXY, NODE_OPTIONS = "", http_proxy, HTTP_PROXY, no_proxy, NO_PROXY } = env;
	const spared = (no_proxy ?? NO_PROXY ?? "").split(/[,\s]+/);
	const on = NODE_USE_ENV_PROXY === "1" || [NODE_OPTIONS, ...execArgv].some((option) => option.includes("--use-env-proxy"));
	return on && protocol === "http:" && Boolean(http_proxy ?? HTTP_PROXY) && ![hostname, host, "*"].some((name) => spared.includes(name));
}
