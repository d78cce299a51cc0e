// Made of the OpenAPI document by go test ./evaluation/clients -run TestTypes -update-types.

/** A value of JSON. A member that is undefined is left out. */
export type Json = null | boolean | number | string | readonly Json[] | JsonObject;

/** An object of JSON. */
export interface JsonObject {
	readonly [name: string]: Json | undefined;
}

/** Entity in the OpenAPI document. */
export interface Entity {
	type: string;
	id: string;
	properties?: JsonObject;
}

/** Action in the OpenAPI document. */
export interface Action {
	name: string;
	properties?: JsonObject;
}

/** EvaluationRequest in the OpenAPI document. */
export interface Question {
	subject: Entity;
	action: Action;
	resource: Entity;
	context?: JsonObject;
}

/** Obligations in the OpenAPI document. */
export interface Obligation {
	id: string;
	type: string;
	properties: JsonObject;
}

/** Searched in the OpenAPI document. */
export interface Sought {
	type: string;
}

/** SubjectSearchRequest in the OpenAPI document. */
export interface SubjectQuery {
	subject: Sought;
	action: Action;
	resource: Entity;
	context?: JsonObject;
}

/** ResourceSearchRequest in the OpenAPI document. */
export interface ResourceQuery {
	subject: Entity;
	action: Action;
	resource: Sought;
	context?: JsonObject;
}

/** ActionSearchRequest in the OpenAPI document. */
export interface ActionQuery {
	subject: Entity;
	resource: Entity;
	context?: JsonObject;
}

/** CapabilityRequest in the OpenAPI document. */
export interface CapabilityAsk {
	tenant_id: string;
	holder: { type: string; id: string; properties?: JsonObject };
	/** The server of the tools. */
	audience: string;
	/** Ids, or names of tools of the audience; `*` is all of them. */
	tools: readonly string[];
	/** In seconds. */
	duration?: number;
	valid_from?: string;
	valid_until?: string;
	max_uses?: number;
	/** Whether gateways may verify it that do not ask the service. Not with max_uses. */
	offline?: boolean;
	/** Constraints by the names of arguments. A value that is no constraint is that very value. An argument without one is refused, unless `*` is named. */
	arguments?: JsonObject;
	reason?: string;
	/** For whom the holder acts, for the policies and the people who are asked. Of a credential without a principal alone. */
	context?: { person?: Json; on_behalf_of?: Json; holder_key?: "gateway" };
	channel?: { session?: string };
	/** How often in a row it may be handed on, counted from the first capability. Without it, never. */
	max_depth?: number;
}
