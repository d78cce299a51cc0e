// From a tool's definition to questions, as OpenID's COAZ binding for MCP has it and package evaluation/coaz of
// policy-service reads it. It asks no PDP, and knows no library of MCP.
import { CelError, celOf, compile, type Expression, Meter, type Variables } from "./cel.js";
import { printable } from "./errors.js";
import { isObject, JsonError, plainJson } from "./json.js";
import type { Action, Entity, Json, JsonObject, Question } from "./types.js";

/** Why a request is refused. Each kind refuses it. */
export type RefusalKind = "mapping" | "denied" | "unreachable";

/** The codes of JSON-RPC for the kinds. */
export const codes: { readonly [kind in RefusalKind]: number } = { mapping: -32602, denied: -32001, unreachable: -32603 };

/** No question can be made: there is nothing to ask, and nothing to fall back on. It quotes no argument and no claim. */
export class MappingError extends Error {
	readonly kind = "mapping";
	readonly code = codes.mapping;
	/** The JSON Pointer of the place in the mapping. */
	readonly pointer: string;
	override readonly name = "MappingError";

	constructor(pointer: string, detail: string) {
		super(printable(`COAZ mapping error: ${pointer && `${pointer}: `}${detail}`)); // names of members stand in it
		this.pointer = pointer;
	}
}

function fail(pointer: string, detail: string): never {
	throw new MappingError(pointer, detail);
}

/** Rules of one deployment. */
export interface CoazOptions {
	/** The server's own resource identifier, which tokens are for. Without it, the token must have exactly one audience. */
	resource?: string;
	/** The claim with the id of the subject: a name, or a JSON Pointer such as /act/sub. Without it, sub. */
	subjectClaim?: string;
}

/** One request of MCP. The caller has validated the token: signature, issuer, audience and expiry. */
export interface Operation {
	method: string;
	/** As they came; for tools/call with name and arguments. */
	params?: unknown;
	/** The claims of the access token. */
	token: unknown;
}

/** The questions to the PDP. The request may go on only if each question is permitted. */
export interface Questions {
	api: "evaluation" | "evaluations";
	questions: Question[];
}

type Author = "declared" | "operator" | "standard";

interface Run {
	vars: Variables;
	meter: Meter;
	/** The subject claim of the token. */
	who: Json | undefined;
	token: JsonObject;
}
/** A part of a template: its value, or undefined where it has none. */
type Node = (run: Run) => Json | undefined;
type Part = "subject" | "action" | "resource" | "context";
interface Template {
	at: string;
	parts: { readonly [part in Part]?: Node };
	/** The members that its context has in the mapping itself. */
	named: readonly string[];
}

const most = { mapping: 32 << 10, depth: 16, entries: 64, expression: 2 << 10 };
const declared = ["supported_obligations", "supported_mandatory_extensions"];
const protocol = declared.concat("justification approval approval_id approved access_request evaluation_id capability person".split(" "));
const missing = "missing; it must be a string";
const noObject = "not an object";
const escaped = (name: string) => `/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`;
const isExpression = (v: Json | undefined): v is `$${string}` => typeof v === "string" && v.startsWith("$") && !v.startsWith("$$");
const namesOf = (part: Part) => (part === "action" ? ["name"] : ["type", "id"]);

/** Returns a copy of the mapping in a tool's definition, undefined if it has none. It throws where that cannot be said. */
export function declarationOf(tool: unknown): Json | undefined {
	if (!isPlain(tool)) fail("", "the tool's definition is no plain object");
	const { coaz, inputSchema } = tool as { [name: string]: unknown };
	if (coaz === true) fail("", "the tool says coaz: true, and its dialect is not read here");
	if (inputSchema === undefined) return undefined;
	if (!isPlain(inputSchema)) fail("", "the inputSchema of the tool's definition is no plain object");
	if (!Object.hasOwn(inputSchema, "x-authzen-mapping")) return undefined;
	return plain(inputSchema["x-authzen-mapping"], "the mapping");
}

/** Reports whether JSON shows an object's own members, and no others. */
function isPlain(v: unknown): v is { [name: string]: unknown } {
	if (!isObject(v as Json) || "toJSON" in (v as object)) return false;
	const prototype = Object.getPrototypeOf(v);
	return prototype === null || Object.getPrototypeOf(prototype) === null; // it may be an object of another realm
}

/** Reads mappings by the rules of one deployment. */
export class Binding {
	readonly #options: CoazOptions;
	readonly #defaults: ReadonlyMap<string, Mapping>;
	readonly #forgotten: ReadonlyMap<string, Mapping>;

	constructor(options: CoazOptions = {}) {
		this.#options = { ...options };
		const compiled = (all: { readonly [method: string]: JsonObject }) =>
			new Map(Object.entries(all).map(([method, mapping]) => [method, this.#compile(mapping, "standard", method)]));
		this.#defaults = compiled(defaults);
		this.#forgotten = compiled(forgotten);
	}

	/** The default mapping of a method: "pass" where it goes on unasked (ping, and notifications), undefined where it must be denied. */
	default(method: string): Mapping | "pass" | undefined {
		return this.#defaults.get(method) ?? (method === "ping" || method.startsWith("notifications/") ? "pass" : undefined);
	}

	/** Our mapping of a method that the binding forgot, undefined for every other. By the letter of the binding such a method is denied. */
	forgotten(method: string): Mapping | undefined {
		return this.#forgotten.get(method);
	}

	/**
	 * The mapping that a tool's definition declares, undefined if it declares none: then the default of tools/call applies.
	 * While it throws, no call of the tool may go on. The older dialect is not read: a tool that says coaz: true is refused.
	 */
	parse(tool: unknown): Mapping | undefined {
		const mapping = declarationOf(tool);
		return mapping === undefined ? undefined : this.#compile(mapping, "declared", "tools/call");
	}

	/** A mapping that an operator wrote. Nothing is added to it, and its subject may be any. */
	compile(mapping: unknown): Mapping {
		return this.#compile(mapping, "operator");
	}

	#compile(mapping: unknown, author: Author, method?: string): Mapping {
		return new Mapping(mapping, author, method, this.#options);
	}
}

/** A compiled mapping. It may be used many times. */
export class Mapping {
	private readonly api: "evaluation" | "evaluations";
	private readonly at: string;
	private readonly shared: Template;
	private readonly entries: Template[] | undefined;

	/** @internal */
	constructor(
		mapping: unknown,
		private readonly author: Author,
		private readonly method: string | undefined,
		private readonly options: CoazOptions,
	) {
		const whole = plain(mapping, "the mapping");
		if (!isObject(whole)) fail("", "the mapping is not an object");
		if (new TextEncoder().encode(JSON.stringify(whole)).length > most.mapping) fail("", `more than ${most.mapping} bytes`);
		const [name, ...more] = Object.keys(whole);
		if (name === undefined || more.length > 0) fail("", "not exactly one member; it must be evaluation or evaluations");
		this.at = escaped(name);
		if (name !== "evaluation" && name !== "evaluations") fail(this.at, "no API that can be asked; it must be evaluation or evaluations");
		this.api = name;
		const body = whole[name];
		if (!isObject(body)) fail(this.at, noObject);
		if (name === "evaluation") {
			this.shared = this.template(body, this.at);
			return;
		}
		// How many decisions are asked for is written here, and nothing that an expression yields changes it.
		const { evaluations: entries, ...rest } = body;
		this.shared = this.template(rest, this.at);
		const at = `${this.at}/evaluations`;
		if (!Array.isArray(entries) || entries.length === 0)
			fail(at, "not an array with at least one entry: without entries nothing would be asked");
		if (entries.length > most.entries) fail(at, `more than ${most.entries} entries`);
		this.entries = (entries as Json[]).map((entry, n) => {
			if (!isObject(entry)) fail(`${at}/${n}`, noObject);
			if (this.author !== "operator" && "subject" in entry)
				fail(`${at}/${n}/subject`, "an entry must not have a subject: the one beside the entries is everybody's");
			return this.template(entry, `${at}/${n}`);
		});
	}

	private template(body: JsonObject, at: string): Template {
		const parts: { [part in Part]?: Node } = {};
		let named: readonly string[] = [];
		for (const [name, v] of Object.entries(body)) {
			const place = at + escaped(name);
			if (name === "subject" || name === "action" || name === "resource")
				parts[name] = this.entity(v as Json, place, namesOf(name), name === "subject" && this.author !== "operator");
			else if (name === "context") {
				parts.context = isExpression(v) ? this.expression(v, place) : this.value(v as Json, place, 2);
				if (isObject(v)) named = Object.keys(v);
				else if (!isExpression(v)) fail(place, noObject);
				for (const member of named) this.forbid(member, place, this.author === "operator");
			} else fail(place, "no member that a mapping can have here; there are subject, action, resource and context");
		}
		return { at, parts, named };
	}

	/** Refuses members of a context that a mapping does not set. */
	private forbid(name: string, at: string, allowed: boolean): void {
		if (name === "action" || name === "pdp") fail(at + escaped(name), "only the PDP sets this member of the context");
		if (!allowed && protocol.includes(name))
			fail(at + escaped(name), "only the PEP sets this member of the context: it is between PEP and PDP");
	}

	/** An entity. Supplied has its members added where they are missing: those of the subject that everybody has. */
	private entity(v: Json, at: string, names: readonly string[], supplied: boolean): Node {
		if (isExpression(v)) {
			const expression = this.expression(v, at);
			return (run) => {
				const value = expression(run);
				if (!isObject(value)) fail(at, noObject);
				this.known(value, at, names);
				if (!supplied) for (const name of names) text(value[name], at + escaped(name));
				return value;
			};
		}
		if (!isObject(v)) fail(at, noObject);
		this.known(v, at, names);
		const members = Object.entries(v).map(([name, member]): [string, Node] => {
			const place = at + escaped(name);
			const node = this.value(member as Json, place, 2);
			// An entry without a name does not get the default beside the entries: a caller that leaves an argument out must not
			// have another question asked so.
			return [name, name === "properties" ? node : (run) => text(node(run), place)];
		});
		return (run) => object(members, run);
	}

	private known(v: JsonObject, at: string, names: readonly string[]): JsonObject {
		for (const name of Object.keys(v)) {
			if (name !== "properties" && !names.includes(name))
				fail(at + escaped(name), "it has no such member: what is the deployment's own stands below properties");
		}
		return v;
	}

	/** Any value: each string in it, at any depth, is a literal or an expression. */
	private value(v: Json, at: string, depth: number): Node {
		if (typeof v === "string") return isExpression(v) ? this.expression(v, at) : literal(v.startsWith("$") ? v.slice(1) : v);
		if (typeof v !== "object" || v === null) return literal(v);
		if (depth > most.depth) fail(at, `more than ${most.depth} levels`);
		if (isObject(v)) {
			const members = Object.entries(v).map(([name, m]): [string, Node] => [name, this.value(m as Json, at + escaped(name), depth + 1)]);
			return (run) => object(members, run);
		}
		const elements = v.map((e, n) => this.value(e, `${at}/${n}`, depth + 1));
		return (run) => elements.map((e) => e(run)).filter((e) => e !== undefined);
	}

	private expression(source: string, at: string): Node {
		if (new TextEncoder().encode(source).length > most.expression) fail(at, `more than ${most.expression} bytes in one expression`);
		let compiled: Expression;
		try {
			compiled = compile(source.slice(1));
		} catch (e) {
			fail(at, e instanceof CelError ? e.message : "the expression cannot be compiled");
		}
		const { root, name } = compiled.reads ?? {};
		if (this.author !== "operator" && root === "token" && name === "sub" && at === `${this.at}/subject/id`)
			return (run) => identity(run, at);
		if (this.author === "standard" && root === "token" && name === "aud" && at === `${this.at}/resource/id`) {
			return (run) => audience(run.token.aud, this.options.resource, at);
		}
		return (run) => {
			try {
				return compiled.evaluate(run.vars, run.meter);
			} catch (e) {
				fail(at, e instanceof CelError ? e.message : "the evaluation fails");
			}
		};
	}

	/** The questions about a request. It throws a {@link MappingError}. */
	questions(operation: Operation): Questions {
		if (this.method !== undefined && this.method !== operation.method)
			fail("", `the mapping is for ${this.method}, and was asked about another method`);
		const [params, token] = [plain(operation.params ?? {}, "the parameters"), plain(operation.token, "the claims of the token")];
		if (!isObject(params) || !isObject(token)) fail("", "the parameters or the claims of the token are no object");
		const run: Run = {
			vars: { params: celOf(params), token: celOf(token) },
			meter: new Meter(),
			who: claim(token, this.options.subjectClaim),
			token,
		};
		const shared = this.resolve(this.shared, run);
		if (this.author !== "operator") {
			const subject = (shared.subject ?? {}) as JsonObject;
			const id = "id" in subject ? subject.id : identity(run, `${this.at}/subject/id`);
			shared.subject = { ...subject, type: "type" in subject ? (subject.type as Json) : "identity", id: id as Json };
		}
		const templates = this.entries ?? [{ ...this.shared, parts: {} }];
		const questions = templates.map((entry) => {
			const parts = this.entries ? inherit(this.resolve(entry, run), shared) : shared;
			const place = (part: Part) => `${part in entry.parts ? entry.at : this.at}/${part}`;
			const question: Question = {
				subject: entityOf(parts.subject, place("subject"), ["type", "id"]) as unknown as Entity,
				action: entityOf(parts.action, place("action"), ["name"]) as unknown as Action,
				resource: entityOf(parts.resource, place("resource"), ["type", "id"]) as unknown as Entity,
			};
			if (parts.context !== undefined) {
				if (!isObject(parts.context)) fail(place("context"), noObject);
				const named = "context" in entry.parts ? entry.named : this.shared.named;
				for (const name of Object.keys(parts.context))
					this.forbid(name, place("context"), this.author === "operator" && named.includes(name));
				question.context = parts.context;
			}
			if (this.author !== "operator" && question.subject.id !== run.who)
				fail(`${this.at}/subject/id`, "the subject is not the one that the token names");
			return question;
		});
		return { api: this.api, questions };
	}

	private resolve(template: Template, run: Run): { [part in Part]?: Json } {
		const all: { [part in Part]?: Json } = {};
		for (const part of ["subject", "action", "resource", "context"] as const) {
			const value = template.parts[part]?.(run);
			if (value !== undefined) all[part] = value;
		}
		return all;
	}
}

const literal =
	(v: Json): Node =>
	() =>
		v;

/** An entry with its defaults: whole parts, and of a part of its own the type, id or name alone. */
function inherit(own: { [part in Part]?: Json }, shared: { [part in Part]?: Json }): { [part in Part]?: Json } {
	const all = { ...shared, ...own };
	for (const part of ["action", "resource", "subject"] as const) {
		const [mine, theirs] = [own[part], shared[part]];
		if (!isObject(mine) || !isObject(theirs)) continue;
		all[part] = { ...mine, ...Object.fromEntries(namesOf(part).map((name) => [name, name in mine ? mine[name] : theirs[name]])) };
	}
	return all;
}

function object(members: readonly (readonly [string, Node])[], run: Run): JsonObject {
	const all = members.map(([name, node]) => [name, node(run)] as const).filter(([, v]) => v !== undefined);
	return Object.assign(Object.create(null), Object.fromEntries(all)) as JsonObject;
}

function text(v: Json | undefined, at: string): string {
	if (v === undefined || v === null) fail(at, missing);
	if (typeof v !== "string") fail(at, "not a string");
	if (v === "") fail(at, "empty");
	return v;
}

/** A subject, an action or a resource of a question. */
function entityOf(v: Json | undefined, at: string, names: readonly string[]): JsonObject {
	if (v === undefined) fail(at, "missing; it must be an object");
	if (!isObject(v)) fail(at, noObject);
	for (const name of names) text(v[name], at + escaped(name));
	const { properties, ...rest } = v;
	if (properties === undefined || properties === null) return rest;
	if (!isObject(properties)) fail(`${at}/properties`, noObject);
	return v;
}

function plain(v: unknown, what: string): Json {
	try {
		return plainJson(v);
	} catch (e) {
		// its text has a path of names that were sent
		fail(
			"",
			`${what}: ${e instanceof JsonError ? "a value is no JSON, or a number that JavaScript does not hold exactly" : "cannot be read"}`,
		);
	}
}

function claim(token: JsonObject, path = "sub"): Json | undefined {
	if (!path.startsWith("/")) return token[path];
	let at: Json | undefined = token;
	for (const name of path.slice(1).split("/")) {
		at = isObject(at) ? at[name.replaceAll("~1", "/").replaceAll("~0", "~")] : undefined;
	}
	return at;
}

function identity(run: Run, at: string): string {
	if (typeof run.who === "string" && run.who !== "") return run.who;
	fail(at, "the token has no claim that says who the subject is");
}

/** The one string that identifies this server. */
function audience(aud: Json | undefined, own: string | undefined, at: string): string {
	const all = aud === undefined ? [] : Array.isArray(aud) ? (aud as Json[]) : [aud];
	if (!all.every((one) => typeof one === "string")) fail(at, "the token's audience is neither a string nor an array of strings");
	if (own !== undefined) {
		if (aud !== undefined && !all.includes(own)) fail(at, "the token is for another audience than this server");
		return own;
	}
	const [one] = all;
	if (all.length !== 1 || !one) fail(at, "the token does not have exactly one audience, and this server does not know its own identifier");
	return one;
}

const server = ["mcp_server", "$token.aud"] as const;
const standard = (method: string, [type, id]: readonly [string, string], more: JsonObject = {}): [string, JsonObject] => [
	method,
	{
		evaluation: {
			subject: { type: "identity", id: "$token.sub" },
			context: { agent: "$token.?client_id", ...more },
			action: { name: method },
			resource: { type, id },
		},
	},
];

/** The default mappings, by method. They are those of the binding, but for completion/complete, which is no CEL there. */
export const defaults: { readonly [method: string]: JsonObject } = Object.fromEntries([
	...["tools/list", "resources/list", "prompts/list", "tasks/list"].map((method) => standard(method, server)),
	standard("logging/setLevel", server, { level: "$params.level" }),
	standard("tools/call", ["tool", "$params.name"]),
	standard("prompts/get", ["prompt", "$params.name"]),
	...["resources/read", "resources/subscribe", "resources/unsubscribe"].map((method) => standard(method, ["resource", "$params.uri"])),
	...["tasks/get", "tasks/result", "tasks/cancel"].map((method) => standard(method, ["task", "$params.taskId"])),
	standard("completion/complete", [
		"$params.ref.type == 'ref/prompt' ? 'prompt' : 'resource'",
		"$params.ref.type == 'ref/prompt' ? params.ref.name : params.ref.uri",
	]),
]);

/** Ours, for methods that MCP servers have and the binding forgot. By its letter they are denied. */
export const forgotten: { readonly [method: string]: JsonObject } = Object.fromEntries([
	standard("initialize", server, { protocol_version: "$params.protocolVersion" }),
	standard("resources/templates/list", server),
]);
