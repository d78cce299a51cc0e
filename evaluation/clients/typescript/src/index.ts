export type { Task, Wait } from "./approvals.js";
export { Capability, type CapabilityAsk, Holder, type KeptCapability, type PrivateJwk, type PublicJwk } from "./capability.js";
export {
	type AskOptions,
	type Branches,
	Client,
	type ClientOptions,
	type EnforceOptions,
	type Permit,
	type Semantic,
} from "./client.js";
export type { DeniedKind, Kind, UndecidedKind } from "./errors.js";
export { AuthorizationError, Denied, Undecided } from "./errors.js";
export type { Change, Handler, Handlers } from "./obligations.js";
export type { Action, ActionQuery, Entity, Json, JsonObject, Obligation, Question, ResourceQuery, Sought, SubjectQuery } from "./types.js";
