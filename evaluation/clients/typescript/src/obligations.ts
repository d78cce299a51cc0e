import type { Obligation, Question } from "./types.js";

/** Changes the result of an act, as a handler promised. */
export type Change = (result: unknown) => unknown | Promise<unknown>;

/**
 * Discharges one obligation. If it returns, the obligation is discharged; if it throws, it is not. Where it can only be
 * kept on the result of the act (redact), it returns a {@link Change}: `enforce` and `enforceAll` apply it.
 */
export type Handler = (
	obligation: Obligation,
	about: { question: Question; signal: AbortSignal },
) => void | Change | Promise<void | Change>;

/** Handlers by the type of the obligation. */
export type Handlers = { readonly [type: string]: Handler };
