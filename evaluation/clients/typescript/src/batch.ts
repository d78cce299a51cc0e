import { type Answer, denied, ofAll, readAnswer } from "./answer.js";
import type { Semantic } from "./client.js";
import { type Core, type Decided, type Enforcement, presentsIn, questionOf } from "./core.js";
import { Failure, notAsked, odd, printable } from "./errors.js";
import { isObject } from "./json.js";
import { forgo } from "./obligations.js";
import { adopts } from "./october.js";
import { ask, type Reply } from "./transport.js";
import type { JsonObject, Question } from "./types.js";

/** The questions of a batch, checked. It throws a Failure for an empty one: no answer to it may read as a yes. */
export function questionsOf(core: Core, questions: unknown): Question[] {
	const all: Question[] = [];
	const length = Array.isArray(questions) ? questions.length : 0; // once: an array can change while it is read
	for (let n = 0; n < length; n++) all.push(core.declare(questionOf((questions as unknown[])[n])));
	if (all.length === 0) throw notAsked("there are no questions");
	return all;
}

/** Asks them. There is one result for each question, in order. It does not throw. */
export async function decideAll(
	core: Core,
	questions: readonly Question[],
	semantic: Semantic,
	signal: AbortSignal | undefined,
): Promise<Decided[]> {
	const presents = questions.some(presentsIn);
	let answers: Answer[] = [];
	const body = {
		evaluations: questions,
		...(semantic !== "execute_all" && { options: { evaluations_semantic: semantic } }),
	} as unknown as JsonObject;
	const { breaker } = core;
	const { requestId, failure } = await ask(
		core.settings,
		{ url: core.access("evaluations"), body, repeat: presents ? "unsent" : "unanswered", breaker, signal },
		(reply) => {
			answers = readBatch(reply, questions, semantic);
			return undefined;
		},
	);
	return questions.map((question, n) => {
		const answer = failure ? denied(failure) : (answers[n] ?? denied(odd("there is no answer")));
		return { question, presents: presentsIn(question), answer: { ...answer, requestId } };
	});
}

function decides(semantic: Semantic, { allow, possible }: Answer): boolean {
	return possible === undefined && semantic === (allow ? "permit_on_first_permit" : "deny_on_first_deny");
}

/**
 * Reads the answers. The member decision beside evaluations means nothing. Obligations beside them mean something, and it is
 * not known of which item. An answer with the wrong number of items denies all: it is not known which is missing.
 */
function readBatch({ body, decisionId, secrets }: Reply, questions: readonly Question[], semantic: Semantic): Answer[] {
	if (!isObject(body) || !Array.isArray(body.evaluations)) throw odd("the body is not an object with an array of evaluations");
	const items = body.evaluations;
	const asked = questions.length;
	if (items.length > asked) throw odd("there are more answers than questions");
	const whole = ofAll(body, "the batch", questions.some(adopts));
	if (whole) throw whole;
	if (items.length === 0) throw odd("there are no answers");
	return questions.map((question, n) => {
		const item = items[n];
		const named = decisionId === undefined ? {} : { decisionId: `${decisionId}.${n}` };
		if (item === undefined) return denied(new Failure("skipped", "an earlier one was enough", { sent: false }));
		const answer = { ...readAnswer(item, adopts(question)), ...named, secrets };
		if (answer.failure) answer.failure.detail = printable(answer.failure.detail, secrets);
		const last = n === items.length - 1;
		if (items.length < asked && decides(semantic, answer) !== last)
			throw odd("there are fewer answers than questions, and no answer to stop at");
		return answer;
	});
}

/**
 * Discharges several decisions that are one permit together. If one of them denies, the obligations of the allows are not
 * tried, and are reported as not discharged.
 */
export async function enforceTogether(core: Core, all: readonly Decided[], signal: AbortSignal | undefined): Promise<Enforcement[]> {
	const denies = (d: Decided) => !d.answer.permit && !(d.answer.allow && d.answer.failure?.kind === "obligated");
	const stays = all.some(denies);
	const done: Enforcement[] = [];
	for (const d of all) {
		if (!stays || denies(d)) {
			done.push(await core.discharge(d, signal, true));
			continue;
		}
		const failure = new Failure("skipped", "another decision about the same act denies it", { sent: false });
		done.push({ ...d, report: forgo(d.answer.obligations), failure });
	}
	return done;
}

/** The one for which the act is denied, undefined if each permits. */
export function firstDeny(all: readonly Enforcement[]): Enforcement | undefined {
	return all.find((e) => e.failure && e.failure.kind !== "skipped") ?? all.find((e) => e.failure);
}
