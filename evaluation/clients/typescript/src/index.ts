export type { Task, Wait } from "./approvals.js";
export * from "./capability.js";
export * from "./client.js";
export type { DeniedKind, Kind, UndecidedKind } from "./errors.js";
export { AuthorizationError, Denied, Undecided } from "./errors.js";
export type { Change, Handler, Handlers } from "./obligations.js";
export type { Action, Entity, Json, JsonObject, Obligation, Question } from "./types.js";
