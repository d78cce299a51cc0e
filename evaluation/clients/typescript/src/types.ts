/** A JSON value. */
export type Json = null | boolean | number | string | readonly Json[] | JsonObject;

/** A JSON object. A member that is undefined is left out. */
export interface JsonObject {
	readonly [name: string]: Json | undefined;
}

/** A subject or a resource. */
export interface Entity {
	type: string;
	id: string;
	properties?: JsonObject;
}

/** An action, by its name. */
export interface Action {
	name: string;
	properties?: JsonObject;
}

/** May this subject do this action on this resource? */
export interface Question {
	subject: Entity;
	action: Action;
	resource: Entity;
	context?: JsonObject;
}

/** An act that the PDP wants done besides. */
export interface Obligation {
	id: string;
	type: string;
	properties: JsonObject;
}
