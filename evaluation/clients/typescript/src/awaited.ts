import type { Permit } from "./client.js";

/** A promise of a permit that knows whether anybody waits for it. */
class Awaitable extends Promise<Permit> {
	static override get [Symbol.species](): PromiseConstructor {
		return Promise;
	}
	awaited = false;

	// biome-ignore lint/suspicious/noThenProperty: await calls it
	override then<T = Permit, U = never>(
		yes?: ((permit: Permit) => T | PromiseLike<T>) | null,
		no?: ((reason: unknown) => U | PromiseLike<U>) | null,
	): Promise<T | U> {
		this.awaited = true;
		return super.then(yes, no);
	}
}

const reported = new Set<string>();

/**
 * Returns a promise of the permit. If it comes and nobody awaits it, that is an error in the log, once for each place in the program:
 * the promise of a no would have been true in the same condition. A no that nobody awaits is an unhandled rejection.
 */
export function awaitable(permit: Promise<Permit>, { stack }: Error): Promise<Permit> {
	const promise = new Awaitable((resolve) => resolve(permit));
	permit.then(
		() => {
			if (promise.awaited) return;
			const frames = String(stack)
				.split("\n")
				.filter((line) => /:\d+:\d+/.test(line));
			const place = frames[1]?.trim() ?? "at an unknown place"; // the first one is authorize itself
			if (reported.has(place)) return;
			reported.add(place);
			console.error(
				`policy-service-client: nobody awaited authorize ${place}: a promise is true in every condition; use enforce(question, act)`,
			);
		},
		() => {},
	);
	return promise;
}
