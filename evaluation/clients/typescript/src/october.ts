// Obligations Core and its Standard Types, as of 6 October 2026 (openid/authzen at 8491bc0d). This file alone knows how a
// request adopts them and how an answer carries them. answer.ts reads the profile of 3 July 2026.
import { type Failure, odd } from "./errors.js";
import { isObject, members, present, textOf } from "./json.js";
import type { Json, JsonObject, Obligation } from "./types.js";

/** The draft of obligations that a client speaks. */
export type Draft = "october" | "july";

/** An obligation as it was read. */
export interface Owed extends Obligation {
	/** No handler may be called: it cannot be read, its type is unknown, or its properties are not those of its type. */
	readonly malformed?: true;
}

type Check = (v: Json | undefined) => boolean;
const isText: Check = (v) => typeof v === "string";
const areTexts: Check = (v) => Array.isArray(v) && v.every(isText);
const perhaps =
	(check: Check): Check =>
	(v) =>
		v === undefined || check(v);

/** The members of the standard types. */
const standard = new Map<string, { readonly [member: string]: Check }>([
	["step-up", { acr_value: isText, amr_values: perhaps(areTexts) }],
	["notification", { to: (v) => areTexts(v) && (v as Json[]).length > 0, body: isText, topic: perhaps(isText) }],
	["session_termination", { subject: isText }],
]);

/** The members of a context that say what a PEP with handlers of these types can discharge. */
export function declarations(draft: Draft, types: readonly string[]): JsonObject {
	if (draft === "july") return { supported_obligations: [...types].sort() };
	const names = new Set(types.map((type) => (standard.has(type) ? type : "custom")));
	// a PDP of ours that advertises it sends it to who names it; others deny, and people can be asked
	if (types.includes("approval_required")) names.add("approval_required");
	return { supported_mandatory_extensions: ["obligations"], supported_obligations: [...names].sort() };
}

/** A question without such members: its author does not know what the client can discharge. */
export function undeclared<Q extends { readonly context?: Json | undefined }>(question: Q): Q {
	if (!isObject(question.context)) return question;
	const { supported_mandatory_extensions, supported_obligations, ...context } = question.context;
	if (supported_mandatory_extensions === undefined && supported_obligations === undefined) return question;
	return { ...question, context: members(context) };
}

/** Whether a question that the client asks adopts the extension. */
export function adopts({ context }: { readonly context?: JsonObject | undefined }): boolean {
	return context?.supported_mandatory_extensions !== undefined;
}

/** Reads the obligations of one place of an answer. Readable ones beside a malformed one are discharged also on a deny. */
export function adopted({ obligations, obligation_details }: JsonObject): { all: Owed[]; failure: Failure | undefined } {
	const failure = present(obligation_details) ? odd("it has details of obligations in the native form") : undefined;
	if (obligations === undefined) return { all: [], failure };
	const items = Array.isArray(obligations) && obligations.length > 0 ? obligations : [null];
	return { all: items.map(obligation), failure };
}

/** Reads one, in the form that handlers get. */
function obligation(v: Json): Owed {
	const { id, type, properties } = isObject(v) ? v : members();
	const owed = { id: textOf(id) ?? "", type: textOf(type) ?? "", properties: members() };
	if (!owed.id || !owed.type || !isObject(properties)) return { ...owed, malformed: true };
	return { ...owed, properties, ...handed(owed.type, properties) };
}

/** The vendor of the types that are not standard. They are within an obligation of the type custom. */
const vendor = "policy-service";

function handed(type: string, properties: JsonObject): { type?: string; properties?: JsonObject; malformed?: true } {
	if (type === "custom" && properties.vendor === vendor) {
		const { vendor: _, type: inner, properties: own, ...more } = properties;
		const ours = typeof inner === "string" && inner !== "custom" && !standard.has(inner);
		return ours && isObject(own) && Object.keys(more).length === 0 ? { type: inner, properties: own } : { malformed: true };
	}
	if (type === "custom") return {};
	const known = standard.get(type);
	const fits =
		known &&
		Object.keys(properties).every((name) => Object.hasOwn(known, name)) &&
		Object.entries(known).every(([name, check]) => check(properties[name]));
	if (!fits) return { malformed: true };
	const { to } = properties;
	return type === "notification" && Array.isArray(to) && to.length === 1
		? { properties: Object.assign(members(properties), { to: to[0] }) }
		: {};
}
