import { type Answer, conditional, denied, readAnswer } from "./answer.js";
import { type Capability, prove } from "./capability.js";
import type { ClientOptions, Permit } from "./client.js";
import { type AuthorizationError, errorOf, Failure, notAsked, odd, printable, Undecided } from "./errors.js";
import { isObject, JsonError, members, plainJson, present, textOf } from "./json.js";
import { discharge, type Handler, handlersOf, type Report } from "./obligations.js";
import { adopts, type Draft, declarations, undeclared } from "./october.js";
import { ask, Breaker, type Circuit, exposed, isToken, proxied, type Settings } from "./transport.js";
import type { JsonObject, Question } from "./types.js";

/** A question that was asked, and its answer before obligations. */
export interface Decided {
	/** As it was asked. */
	question: Question;
	answer: Answer;
	/** It presents an approval or a capability. */
	presents: boolean;
	/** When the approval ends that the answer rests on. */
	until?: number | undefined;
}

/** A decision after its obligations. Without a failure it is a yes. */
export interface Enforcement extends Decided {
	report: Report;
	failure?: Failure | undefined;
}

/** How a question is asked. */
export interface How {
	signal?: AbortSignal | undefined;
	capability?: Capability | undefined;
	/** That people gave, as it came. */
	approval?: { value: JsonObject; until: number } | undefined;
}

/** For how long receipts may take, in milliseconds, and for how long a PDP is left alone that takes none. */
const receiptTime = 2000;
const unknownFor = 60_000;
const receiptsAtOnce = 8;

/** The common part of all calls of a client. */
export class Core {
	readonly settings: Settings;
	/** Names the PDP and the tenant. */
	readonly pdp: string;
	readonly tenant: string | undefined;
	readonly handlers: ReadonlyMap<string, Handler>;
	readonly draft: Draft;
	readonly breaker: Circuit;
	readonly #options: ClientOptions;
	readonly #receipts: { off: boolean; breaker: Breaker; taken: boolean; silent: number };
	readonly #onUndecided: ((error: Undecided) => void) | undefined;
	readonly #nonces: WeakMap<Capability, string>;

	/** Another core of the same PDP shares its breakers with this one. */
	constructor(o: ClientOptions, other?: Core) {
		const base = baseOf(o.url, o.plainHttp === true);
		const { timeout = 5000, retries = 2, breaker = { failures: 5, coolDown: 10_000 }, credential, tenant, onUndecided } = o;
		need(Number.isFinite(timeout) && timeout > 0 && timeout < 2 ** 31, "the timeout is no number of milliseconds");
		need(Number.isInteger(retries) && retries >= 0, "retries are no number of times");
		need(breaker.failures >= 0 && breaker.coolDown >= 0, "the breaker has no numbers of failures and of milliseconds");
		need(
			credential === undefined || typeof credential === "function" || isToken(credential),
			"the credential is empty, or has characters that no header can carry",
		);
		need(tenant === undefined || isTenant(tenant), "this is no legal name of a tenant");
		const { obligations: draft = "october" } = o;
		need(draft === "october" || draft === "july", "obligations are those of october or of july");
		need(onUndecided === undefined || typeof onUndecided === "function", "onUndecided is no function");
		const at = new URL(base);
		need(o.fetch || o.plainHttp || !proxied(at), "Node sends plain http by the proxy of the environment; name the PDP's host in NO_PROXY");
		const credentialOf = typeof credential === "function" ? () => credential(tenant ?? "default") : credential;
		const chosen = other !== undefined;
		this.settings = { base, origin: at.origin, chosen, credential: credentialOf, timeout, retries, fetch: o.fetch ?? fetch };
		this.pdp = tenant === undefined || tenant === "default" ? base : `${base}/tenants/${tenant}`;
		this.tenant = tenant;
		this.handlers = handlersOf(o.handlers);
		this.draft = draft;
		this.#options = { ...o };
		this.#onUndecided = onUndecided;
		if (other) {
			// requests may name any tenant: one that the PDP refuses must not close the way to the others
			this.breaker = { enter: () => other.breaker.enter(), refused: "undecided" };
			this.#receipts = other.#receipts;
			this.#nonces = other.#nonces;
			return;
		}
		this.breaker = new Breaker(breaker.failures, breaker.coolDown);
		const own = new Breaker(breaker.failures, breaker.coolDown, "answered"); // 404 is of one decision
		this.#receipts = { off: o.receipts === false, breaker: own, taken: false, silent: 0 };
		this.#nonces = new WeakMap();
	}

	/** Returns the core of another tenant of the same PDP. */
	forTenant(tenant: string): Core {
		need(isTenant(tenant), "this is no legal name of a tenant");
		return new Core({ ...this.#options, tenant }, this);
	}

	/** The URL of a call of AuthZEN. */
	access(call: string): string {
		return `${this.pdp}/access/v1/${call}`;
	}

	/** The error of a failure of a call. */
	error(op: string, failure: Failure, of: Partial<Decided> = {}): AuthorizationError {
		return errorOf(failure, { ...of.answer, op, pdp: this.pdp, presents: of.presents });
	}

	/** The error of a question, which is counted if no decision came of it. */
	questionError(op: string, failure: Failure, of: Partial<Decided>): AuthorizationError {
		const error = this.error(op, failure, of);
		if (error instanceof Undecided && error.kind !== "cancelled" && error.kind !== "skipped") {
			const count = async () => this.#onUndecided?.(error);
			count().catch(() => {}); // counting changes nothing
		}
		return error;
	}

	/** The question with the types of the handlers declared, and with no declaration of its author's. */
	declare(question: Question): Question {
		return withContext(undeclared(question), declarations(this.draft, [...this.handlers.keys()]));
	}

	/** Asks one question. It does not throw: a failure is in the answer. */
	async decide(question: Question, how: How): Promise<Decided> {
		const shows = how.approval ? withContext(question, { approval: how.approval.value }) : question;
		const presents = presentsIn(question) || how.approval !== undefined || how.capability !== undefined;
		const d: Decided = { question, answer: denied(notAsked("")), presents, until: how.approval?.until };
		if (ended(d)) return { ...d, answer: denied(new Failure("not_approved", "the approval has ended")) };
		d.answer = how.capability ? await this.#show(shows, how, how.capability) : await this.#ask(shows, how, presents);
		if (how.approval || presentsIn(question)) {
			const failure = readApproval(d) ?? (ended(d) ? new Failure("not_approved", "the approval has ended") : undefined);
			// a deny stays as it is; an allow that rests on no usable approval fails
			if (failure && d.answer.allow) d.answer = { ...d.answer, permit: false, failure };
		}
		return d;
	}

	async #ask(question: Question, how: How, presents: boolean, deadline?: number): Promise<Answer> {
		let answer: Answer | undefined;
		const { requestId, failure } = await ask(
			this.settings,
			{
				url: this.access("evaluation"),
				body: question as unknown as JsonObject,
				repeat: presents ? "unsent" : "unanswered",
				breaker: this.breaker,
				signal: how.signal,
				secrets: secretsIn(question),
				deadline,
			},
			(reply) => {
				answer = { ...readAnswer(reply.body, adopts(question)), decisionId: reply.decisionId, secrets: reply.secrets };
				return answer.failure;
			},
		);
		if (failure === undefined) answer ??= denied(odd("it was not read"));
		// obligations of an answer that is odd are discharged as well
		return { ...(answer ?? denied(notAsked(""))), requestId, ...(failure && { failure, permit: false }) };
	}

	/** Asks with a capability and a proof, and once more with the nonce that the PDP wants. */
	async #show(question: Question, how: How, capability: Capability): Promise<Answer> {
		const deadline = performance.now() + this.settings.timeout; // of both attempts
		for (let attempts = 0; ; attempts++) {
			let shown: { token: string; proof: string };
			try {
				shown = await prove(capability, { question, nonce: this.#nonces.get(capability), now: Date.now() });
			} catch (error) {
				return denied(error instanceof Failure ? error : notAsked("the call cannot be proved"));
			}
			const was = question.context?.capability;
			const channel = isObject(was) && was.channel !== undefined ? { channel: was.channel } : {};
			const asks = withContext(question, { capability: { ...channel, token: shown.token, proof: shown.proof } });
			const answer = await this.#ask(asks, how, true, deadline);
			const said = isObject(answer.context?.capability) ? answer.context.capability : {};
			const nonce = textOf(said.nonce);
			if (nonce) this.#nonces.set(capability, nonce);
			if (!nonce || answer.allow || said.reason !== "nonce_required" || attempts > 0) return answer;
		}
	}

	/** Discharges the obligations of a decision, and sends receipts unless a promise is still to be kept. */
	async discharge(d: Decided, signal: AbortSignal | undefined, changes: boolean): Promise<Enforcement> {
		const report = await discharge(d.answer.obligations, this.handlers, d.question, { signal, changes });
		return { ...d, report, failure: failureAfter(d, report) };
	}

	/** {@link discharge}, and receipts unless a promise of a handler is still to be kept. */
	async enforce(d: Decided, signal: AbortSignal | undefined, changes: boolean): Promise<Enforcement> {
		const e = await this.discharge(d, signal, changes);
		if (e.failure || !e.report.promises) await this.report([e]);
		return e;
	}

	/** Sends receipts. It takes two seconds at most, and changes nothing. */
	async report(all: readonly Enforcement[]): Promise<void> {
		const left = all.flatMap(({ answer: { decisionId: id }, report: { receipts } }) =>
			id && id !== "." && id !== ".." && receipts.length > 0 ? [{ id, receipts }] : [],
		);
		const deadline = performance.now() + receiptTime;
		const worker = async () => {
			for (let one = left.shift(); one; one = left.shift()) await this.#tell(one.id, { obligations: one.receipts }, deadline);
		};
		await Promise.all(Array.from({ length: receiptsAtOnce }, worker));
	}

	async #tell(id: string, body: JsonObject, deadline: number): Promise<void> {
		const r = this.#receipts;
		if (r.off || performance.now() < r.silent) return;
		const url = `${this.settings.base}/v1/decisions/${encodeURIComponent(id)}/obligations`;
		const asking = { url, body, repeat: "unsent", statuses: [204], breaker: r.breaker, deadline } as const;
		const { failure } = await ask(this.settings, asking, () => undefined);
		const status = failure?.pdpStatus;
		if (!failure || status === 400 || status === 409) r.taken = true;
		else if ((status === 404 && !r.taken) || status === 405 || status === 501) r.silent = performance.now() + unknownFor;
	}
}

/** Reports whether a value is a legal name of a tenant. */
export function isTenant(v: unknown): v is string {
	return typeof v === "string" && /^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/.test(v);
}

function need(holds: unknown, otherwise: string): void {
	if (!holds) throw new TypeError(`policy-service-client: ${otherwise}`);
}

/** The base URL. No error repeats it: it may hold a password. */
function baseOf(text: unknown, plain: boolean): string {
	const legal = typeof text === "string" && /^https?:\/\/[^\s\\]+$/i.test(text) && URL.canParse(text);
	need(legal, "the url is no http or https URL");
	const url = new URL(text as string);
	need(url.username === "" && url.password === "", "the url holds credentials; use the option credential");
	need(!/[?#]/.test(text as string), "the url has a query or a fragment; leave them out");
	need(plain || !exposed(url), "plain http to another machine: any machine on the way could write the answer; use https, or plainHttp");
	return (text as string).replace(/\/$/, "");
}

/** A question as it can be sent. It throws a Failure for one that cannot. */
export function questionOf(value: unknown): Question {
	const q = plain(value);
	only(q, "the question", ["subject", "action", "resource", "context"]);
	for (const name of ["subject", "action", "resource"] as const) partOf(q, name);
	contextOf(q);
	return q as unknown as Question;
}

/** A copy of a question. It throws a Failure if it is no JSON object. */
export function plain(value: unknown): JsonObject {
	try {
		const q = plainJson(value);
		if (isObject(q)) return q;
	} catch (error) {
		throw notAsked(error instanceof JsonError ? printable(`the question: ${error.message}`) : "the question cannot be read");
	}
	throw notAsked("the question is no object");
}

/** Refuses members that are not among these. */
export function only(o: JsonObject, what: string, names: readonly string[]): void {
	for (const name of Object.keys(o))
		if (!names.includes(name)) throw notAsked(printable(`${what} has a member ${name}, which is not allowed there`));
}

const parts = { subject: ["type", "id"], resource: ["type", "id"], action: ["name"] } as const;

/** Refuses a part of a question that is not as it has to be. */
export function partOf(q: JsonObject, name: keyof typeof parts): void {
	const part = q[name];
	if (!isObject(part) || parts[name].some((member) => typeof part[member] !== "string")) {
		throw notAsked(`the ${name} has no ${parts[name].join(" and ")}`);
	}
	only(part, `the ${name}`, [...parts[name], "properties"]);
	if (part.properties !== undefined && !isObject(part.properties)) throw notAsked(`the properties of the ${name} are no object`);
}

export function contextOf(q: JsonObject): void {
	if (q.context !== undefined && !isObject(q.context)) throw notAsked("the context is no object");
}

/** A question with more in its context. */
export function withContext(question: Question, more: JsonObject): Question {
	return { ...question, context: Object.assign(members(question.context), more) };
}

/** The token and the proof of the capability that a question shows. */
function secretsIn({ context }: Question): string[] {
	const shown = isObject(context?.capability) ? context.capability : {};
	return [shown.token, shown.proof].filter((text) => typeof text === "string");
}

/** Whether a question presents an approval, in any form, or a capability. */
export function presentsIn({ context }: Question): boolean {
	return presentsApproval(context) || context?.capability !== undefined;
}

export function presentsApproval(context: JsonObject | undefined): boolean {
	return context?.approval !== undefined || context?.approval_id !== undefined;
}

/** Whether the approval is over. */
function ended({ until }: Decided): boolean {
	return until !== undefined && Date.now() >= until;
}

/** Reads when the approval ends that an answer rests on. It never prolongs that. */
function readApproval(d: Decided): Failure | undefined {
	const approval = d.answer.context?.approval;
	if (!present(approval)) return undefined;
	if (!isObject(approval)) return odd("its approval cannot be read");
	if (!present(approval.approved_until)) return undefined;
	const end = timeOf(approval.approved_until);
	if (end === undefined) return odd("the approved_until of its approval is no time");
	d.until = Math.min(end, d.until ?? end);
	return undefined;
}

/** A time of RFC 3339 in milliseconds, undefined if it is none. */
export function timeOf(text: unknown): number | undefined {
	if (typeof text !== "string" || !/^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)$/.test(text)) return undefined;
	const time = Date.parse(text);
	return Number.isNaN(time) ? undefined : time;
}

/** The failure of a question that was decided, with its obligations. */
function failureAfter(d: Decided, report: Report): Failure | undefined {
	const { answer } = d;
	if (answer.failure && !conditional(answer)) return answer.failure;
	if (report.outcomes.some((one) => one.fault !== undefined)) {
		return new Failure("obligated", printable(report.text, answer.secrets), { cause: report.cause });
	}
	if (!answer.allow) return deny(answer);
	if (report.ended) return new Failure(report.outcomes.length > 0 ? "obligated" : "cancelled", "the decision was no longer waited for");
	if (ended(d)) return new Failure("not_approved", "the approval ended before all obligations were discharged");
	return undefined;
}

/** The failure of a no that the PDP decided. */
export function deny({ reason, context, secrets }: Answer): Failure {
	const failure = new Failure("denied", reason === undefined ? "" : printable(reason, secrets));
	if (reason === "approval_required") failure.remedy = "people can approve it: give the option wait";
	if (["schema_mismatch", "unknown_type", "unknown_entity"].includes(reason ?? "")) {
		failure.remedy = "correct the question: an answer to the header X-Explain says what of it the policies do not know";
	}
	const required = context?.required_obligations;
	if (reason === "obligation_unsupported" && Array.isArray(required)) {
		failure.remedy = printable(`give the client handlers for ${required.filter((type) => typeof type === "string").join(", ")}`, secrets);
	}
	return failure;
}

/** The failure of an answer without its obligations, undefined for a permit. */
export function failureOfAnswer(answer: Answer): Failure | undefined {
	return answer.permit ? undefined : (answer.failure ?? deny(answer));
}

/** The permits that rest on a change of the act's result. */
export const promising = new WeakSet<Permit>();

/** The yes of an answer. */
export function permitOf({ answer, until, report }: Decided & { report?: Report }): Permit {
	const permit = Object.freeze({
		requestId: answer.requestId ?? "",
		context: answer.context ?? members(),
		...(answer.decisionId && { decisionId: answer.decisionId }),
		...(until !== undefined && { approvedUntil: new Date(until) }),
	}) as Permit;
	if (report?.promises) promising.add(permit);
	return permit;
}
