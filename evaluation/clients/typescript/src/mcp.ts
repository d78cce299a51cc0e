// A guard for servers of the official SDK for MCP: it asks the PDP before a request has its effect. Package
// evaluation/coaz/sdkpep of policy-service is the same for Go.
import type { IncomingMessage } from "node:http";
import type { AuthInfo } from "@modelcontextprotocol/sdk/server/auth/types.js";
import type { Transport, TransportSendOptions } from "@modelcontextprotocol/sdk/shared/transport.js";
import type { JSONRPCMessage, JSONRPCRequest, MessageExtraInfo, RequestId } from "@modelcontextprotocol/sdk/types.js";
import type { Wait } from "./approvals.js";
import { joined } from "./bytes.js";
import type { Client, Permit } from "./client.js";
import { Binding, codes, declarationOf, Mapping, MappingError, type Questions, type RefusalKind } from "./coaz.js";
import { promising } from "./core.js";
import { AuthorizationError, Denied, printable } from "./errors.js";
import { type Asks, chosen, waiting } from "./guard.js";
import { isObject, JsonError, readJson } from "./json.js";
import type { Json, JsonObject, Question } from "./types.js";

/** Why a request is refused, for its client: an error of JSON-RPC, and in a tool's handler a result with isError. */
export class Refusal extends Error {
	override readonly name = "Refusal";
	readonly code: number;

	constructor(
		readonly kind: RefusalKind,
		message: string,
		readonly data: { type: string; reason?: string; suggestion?: string; retry_after?: number },
		/** Why, for the operator's eyes. */
		override readonly cause?: unknown,
	) {
		super(message);
		this.code = codes[kind];
	}
}

/** The answer in the place of a result, or an error, that an obligation has to change and could not. It may have been executed. */
const withheld = (cause?: unknown) => new Refusal("unreachable", "The result is withheld", { type: "withheld" }, cause);

const unavailable = (cause: unknown, retryAfter?: number) => {
	const data = { type: "authorization_unavailable", ...(retryAfter !== undefined && { retry_after: retryAfter }) };
	return new Refusal("unreachable", "Authorization service unavailable", data, cause);
};

/** The refusal that an error of a question is; any other error is itself. */
function refusalOf(e: unknown): unknown {
	if (e instanceof MappingError) return new Refusal("mapping", e.message, { type: "mapping_error" }, e);
	if (e instanceof Denied) {
		const reason = e.reason === "approval_pending" ? waiting : e.reasonUser && printable(e.reasonUser);
		const asks = e.reason?.startsWith("approval_") && { suggestion: "ask for approval" };
		const data = { type: "authorization_denied", ...(reason && { reason }), ...asks };
		return new Refusal("denied", reason ? `Access denied: ${reason}` : "Access denied", data, e);
	}
	if (!(e instanceof AuthorizationError)) return e;
	const aboutIt = (e.kind === "refused" || e.kind === "bad_item") && [400, 413, 422].includes(e.pdpStatus ?? 0);
	if (aboutIt || e.kind === "not_asked") {
		const message = "COAZ mapping error: the authorization service does not take the question";
		return new Refusal("mapping", message, { type: "mapping_error" }, e);
	}
	return unavailable(e, e.retryAfter);
}

/** The error of an act. It is frozen, so that a handler of obligations cannot change it in place. */
class Thrown {
	constructor(readonly error: unknown) {}
}

/** Acts if all is permitted. It rejects with a Refusal, or with the error of the act. The result of an act that is a task comes later. */
async function guarded<T>(
	client: Client | undefined,
	{ api, questions }: Questions,
	act: () => T | Promise<T>,
	options: { signal?: AbortSignal; wait?: Wait },
	isTask = false,
): Promise<T> {
	if (client === undefined) throw unavailable("no client was chosen for the request");
	let [acted, thrown]: [boolean, Thrown | undefined] = [false, undefined];
	const run = async (permits: Permit | readonly Permit[]) => {
		if (isTask && [permits].flat().some((permit) => promising.has(permit))) {
			const message = "Access denied: the result of a task is changed by no obligation; leave params.task out";
			throw new Refusal("denied", message, { type: "authorization_denied" });
		}
		acted = true;
		try {
			return await act();
		} catch (error) {
			thrown = Object.freeze(new Thrown(error)); // its text may hold values that are to be redacted
			return thrown;
		}
	};
	let result: T | Thrown;
	try {
		const [first, ...more] = questions;
		if (first === undefined) throw new MappingError("", "there is no question");
		const alone = api === "evaluation" && more.length === 0;
		result = alone ? await client.enforce(first, run, options) : await client.enforceAll(questions, run, options);
	} catch (e) {
		throw acted ? withheld(e) : refusalOf(e);
	}
	if (thrown === undefined) return result as T;
	const { error } = thrown as Thrown;
	throw result === thrown ? refusalOf(error) : withheld(error); // a handler that asks by itself may be denied
}

interface Extra {
	authInfo?: AuthInfo;
	signal?: AbortSignal;
}

/** The question about a call of one tool: a function of its arguments, or a mapping with the tool's name. */
export type ToolQuestion<A, E> =
	| ((args: A, extra: E) => Question | readonly Question[] | Promise<Question | readonly Question[]>)
	| { name: string; mapping: Mapping; claims?: (authInfo: AuthInfo | undefined) => unknown };

/**
 * Wraps the handler of a tool that has an inputSchema: `{}` if it has no arguments. The handler runs if the PDP permits the
 * call, and its result is changed as the client's handlers of obligations promise. A mapping reads the claims of the token
 * in `authInfo.extra.claims`. With a number as `wait`, equal requests join, so that a later call finds the approval.
 */
export function guardTool<A, E extends Extra, R>(
	client: Asks<E>,
	question: ToolQuestion<A, E>,
	handler: (args: A, extra: E) => R | Promise<R>,
	{ wait }: { wait?: Wait } = {},
): (args: A, extra: E) => Promise<R> {
	const options = wait === undefined ? {} : { wait: typeof wait === "number" ? { timeout: wait, join: true } : wait };
	return async (args, extra) => {
		if (extra === undefined) throw new TypeError("guardTool is for a tool that has an inputSchema: without arguments, {}");
		const signal = extra.signal && { signal: extra.signal };
		let asks: Client | undefined;
		let asked: Questions;
		try {
			asks = await chosen(client, extra);
			if (typeof question === "function") {
				const all = await question(args, extra);
				asked = Array.isArray(all)
					? { api: "evaluations", questions: all as Question[] }
					: { api: "evaluation", questions: [all as Question] };
			} else {
				const { name, mapping, claims = claimsOf } = question;
				asked = mapping.questions({ method: "tools/call", params: { name, arguments: args }, token: claims(extra.authInfo) });
			}
		} catch (e) {
			throw e instanceof MappingError
				? refusalOf(e)
				: new Refusal("mapping", "No question can be made of the call", { type: "mapping_error" }, e);
		}
		return guarded(asks, asked, () => handler(args, extra), { ...options, ...signal });
	};
}

const claimsOf = (authInfo: AuthInfo | undefined): unknown => authInfo?.extra?.claims ?? {};

/** The options of a {@link guard}. Give the same object for each session. */
export interface GuardOptions {
	/** Or a function that chooses one for each request, such as `client.forTenant(name)`. */
	client: Asks<AuthInfo | undefined>;
	/**
	 * The definitions of the tools as tools/list shows them, or a function that finds one by its name, at once. They are read at each
	 * call, and a call of a tool that is not among them is refused. Without `tools`, each call is asked about by the default mapping,
	 * which has no arguments.
	 */
	tools?: readonly { readonly name: string; readonly [member: string]: unknown }[] | ((name: string) => unknown);
	/** The server's own resource identifier, which tokens are for. */
	resource?: string;
	/** The claim with the id of the subject; sub. */
	subjectClaim?: string;
	/** The validated claims of the token; `authInfo.extra.claims`. */
	claims?: (authInfo: AuthInfo | undefined) => unknown;
	/** Mappings of the operator by method, for those that have no default. */
	mappings?: { readonly [method: string]: Mapping };
	/** Is called with each request that is refused, for a log. */
	onRefused?: (refusal: Refusal, method: string) => void | Promise<void>;
}

/** The rules of the options. Default mappings are compiled once, and a tool's when the text of its definition changes. */
class Rules {
	readonly binding: Binding;
	readonly #defined: boolean;
	readonly #declared = new Map<string, { text: string; mapping: Mapping | undefined }>();

	constructor(readonly options: GuardOptions) {
		const { resource, subjectClaim } = options;
		this.binding = new Binding({ ...(resource !== undefined && { resource }), ...(subjectClaim !== undefined && { subjectClaim }) });
		this.#defined = "tools" in options;
		if (this.#defined) definitionsOf(options.tools);
	}

	questions({ method, params }: JSONRPCRequest, extra: MessageExtraInfo | undefined): Questions {
		// McpServer looks up new URL(uri): file:///public/../secret would be asked about as it is written
		if (typeof params?.uri === "string" && (!URL.canParse(params.uri) || new URL(params.uri).href !== params.uri)) {
			throw new MappingError("", "params.uri is not written as a server reads it; send what new URL(uri).href is");
		}
		// the SDK gives a tool no other params: a mapping must not decide by what is not executed
		const seen =
			method === "tools/call" && params ? Object.fromEntries(Object.entries(params).filter(([name]) => paramsOfCall.has(name))) : params;
		const operation = { method, params: seen, token: (this.options.claims ?? claimsOf)(extra?.authInfo) };
		const defined = this.#defined || "tools" in this.options;
		const declared = method === "tools/call" && defined ? this.#declaredBy(params?.name) : undefined;
		const own = this.options.mappings && Object.hasOwn(this.options.mappings, method) ? this.options.mappings[method] : undefined;
		const mapping = declared ?? own ?? this.binding.default(method) ?? this.binding.forgotten(method);
		if (mapping instanceof Mapping) return mapping.questions(operation);
		throw new Refusal("denied", "Access denied: there is no mapping for this method", { type: "authorization_denied" });
	}

	/** Returns the mapping that a tool declares now, undefined if it declares none. It throws for a tool that has no definition. */
	#declaredBy(name: unknown): Mapping | undefined {
		if (typeof name !== "string") throw new MappingError("", "params.name is no string");
		const [tool, ...more] = definitionsOf(this.options.tools)(name);
		if (tool === undefined || tool === null) throw new MappingError("", "the server has no such tool");
		if (more.length > 0) throw new MappingError("", "the server has two tools of this name");
		if (typeof tool === "object" && "then" in tool) {
			throw new MappingError("", "the definition is a promise; the function tools has to return it at once");
		}
		const own = (tool as { name?: unknown }).name;
		if (own !== name) throw new MappingError("", "the server has no tool of this very name");
		const declaration = declarationOf(tool);
		if (declaration === undefined) return undefined;
		const text = JSON.stringify(declaration);
		let known = this.#declared.get(name);
		if (known?.text !== text) {
			known = { text, mapping: this.binding.parse({ inputSchema: { "x-authzen-mapping": declaration } }) };
			if (this.#declared.size >= mostCompiled) this.#declared.clear(); // a function may have a tool for any name
			this.#declared.set(name, known);
		}
		return known.mapping;
	}
}

const mostCompiled = 1024;
const paramsOfCall = new Set(["name", "arguments", "task", "_meta"]);

/** Returns a function that finds the definitions of a name. */
function definitionsOf(tools: unknown): (name: string) => unknown[] {
	if (typeof tools === "function") return (name) => [tools(name)];
	if (Array.isArray(tools)) return (name) => tools.filter((tool) => tool?.name === name);
	throw new TypeError("policy-service-client: tools is neither an array nor a function; leave it out if there are no definitions");
}

const known = new WeakMap<GuardOptions, Rules>();

/**
 * A transport for `server.connect` that stands before another one. The PDP is asked about each request of a client, by the
 * mapping that the called tool declares or the default mapping of the method: the server gets permitted requests, and
 * no others. Messages of a tool before its result (progress, logs) are not changed by obligations.
 */
export function guard(transport: Transport, options: GuardOptions): Transport {
	const rules = known.get(options) ?? new Rules(options);
	known.set(options, rules);
	return new Guarded(transport, rules);
}

/** A request that was not answered yet. */
interface Active {
	readonly controller: AbortController;
	resolve?: (result: JsonObject) => void;
	reject?: (error: unknown) => void;
}

/** The server's own error. */
class WireError extends Error {
	constructor(readonly error: { code: number; message: string; data?: unknown }) {
		super(error.message);
	}
}

/** Notifications that a client of MCP sends. */
const passing = ["notifications/initialized", "notifications/cancelled", "notifications/progress", "notifications/roots/list_changed"];

class Guarded implements Transport {
	onclose?: (() => void) | undefined;
	onerror?: ((error: Error) => void) | undefined;
	onmessage?: (<T extends JSONRPCMessage>(message: T, extra?: MessageExtraInfo) => void) | undefined;
	readonly #inner: Transport;
	readonly #rules: Rules;
	readonly #active = new Map<RequestId, Active>();
	/** Requests that needed no question. */
	readonly #passed = new Set<RequestId>();

	constructor(inner: Transport, rules: Rules) {
		this.#inner = inner;
		this.#rules = rules;
		inner.onmessage = (message, extra) => this.#receive(message, extra);
		inner.onerror = (error) => this.onerror?.(error);
		inner.onclose = () => {
			for (const id of [...this.#active.keys()]) this.#giveUp(id);
			this.onclose?.();
		};
	}

	get sessionId(): string | undefined {
		return this.#inner.sessionId;
	}
	start(): Promise<void> {
		return this.#inner.start();
	}
	close(): Promise<void> {
		return this.#inner.close();
	}
	setProtocolVersion(version: string): void {
		this.#inner.setProtocolVersion?.(version);
	}

	/** A response of the server is held until its obligations are kept. All else goes on. */
	async send(message: JSONRPCMessage, options?: TransportSendOptions): Promise<void> {
		const response = !("method" in message) && "id" in message && message.id !== undefined ? message : undefined;
		if (response === undefined) return this.#inner.send(message, options);
		const active = this.#active.get(response.id as RequestId);
		if (active === undefined) return this.#passed.delete(response.id as RequestId) ? this.#inner.send(message, options) : undefined;
		if ("result" in response) active.resolve?.(response.result as JsonObject);
		else active.reject?.(new WireError(response.error));
	}

	#receive(message: JSONRPCMessage, extra: MessageExtraInfo | undefined): void {
		if (!("method" in message)) {
			this.onmessage?.(message, extra); // the client's answer to the server
		} else if (!("id" in message)) {
			if (passing.includes(message.method)) this.onmessage?.(message, extra);
			else this.onerror?.(new Error("a message without an id that is no notification was dropped"));
			if (message.method === "notifications/cancelled") this.#giveUp(message.params?.requestId as RequestId);
		} else if (this.#active.has(message.id) || this.#passed.has(message.id)) {
			const error = { code: -32600, message: "Invalid request: one with this id was not answered yet" };
			void this.#answer({ jsonrpc: "2.0", id: message.id, error });
		} else if (message.method === "ping") {
			this.#passed.add(message.id);
			this.onmessage?.(message, extra);
		} else {
			this.#request(message, extra).catch((e: unknown) => this.onerror?.(e instanceof Error ? e : new Error(String(e))));
		}
	}

	async #request(message: JSONRPCRequest, extra: MessageExtraInfo | undefined): Promise<void> {
		const { id, method } = message;
		const { client, onRefused } = this.#rules.options;
		const active: Active = { controller: new AbortController() };
		const { signal } = active.controller;
		this.#active.set(id, active);
		let answer: JSONRPCMessage;
		let refusal: unknown;
		try {
			const asked = this.#rules.questions(message, extra);
			const isTask = message.params?.task !== undefined;
			const result: unknown = await guarded(
				await chosen(client, extra?.authInfo),
				asked,
				() => this.#forward(message, extra, active),
				{ signal },
				isTask,
			);
			if (!isObject(result as Json)) throw withheld("it is no object, or was changed to what is none");
			answer = { jsonrpc: "2.0", id, result: result as { [name: string]: unknown } };
		} catch (e) {
			refusal = refusalOf(e); // of a mapping
			answer = { jsonrpc: "2.0", id, error: errorOf(refusal) };
		}
		this.#active.delete(id);
		if (!signal.aborted) await this.#answer(answer);
		if (refusal instanceof Refusal) await onRefused?.(refusal, method);
	}

	#forward(message: JSONRPCRequest, extra: MessageExtraInfo | undefined, active: Active): Promise<JsonObject> {
		return new Promise((resolve, reject) => {
			active.controller.signal.throwIfAborted();
			Object.assign(active, { resolve, reject });
			if (this.onmessage) this.onmessage(message, extra);
			else reject(new Error("no server is connected"));
		});
	}

	/** The server sends no response to a request that was cancelled. */
	#giveUp(id: RequestId): void {
		this.#passed.delete(id);
		const active = this.#active.get(id);
		active?.controller.abort();
		active?.reject?.(new Error("cancelled"));
	}

	async #answer(message: JSONRPCMessage): Promise<void> {
		try {
			await this.#inner.send(message);
		} catch (e) {
			this.onerror?.(e instanceof Error ? e : new Error(String(e)));
		}
	}
}

function errorOf(e: unknown): { code: number; message: string; data?: unknown } {
	if (e instanceof WireError) return e.error;
	if (e instanceof Refusal) return { code: e.code, message: e.message, data: e.data };
	return { code: codes.unreachable, message: "Internal error" };
}

/** A message of HTTP that is not handed on: the status, and the body of the answer. */
export class MessageError extends Error {
	readonly body: JsonObject;
	constructor(
		readonly status: number,
		message: string,
		code: number,
		id: string | number | null = null,
	) {
		super(message);
		this.body = { jsonrpc: "2.0", id, error: { code, message } };
	}
}

/**
 * Reads the one message of a POST, before any other reader of the body: `transport.handleRequest(req, res, await
 * readMessage(req))`. It throws a {@link MessageError} for a message that two readers could read differently: with a member
 * twice, or in another case than JSON-RPC or MCP has it; with bytes that are no UTF-8; with a number that JavaScript would
 * round; with something after the message; a batch; a request without an id; with a header twice that identifies it.
 */
export async function readMessage(req: IncomingMessage, most = 4 << 20): Promise<JSONRPCMessage> {
	const names = req.rawHeaders.filter((_, n) => n % 2 === 0).map((name) => name.toLowerCase());
	const twice = names.find(
		(name, n) =>
			names.indexOf(name) < n && (name.startsWith("mcp-") || ["content-type", "content-encoding", "authorization"].includes(name)),
	);
	const type = /^application\/json\s*(?:;\s*charset="?utf-8"?\s*)?$/i.test(req.headers["content-type"] ?? "");
	if (twice || !type || req.headers["content-encoding"] !== undefined) {
		throw new MessageError(415, "the message is not plain JSON in UTF-8, or a header of it comes twice", -32700);
	}
	const parts: Uint8Array[] = [];
	let size = 0;
	for await (const part of req as AsyncIterable<Uint8Array>) {
		size += part.length;
		if (size > most) throw new MessageError(413, "the message is too large", -32600);
		parts.push(part);
	}
	return parseMessage(joined(parts));
}

/** {@link readMessage} of bytes. */
export function parseMessage(bytes: Uint8Array): JSONRPCMessage {
	const text = new TextDecoder().decode(bytes);
	let message: Json;
	try {
		message = readJson(bytes);
	} catch (e) {
		if (e instanceof JsonError && e.message.startsWith("a number that is too large")) throw inexact(text);
		throw new MessageError(400, "this is not one JSON value without ambiguities", -32700);
	}
	const invalid = (what: string) => new MessageError(400, what, -32600);
	if (!isObject(message)) throw invalid(Array.isArray(message) ? "batches are not taken; send one message" : "this is no message");
	const params = isObject(message.params) ? message.params : {};
	const ref = isObject(params.ref) ? params.ref : {};
	if (misspelt(message, ofMessages) || misspelt(params, ofParams) || misspelt(ref, ofParams)) {
		throw invalid("a member is spelt in another case than JSON-RPC or MCP has it");
	}
	if (hasProto(message)) throw invalid("a member has a name that is not taken");
	const { id, method } = message;
	if (id !== undefined && typeof id !== "string" && !Number.isSafeInteger(id))
		throw invalid("the id is neither a string nor an integer between -2^53 and 2^53");
	if (method !== undefined && typeof method !== "string") throw invalid("the method is not a string");
	if (method !== undefined && ("result" in message || "error" in message)) throw invalid("a message is either a request or a response");
	if (method !== undefined && id === undefined && !method.startsWith("notifications/")) throw invalid("a request has an id");
	return JSON.parse(text) as JSONRPCMessage; // of objects as servers expect them
}

/** No question can be made of a number that is rounded. The id is that of the request, as far as it can be said. */
function inexact(text: string): MessageError {
	let id: unknown;
	try {
		id = (JSON.parse(text) as { id?: unknown } | null)?.id;
	} catch {
		// then it has none
	}
	const said = typeof id === "string" || Number.isSafeInteger(id) ? (id as string | number) : null;
	return new MessageError(
		400,
		"COAZ mapping error: a number of the message is one that JavaScript does not hold exactly",
		codes.mapping,
		said,
	);
}

const ofMessages = ["jsonrpc", "id", "method", "params", "result", "error"];
const ofParams = ["name", "arguments", "uri", "ref", "argument", "type", "_meta"];
/** Readers that ignore case take \u017f for s, and \u212a for k. */
const folded = (name: string) => name.toUpperCase().toLowerCase();
const misspelt = (o: JsonObject, names: readonly string[]) =>
	Object.keys(o).some((name) => !names.includes(name) && names.includes(folded(name)));

function hasProto(v: Json | undefined): boolean {
	if (typeof v !== "object" || v === null) return false;
	return Object.entries(v).some(([name, member]) => name === "__proto__" || hasProto(member as Json));
}
