import type { Wait } from "./approvals.js";
import type { Link } from "./link.js";
import type { JsonObject, Question } from "./types.js";

// A place-holder: the file is replaced as a whole. The client needs these names.

/** A key, and what it can sign. */
export interface Holder {
	readonly thumbprint: string;
}

/** What a capability is asked for. */
export interface CapabilityAsk extends JsonObject {}

/** A capability that was granted. */
export interface Capability {
	readonly id: string;
}

/** The token, and a fresh proof of the question's call. It throws an error of kind not_asked if no proof can be made. */
export async function prove(
	_capability: Capability,
	_call: { question: Question; nonce: string | undefined; now: number },
): Promise<{ token: string; proof: string }> {
	throw new Error("not yet");
}

export async function requestCapability(
	_link: Link,
	_holder: Holder,
	_ask: CapabilityAsk,
	_options?: { wait?: Wait; signal?: AbortSignal },
): Promise<Capability> {
	throw new Error("not yet");
}

export async function renewCapability(
	_link: Link,
	_capability: Capability,
	_options?: { wait?: Wait; signal?: AbortSignal },
): Promise<Capability> {
	throw new Error("not yet");
}
