// Does the calls of the table of cases.
import {
	type AskOptions,
	AuthorizationError,
	type Capability,
	Client,
	type EnforceOptions,
	type Handler,
	type Handlers,
	type Question,
} from "../src/index.js";
import { ask as askCapability } from "./holder.js";

interface Line {
	client?: {
		url: string;
		credential?: string;
		timeout?: number;
		retries?: number;
		breaker?: { failures: number; coolDown: number };
		obligations?: "july";
		handlers?: { [type: string]: "ok" | "fail" | "change" | "breaks" };
	};
	do: string;
	tenant?: string;
	question?: Question;
	questions?: Question[];
	semantic?: "execute_all" | "deny_on_first_deny" | "permit_on_first_permit";
	what?: "subject" | "resource" | "action";
	wait?: number;
	useCapability?: boolean;
	ask?: { [name: string]: never };
}

interface Item {
	allowed: boolean;
	kind: string;
	reason: string;
}

let own: Client;
let capability: Capability | undefined;
let handled: string[] = [];

function handlerOf(how: string): Handler {
	return ({ type }) => {
		handled.push(type);
		if (how === "fail") throw new Error("it fails");
		if (how === "change") return (result) => `changed:${result}`;
		if (how !== "breaks") return undefined;
		return () => {
			throw new Error("it breaks");
		};
	};
}

function itemOf(error: unknown): Item {
	if (!(error instanceof AuthorizationError)) throw error;
	return { allowed: false, kind: error.kind, reason: error.reason ?? "" };
}

const yes: Item = { allowed: true, kind: "", reason: "" };

async function run(line: Line): Promise<object> {
	if (line.client) {
		const { handlers = {}, ...options } = line.client;
		const all: Handlers = Object.fromEntries(Object.entries(handlers).map(([type, how]) => [type, handlerOf(how)]));
		own = new Client({ ...options, handlers: all });
		capability = undefined;
	}
	const client = line.tenant === undefined ? own : own.forTenant(line.tenant);
	handled = [];
	const out = { ...yes, status: 0, reasonUser: "", acted: 0, result: "", handled, items: [] as Item[], found: [] as string[] };
	const more = { spent: false, named: false, waits: false };
	const fill = (error: unknown) => {
		Object.assign(out, itemOf(error));
		const { pdpStatus, reasonUser, spent, decisionId, task } = error as AuthorizationError;
		Object.assign(out, { status: pdpStatus ?? 0, reasonUser: reasonUser ?? "" });
		Object.assign(more, { spent, named: decisionId !== undefined, waits: task !== undefined });
	};
	const named = (permit: { decisionId?: string }) => {
		more.named = permit.decisionId !== undefined;
	};
	const act = () => {
		out.acted++;
		return "done";
	};
	const shown: AskOptions = line.useCapability && capability ? { capability } : {};
	const options: EnforceOptions = { ...shown, ...(line.wait !== undefined && { wait: line.wait * 1000 }) };
	const question = line.question as Question;
	const questions = line.questions ?? [];
	try {
		switch (line.do) {
			case "evaluate":
				await client.evaluate(question, { allow: named, deny: fill }, shown);
				break;
			case "authorize":
				named(await client.authorize(question, options));
				break;
			case "enforce":
				out.result = await client.enforce(
					question,
					(permit) => {
						named(permit);
						return act();
					},
					options,
				);
				break;
			case "enforceAll":
				out.result = await client.enforceAll(questions, act);
				break;
			case "batch":
				out.items = await client.evaluateBatch(
					questions,
					{ allow: () => yes, deny: itemOf },
					{ ...(line.semantic && { semantic: line.semantic }) },
				);
				break;
			case "search":
				if (line.what === "subject") for await (const { id } of client.searchSubjects(question)) out.found.push(id);
				else if (line.what === "resource") for await (const { id } of client.searchResources(question)) out.found.push(id);
				else for await (const { name } of client.searchActions(question)) out.found.push(name);
				break;
			case "capability":
				capability = await askCapability(client, line.ask ?? {}, options);
				break;
			case "renew":
				capability = await client.renewCapability(capability as Capability, options);
				break;
			default:
				throw new Error(`unknown: ${line.do}`);
		}
	} catch (error) {
		out.result = "";
		fill(error);
	}
	return { ...out, ...more };
}

/** Does the call that a text says in JSON, and returns its outcome in JSON. It keeps the client for the next one. */
export async function call(text: string): Promise<string> {
	let out: object;
	try {
		out = await run(JSON.parse(text) as Line);
	} catch (error) {
		out = { crash: error instanceof Error ? `${error.stack}` : String(error) };
	}
	return JSON.stringify(out);
}
