// Capabilities: a holder's key, the proofs by it, and asking for tokens. By WebCrypto alone. The proofs are those of package
// evaluation/capability of policy-service, byte for byte.
import { type Task, taskOf, type Wait, waitOf } from "./approvals.js";
import { base64url, digest } from "./bytes.js";
import { AuthorizationError, Denied, errorOf, Failure, failureOf, notAsked, odd, printable } from "./errors.js";
import { isObject, present, readJson, textOf } from "./json.js";
import type { Link, LinkAnswer } from "./link.js";
import type { CapabilityAsk as CapabilityRequest, Json, JsonObject, Obligation, Question } from "./types.js";

type CryptoKey = Awaited<ReturnType<typeof crypto.subtle.importKey>>;

const utf8 = new TextEncoder();
const deepest = 64;

/**
 * The form of RFC 8785 of a value, as JSON.stringify sends it. It throws a TypeError for a value that JSON does not have:
 * its text would say less than the value.
 */
export function canonical(value: unknown, depth = 0): string {
	if (depth > deepest) throw new TypeError(`a value nests deeper than ${deepest} levels, or holds itself`);
	switch (typeof value) {
		case "string":
			if (!value.isWellFormed()) throw new TypeError("a string is not valid Unicode");
			return JSON.stringify(value);
		case "boolean":
			return String(value);
		case "number":
			if (!Number.isFinite(value)) throw new TypeError("a number is not finite, and JSON has none such");
			return JSON.stringify(value);
		case "object": {
			if (value === null) return "null";
			if (Array.isArray(value)) return `[${Array.from(value, (v: unknown) => canonical(v, depth + 1)).join(",")}]`;
			const proto: unknown = Object.getPrototypeOf(value);
			if (proto !== Object.prototype && proto !== null) throw new TypeError("an object is no plain one, and JSON has none such");
			const members = Object.entries(value).filter(([, v]) => v !== undefined);
			members.sort(([a], [b]) => (a < b ? -1 : 1)); // by UTF-16 code units, as the RFC has it
			return `{${members.map(([name, v]) => `${canonical(name)}:${canonical(v, depth + 1)}`).join(",")}}`;
		}
	}
	throw new TypeError(`a value is a ${typeof value}, which JSON does not have`);
}

/** The SHA-256, in base64url, of the form of RFC 8785 of a value. A proof has that of a call's arguments. */
export const hash = (value: unknown): Promise<string> => digest(canonical(value));

/** The public half of a holder's key: a JWK with the members of its thumbprint alone. */
export interface PublicJwk {
	readonly kty: string;
	readonly crv: string;
	readonly x: string;
	readonly y?: string;
}

/** A holder's whole key, as it is kept where no other program reads it. */
export interface PrivateJwk extends PublicJwk {
	readonly d: string;
}

const publicOf = ({ kty, crv, x, y }: { kty?: string; crv?: string; x?: string; y?: string }): PublicJwk => ({
	kty: kty ?? "",
	crv: crv ?? "",
	x: x ?? "",
	...(crv === "P-256" && { y: y ?? "" }),
});

/** The thumbprint of a key (RFC 7638). */
export const thumbprint = (jwk: object): Promise<string> => hash(publicOf(jwk));

/**
 * The hash of a request, which its proof has. The body is as {@link Holder.request} makes it; parent is the id of the
 * capability that is handed on by it.
 */
export async function requestHash(body: JsonObject, parent?: string): Promise<string> {
	const { tools, audience, duration, valid_from, valid_until, max_uses, arguments: args, channel, key, encrypt_to } = body;
	const { type, id } = (body.holder ?? {}) as JsonObject; // a token that is exchanged says it instead
	const terms = { tools, audience, duration, valid_from, valid_until, max_uses, arguments: args };
	return hash({
		...terms,
		max_depth: body.max_depth || undefined,
		offline: body.offline || undefined,
		channel: channel && { session: await digest((channel as { session: string }).session) }, // as a token has it
		encrypt_to: encrypt_to && (await thumbprint(encrypt_to as object)),
		jkt: await thumbprint(key as object),
		...(parent !== undefined && { parent, holder: { type, id } }),
	});
}

/** The terms of a capability: the body of POST /v1/capabilities, without key and proof. Without a tenant it is the client's. */
export type CapabilityAsk = Omit<CapabilityRequest, "tenant_id"> & { tenant_id?: string };

/** One call, as a proof says it. */
export interface Call {
	/** The id of the capability. */
	readonly cap: string;
	/** The name of the verifier: the gateway's if it has one, else the capability's own audience. */
	readonly aud: string;
	/** The whole id of the tool, such as agent-b:restart. */
	readonly tool: string;
	/** The arguments, as the tool gets them. */
	readonly args: Json;
	/** The nonce that the last answer asked for. */
	readonly nonce?: string;
}

/** When a proof was made, and its id. Both are made where they are left out. */
export interface Mark {
	readonly iat?: number;
	readonly jti?: string;
}

const algorithms = {
	Ed25519: { alg: "EdDSA", key: { name: "Ed25519" }, sign: { name: "Ed25519" } },
	"P-256": { alg: "ES256", key: { name: "ECDSA", namedCurve: "P-256" }, sign: { name: "ECDSA", hash: "SHA-256" } },
} as const;

/** A key of an agent, which tokens are bound to. It makes the proofs; its private half is in nothing that is written of it. */
export class Holder {
	/** The public half. */
	readonly jwk: PublicJwk;
	/** The thumbprint of the key (RFC 7638). */
	readonly thumbprint: string;
	readonly #key: CryptoKey;
	readonly #algorithm: (typeof algorithms)[keyof typeof algorithms];

	private constructor(jwk: PublicJwk, print: string, key: CryptoKey, algorithm: (typeof algorithms)[keyof typeof algorithms]) {
		this.jwk = jwk;
		this.thumbprint = print;
		this.#key = key;
		this.#algorithm = algorithm;
	}

	/** A holder with a new key. Keep {@link Holder.privateJwk} of it where it is to outlive the program. */
	static async generate(curve: "Ed25519" | "P-256" = "Ed25519"): Promise<Holder> {
		const pair = (await crypto.subtle.generateKey(algorithms[curve].key, true, ["sign", "verify"])) as { privateKey: CryptoKey };
		return Holder.fromJwk((await crypto.subtle.exportKey("jwk", pair.privateKey)) as PrivateJwk);
	}

	/** A holder with a private key of Ed25519 or P-256 that was kept as a JWK. */
	static async fromJwk(jwk: PrivateJwk): Promise<Holder> {
		const algorithm = jwk.crv === "Ed25519" || jwk.crv === "P-256" ? algorithms[jwk.crv] : undefined;
		if (algorithm === undefined || typeof jwk.d !== "string") {
			throw new TypeError("the key is no private one of Ed25519 or P-256; make one with Holder.generate");
		}
		const open = publicOf(jwk);
		try {
			const key = await crypto.subtle.importKey("jwk", { ...open, d: jwk.d }, algorithm.key, true, ["sign"]);
			const verifies = await crypto.subtle.importKey("jwk", { ...open }, algorithm.key, true, ["verify"]);
			const signature = await crypto.subtle.sign(algorithm.sign, key, utf8.encode("a"));
			if (await crypto.subtle.verify(algorithm.sign, verifies, signature, utf8.encode("a"))) {
				return new Holder(Object.freeze(open), await thumbprint(open), key, algorithm);
			}
		} catch {
			// the text of the error may quote the key
		}
		throw new TypeError("the key is damaged, or its halves do not fit; give it as it was kept");
	}

	/** The whole key, for a place where no other program reads it: this and a token are the agent. */
	async privateJwk(): Promise<PrivateJwk> {
		const { d = "" } = await crypto.subtle.exportKey("jwk", this.#key);
		return { ...this.jwk, d };
	}

	/** The proof of one call. A second call needs a second proof. */
	async prove(call: Call, mark: Mark = {}): Promise<string> {
		const { cap, aud, tool, args, nonce } = call;
		if (!cap || !aud || !tool) throw new TypeError("a proof needs the capability's id, an audience and a tool; fill them in");
		return this.#sign("cap-proof+jwt", { cap, aud, tool, args: await hash(args), nonce: nonce || undefined }, mark);
	}

	/**
	 * The body for POST /v1/capabilities: the terms, with the key and a proof of it. With a parent it is the body
	 * for /v1/capabilities/PARENT/delegate, and its key is that of the new holder.
	 */
	async request(
		ask: Omit<CapabilityAsk, "holder"> & { readonly holder?: CapabilityAsk["holder"]; readonly key?: JsonObject },
		issuer: string,
		mark: Mark & { readonly parent?: string } = {},
	): Promise<JsonObject> {
		const { parent } = mark;
		if (parent === undefined && ask.key !== undefined) throw new TypeError("the key of a request is the holder's own; leave it out");
		const constraint = (c: Json | undefined) =>
			c !== null && typeof c === "object" && Object.hasOwn(c, "constraint_type") ? c : { constraint_type: "exact", value: c };
		const body = JSON.parse(
			canonical({
				...ask,
				tools: ask.tools.map((tool) => (tool.includes(":") ? tool : `${ask.audience}:${tool}`)),
				arguments: ask.arguments && Object.fromEntries(Object.entries(ask.arguments).map(([name, c]) => [name, constraint(c)])),
				key: parent === undefined ? this.jwk : ask.key,
			}),
		) as JsonObject;
		return { ...body, proof: await this.#sign("cap-request+jwt", { aud: issuer, req: await requestHash(body, parent) }, mark) };
	}

	async #sign(typ: string, payload: JsonObject, { iat = Math.floor(Date.now() / 1000), jti = crypto.randomUUID() }: Mark): Promise<string> {
		if (!/^[!-~]{16,128}$/.test(jti)) throw new TypeError("the id of a proof has 16 to 128 visible characters of ASCII");
		const signed = `${base64url(canonical({ alg: this.#algorithm.alg, typ }))}.${base64url(canonical({ ...payload, iat, jti }))}`;
		return `${signed}.${base64url(new Uint8Array(await crypto.subtle.sign(this.#algorithm.sign, this.#key, utf8.encode(signed))))}`;
	}
}

const json = (bytes: string): JsonObject => {
	const decoded = Uint8Array.from(atob(bytes.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
	if (base64url(decoded) !== bytes) throw new TypeError("the text has another form of base64url");
	const value = readJson(decoded);
	if (!isObject(value)) throw new TypeError("the text is no object");
	return value;
};

/** A capability as it is kept: its token and its terms. It has no private key, and yet belongs in no log. */
export interface KeptCapability {
	readonly token: string;
	readonly ask?: CapabilityAsk;
}

/** A capability that was granted, with the key of its holder. Show it with a question: `{ capability }`. */
export class Capability {
	readonly id: string;
	readonly token: string;
	/** The service, and its tenant. */
	readonly issuer: string;
	readonly audience: string;
	/** The ids of the tools that it covers; AUDIENCE:* is all of them. */
	readonly tools: readonly string[];
	readonly validFrom: Date;
	/** It counts no more from then on. */
	readonly expires: Date;
	/** How many calls it covers, undefined for any number. */
	readonly maxUses: number | undefined;
	/** The obligations of the holder for the grant, each once. */
	readonly obligations: readonly Obligation[];
	/** Its terms. */
	readonly ask: CapabilityAsk;
	readonly holder!: Holder; // not enumerable

	private constructor(kept: KeptCapability, holder: Holder, obligations: readonly Obligation[]) {
		const [head = "", payload = "", signature, ...more] = kept.token.split(".");
		if (json(head).typ !== "cap+jwt" || !signature || more.length > 0) throw new TypeError("no token of a capability");
		const said = json(payload);
		const text = (of: JsonObject, name: string) => {
			const value = textOf(of[name]);
			if (!value) throw new TypeError(`no ${name}`);
			return value;
		};
		const seconds = (name: string) => {
			const value = said[name];
			if (typeof value !== "number" || !Number.isInteger(value) || value <= 0) throw new TypeError(`no ${name}`);
			return value;
		};
		const cnf = isObject(said.cnf) ? said.cnf : {};
		const { kty, crv, x, y } = isObject(cnf.jwk) ? cnf.jwk : {};
		const { jwk } = holder;
		const bound = kty === jwk.kty && crv === jwk.crv && x === jwk.x && (crv !== "P-256" || y === jwk.y);
		if (!bound || (cnf.jkt !== undefined && cnf.jkt !== holder.thumbprint)) throw new TypeError("it is bound to another key");
		const details = Array.isArray(said.authorization_details) ? said.authorization_details : [];
		const ours = (details as Json[]).filter((d): d is JsonObject => isObject(d) && d.type === "tool_capability");
		const layers = (ours.length === 1 && Array.isArray(ours[0]?.layers) ? ours[0].layers : []) as readonly Json[];
		const [first, last] = [layers[0], layers.at(-1)];
		if (!isObject(first) || !isObject(last) || !Array.isArray(last.tools)) throw new TypeError("it names no tools");
		this.id = text(said, "jti");
		this.token = kept.token;
		this.issuer = text(said, "iss");
		this.audience = text(said, "aud");
		this.tools = Object.freeze(last.tools.map(String));
		this.validFrom = new Date(seconds("nbf") * 1000);
		this.expires = new Date(seconds("exp") * 1000);
		this.maxUses = said.max_uses === undefined ? undefined : seconds("max_uses");
		this.obligations = obligations;
		this.ask = kept.ask ?? {
			holder: { type: text(said, "sub_type"), id: text(said, "sub") },
			audience: this.audience,
			tools: (Array.isArray(first.tools) ? first.tools : []).map(String),
			duration: seconds("exp") - seconds("nbf"),
			...(isObject(first.arguments) && { arguments: first.arguments }),
			...(this.maxUses !== undefined && { max_uses: this.maxUses }),
			...(typeof said.max_depth === "number" && { max_depth: said.max_depth }),
			...(said.verify === "offline" && { offline: true }),
		};
		Object.defineProperty(this, "holder", { value: holder, enumerable: false });
	}

	/** A capability that was kept, or its token alone, with the key that it is bound to. It asks no PDP, and permits nothing. */
	static from(kept: string | KeptCapability, holder: Holder, obligations: readonly Obligation[] = []): Capability {
		const whole = typeof kept === "string" ? { token: kept } : kept;
		try {
			return new Capability(whole, holder, obligations);
		} catch (e) {
			// no cause: an error of a reader may quote the token
			throw new TypeError(`this cannot be used as a capability: ${e instanceof TypeError ? e.message : "its token cannot be read"}`);
		}
	}

	/** For logs: console.log shows no token. */
	[Symbol.for("nodejs.util.inspect.custom")](): string {
		return `Capability(${this.id}, for ${this.audience}, until ${this.expires.toISOString()})`;
	}

	/** The form to keep. */
	toJSON(): KeptCapability {
		return { token: this.token, ask: this.ask };
	}
}

/** The token, and a fresh proof of the call that a question is about. It throws a Failure if no proof can be made. */
export async function prove(
	capability: Capability,
	{ question, nonce, now }: { question: Question; nonce: string | undefined; now: number },
): Promise<{ token: string; proof: string }> {
	const { id, audience, token } = capability;
	const args = question.context?.arguments ?? {};
	if (!isObject(args)) throw notAsked("the call cannot be proved: context.arguments is no object");
	try {
		const call = { cap: id, aud: audience, tool: question.resource.id, args, ...(nonce !== undefined && { nonce }) };
		return { token, proof: await capability.holder.prove(call, { iat: Math.floor(now / 1000) }) };
	} catch {
		throw notAsked("the call cannot be proved: give the tool's id as the resource, and arguments of plain JSON");
	}
}

/** Asks for a capability once, by an approval if there is one. */
type Request = (approval?: string) => Promise<Capability | LinkAnswer>;

interface Options {
	wait?: Wait;
	signal?: AbortSignal;
}

/** Asks for a capability, and with `wait` waits for people. It rejects with Denied or Undecided where none is granted. */
export const requestCapability = (link: Link, holder: Holder, ask: CapabilityAsk, options: Options = {}): Promise<Capability> =>
	granted(link, holder, ask, "", options);

/** Asks for a new token of a capability, by its terms. Its id stays, and uses go on being counted. */
export async function renewCapability(link: Link, capability: Capability, options: Options = {}): Promise<Capability> {
	if (!(capability instanceof Capability)) throw link.error("renew", notAsked("this is no capability"));
	const { valid_from, valid_until, ...ask } = capability.ask; // times that were fixed are over by now
	const lasts = Math.round((capability.expires.getTime() - capability.validFrom.getTime()) / 1000);
	const duration = ask.duration ?? (valid_from || valid_until ? lasts : undefined);
	const renewed = { ...ask, ...(duration !== undefined && { duration }) };
	return granted(link, capability.holder, renewed, `/${encodeURIComponent(capability.id)}/renew`, options);
}

async function granted(link: Link, holder: Holder, ask: CapabilityAsk, path: string, { wait, signal }: Options): Promise<Capability> {
	const op = path ? "renew" : "request";
	let waits: Exclude<Wait, number> | undefined;
	let task: Task | undefined;
	try {
		waits = wait === undefined ? undefined : waitOf(wait);
		task = waits?.resume && taskOf(waits.resume, link.pdp);
	} catch (e) {
		throw link.error(op, failureOf(e));
	}
	if (!(holder instanceof Holder)) throw link.error(op, notAsked("there is no holder; make one with Holder.generate"));
	if (Object.hasOwn(ask, "encrypt_to")) throw link.error(op, notAsked("an encrypted token cannot be read here; leave encrypt_to out"));
	const own = { reason: waits?.justification, tenant_id: link.tenant ?? "default", ...ask } as CapabilityAsk;
	const request: Request = async (approval) => {
		let body: JsonObject;
		try {
			const whole = approval === undefined ? own : { ...own, approval_id: approval }; // of which the proof says nothing
			body = await holder.request(whole, link.pdp, { iat: Math.floor(link.now() / 1000) });
		} catch (cause) {
			throw link.error(op, Object.assign(notAsked("give holder, audience and tools, as plain JSON"), { cause }));
		}
		const said = await link.send({
			op,
			url: `${link.base}/v1/capabilities${path}`,
			method: "POST",
			body,
			statuses: [200, 201, 202],
			once: true,
			secrets: [String(body.proof)],
			signal,
		});
		if (said.body.granted !== true) return said;
		try {
			return readGrant(said.body, holder, own);
		} catch (e) {
			throw link.error(op, odd(e instanceof TypeError ? e.message : "its token cannot be read"));
		}
	};

	if (!task) {
		const first = await request();
		if (first instanceof Capability) return first;
		task = askedBy(link, first);
		if (!task) throw refused(link, op, first);
		if (!waits) {
			const remedy = "people can approve it: give the option wait, or go on later with the error's task";
			throw no(link, op, new Failure("denied", "", { reason: "approval_required", remedy, task }), first);
		}
		await waits.keep?.(task);
	}
	return people(link, task, link.now() + (waits?.timeout ?? 0), signal, request);
}

/** Waits for people, and asks once more with their approval. */
async function people(link: Link, task: Task, end: number, signal: AbortSignal | undefined, request: Request): Promise<Capability> {
	const ends = task.expires_at === undefined ? end : Math.min(end, Date.parse(task.expires_at));
	const url = `${link.base}/v1/approvals/${encodeURIComponent(task.id)}`;
	let status: string;
	try {
		status = await link.until({ end: ends, signal }, async () => {
			const wait = Math.min(20_000, Math.max(0, ends - link.now()));
			const said = textOf((await link.send({ op: "await", url, method: "GET", wait, signal })).body.status);
			if (!said) throw link.error("await", odd("it is no approval request"));
			return said === "pending" ? undefined : said;
		});
	} catch (e) {
		if (!(e instanceof Denied) || e.reason !== "approval_pending") throw e;
		// the time is over, and people may still decide
		const { reason, remedy } = e;
		throw no(link, "await", new Failure("not_approved", "people did not decide in time", { reason, remedy, task }));
	}
	if (status !== "approved") throw no(link, "await", new Failure("not_approved", `the request is "${printable(status)}"`));
	let last: unknown;
	let got: Capability | LinkAnswer;
	try {
		got = await link.until({ end, signal }, async () => {
			try {
				return await request(task.id);
			} catch (e) {
				last = e;
				throw e;
			}
		});
	} catch (e) {
		if (e === last || !(last instanceof AuthorizationError) || !(e instanceof Denied)) throw e;
		// the time is over, and it was the PDP that did not answer
		const remedy = "go on later with the error's task";
		throw no(link, "await", new Failure(last.kind, "people approved it, and no grant came in time", { cause: last, remedy, task }));
	}
	if (got instanceof Capability) return got;
	if (askedBy(link, got)) throw no(link, "await", new Failure("not_approved", "the approval counts no more"));
	throw refused(link, "await", got);
}

/** The error of a no. A token that stands beside one is none, and not repeated. */
const no = (link: Link, op: string, failure: Failure, said?: LinkAnswer) => {
	const { token: _, ...context } = said?.body ?? {};
	return errorOf(failure, { op, pdp: link.pdp, reasonUser: textOf(context.reason_user), context, secrets: said?.secrets });
};

const refused = (link: Link, op: string, said: LinkAnswer) =>
	no(link, op, new Failure("denied", "it grants no such capability", { reason: textOf(said.body.reason) }), said);

/** The approval request that a grant waits for, undefined if it waits for none. */
function askedBy(link: Link, { body: { approval } }: LinkAnswer): Task | undefined {
	const id = isObject(approval) ? textOf(approval.id) : undefined;
	if (!isObject(approval) || !id) return undefined;
	const ends = textOf(approval.expires_at);
	const endpoint = `${link.base}/v1/approvals/${encodeURIComponent(id)}`;
	return { version: 1, pdp: link.pdp, id, status_endpoint: endpoint, ...(ends && !Number.isNaN(Date.parse(ends)) && { expires_at: ends }) };
}

/** It throws for an answer without a token that is bound to the key. */
function readGrant(body: JsonObject, holder: Holder, ask: CapabilityAsk): Capability {
	const owed = present(body.obligations) ? body.obligations : [];
	if (!Array.isArray(owed)) throw new TypeError("its obligations cannot be read");
	const obligations = (owed as Json[]).map((o) => {
		const [id, type] = isObject(o) ? [textOf(o.id), textOf(o.type)] : [];
		if (!isObject(o) || !id || !type) throw new TypeError("its obligations cannot be read");
		return { id, type, properties: isObject(o.properties) ? o.properties : {} };
	});
	const kept = { token: textOf(body.token) ?? "", ask: JSON.parse(canonical(ask)) as CapabilityAsk };
	const capability = Capability.from(kept, holder, obligations);
	if (capability.id !== body.id) throw new TypeError("its token is of another capability");
	return capability;
}
