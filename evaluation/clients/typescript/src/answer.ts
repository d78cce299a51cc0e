import { Failure, odd } from "./errors.js";
import { isObject, members, present, same, textOf } from "./json.js";
import { adopted, type Owed } from "./october.js";
import type { Json, JsonObject, Obligation } from "./types.js";

/** The PDP's answer, or the failure for which there is none. */
export interface Answer {
	/** The verdict, obligations aside. It is no permit. */
	allow: boolean;
	/** It allows without any condition. */
	permit: boolean;
	failure?: Failure | undefined;
	reason?: string | undefined;
	reasonUser?: string | undefined;
	context?: JsonObject | undefined;
	obligations: readonly Owed[];
	possible?: boolean | undefined;
	decisionId?: string | undefined;
	requestId?: string | undefined;
	/** That were sent, and that no error repeats. */
	secrets?: readonly string[] | undefined;
}

/** The answer of a call that failed. */
export function denied(failure: Failure): Answer {
	return { allow: false, permit: false, failure, obligations: [] };
}

/** Whether it allows, and nothing is wrong with that but that obligations are to be discharged. */
export function conditional(a: Answer): boolean {
	return a.allow && a.failure?.kind === "obligated";
}

/**
 * Reads {"decision": bool, "context": {…}}. Unknown members are ignored, and null is absent. The members of a context count
 * beside the decision, too: a PDP that puts obligations there still means them. They are read by the draft of October if the
 * question adopts it.
 */
export function readAnswer(body: Json, october = false): Answer {
	if (!isObject(body)) return denied(odd("the body is not an object"));
	const { decision } = body;
	if (typeof decision !== "boolean") return denied(odd("decision is missing or not a boolean"));
	if (decision && body.allow === false) return denied(odd("it says both yes and no"));
	const a: Answer = { allow: decision, permit: false, obligations: [] };
	qualify(a, body, october);
	if (isObject(body.context)) a.context = body.context;
	return a;
}

/** An allow that all of these members qualify, beside it and in its context. */
export function qualified(body: JsonObject, october: boolean): Answer {
	const a: Answer = { allow: true, permit: false, obligations: [] };
	qualify(a, body, october);
	return a;
}

/** The failure of members that qualify several answers together: it is not known which of them they are for. */
export function ofAll(body: JsonObject, what: string, october: boolean): Failure | undefined {
	const all = qualified(body, october);
	return conditional(all) ? new Failure("obligated", `${what} as a whole carries obligations`) : all.failure;
}

/** Reads all qualifying members, also where some are odd: the readable obligations are to be discharged. */
function qualify(a: Answer, body: JsonObject, october: boolean): void {
	a.failure = add(a, body, october);
	const within = isObject(body.context)
		? add(a, body.context, october)
		: present(body.context)
			? odd("context is not an object")
			: undefined;
	a.failure ??= within;
	a.obligations = distinct(a.obligations);
	if (!a.failure && a.allow && a.obligations.length > 0) a.failure = new Failure("obligated", "");
	a.permit = a.allow && !a.failure;
}

/**
 * All but repetitions: one that is the same in two places, or stands there twice, is discharged once. If one has the id of another
 * that differs, no later one with that id is compared: a comparison with a large one takes long, and none of them can be discharged.
 */
function distinct(all: readonly Owed[]): Owed[] {
	const first = new Map<string, Owed | undefined>([["", undefined]]);
	return all.filter((o) => {
		const like = first.get(o.id);
		const { malformed, type, properties } = o; // what could be read of a malformed one may be like another
		if (like && malformed === like.malformed && type === like.type && same(properties, like.properties)) return false;
		first.set(o.id, first.has(o.id) ? undefined : o);
		return true;
	});
}

function add(a: Answer, place: JsonObject, october: boolean): Failure | undefined {
	// Texts only: other PDPs put objects there, which stay in the context.
	a.reason = textOf(place.reason) ?? a.reason;
	a.reasonUser = textOf(place.reason_user) ?? a.reasonUser;
	const wanted = october ? adopted(place) : new Wanted(place);
	a.obligations = a.obligations.concat(wanted.all);
	if (typeof place.possible === "boolean") a.possible = place.possible;
	if (present(place.error)) return itemFailure(place.error);
	if (wanted.failure || !a.allow) return wanted.failure;
	if (a.possible !== undefined) return odd("it allows, and says what is possible");
	if (isObject(place.capability) && place.capability.enforceable === false) return odd("it allows, and says that nothing may happen by it");
	if (present(place.required_obligations)) return odd("it allows, and names obligations it required in vain");
	return undefined;
}

/** An error makes a deny of all that stands beside it. */
function itemFailure(error: Json): Failure {
	const failure = new Failure("bad_item", "");
	if (isObject(error)) {
		failure.detail = textOf(error.message) ?? ""; // the caller, which knows the secrets, makes it printable
		if (Number.isInteger(error.status)) failure.pdpStatus = error.status as number;
	}
	return failure;
}

/**
 * The obligations of one place of an answer: AuthZEN's array, or the native object that maps each type to true, beside
 * which obligation_details is such an array. Any other form is a failure, and so never lost; readable obligations beside it
 * are kept as well, because they are discharged also for an answer that must be denied.
 */
class Wanted {
	all: Obligation[] = [];
	failure: Failure | undefined;

	constructor({ obligations, obligation_details }: JsonObject) {
		const details = this.#array(obligation_details);
		if (isObject(obligations)) {
			const types = Object.keys(obligations).sort();
			const owed = new Set(types.filter((type) => obligations[type] === true));
			if (owed.size < types.length) this.#odd("an obligation is something else than true");
			if (details.some((o) => !owed.has(o.type))) this.#odd("it has details of an obligation that it does not name");
			const detailed = new Set(details.map((o) => o.type));
			const bare = [...owed].filter((type) => !detailed.has(type));
			this.all = [...bare.map((type) => ({ id: type, type, properties: members() })), ...details];
			return;
		}
		const array = this.#array(obligations);
		this.all = [...array, ...details];
		if (details.length === 0) return;
		if (!present(obligations)) this.#odd("it has details of obligations, and no obligations");
		else if (Array.isArray(obligations)) this.#odd("it has obligations, and details of them, as two arrays");
	}

	#odd(detail: string): void {
		this.failure ??= odd(detail);
	}

	#array(v: Json | undefined): Obligation[] {
		if (!present(v)) return [];
		if (Array.isArray(v)) return v.map((item) => this.#obligation(item));
		this.#odd("obligations are not an array");
		return [];
	}

	/**
	 * Reads {id, type, properties}. In AuthZEN's profile for obligations the parameters of a type stand beside its id. Both
	 * are read as properties; a name that has two values is a failure.
	 */
	#obligation(v: Json): Obligation {
		const properties = members();
		if (!isObject(v)) {
			this.#odd("an obligation is not an object");
			return { id: "", type: "", properties };
		}
		const { id, type, properties: inner, ...beside } = v;
		if (!textOf(type)) this.#odd("an obligation has no type");
		if (inner !== undefined && !isObject(inner)) this.#odd("the properties of an obligation cannot be read");
		for (const [name, value] of [...Object.entries(isObject(inner) ? inner : {}), ...Object.entries(beside)]) {
			if (name in properties && !same(properties[name], value)) this.#odd("a property of an obligation has two values");
			else properties[name] = value as Json;
		}
		return { id: textOf(id) ?? "", type: textOf(type) ?? "", properties };
	}
}
