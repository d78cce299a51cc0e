/** A promise that knows whether anybody waits for it. */
class Awaitable<T> extends Promise<T> {
	static override get [Symbol.species](): PromiseConstructor {
		return Promise;
	}
	awaited = false;
	asked: Error | undefined;

	// biome-ignore lint/suspicious/noThenProperty: await calls it
	override then<U = T, V = never>(
		yes?: ((value: T) => U | PromiseLike<U>) | null,
		no?: ((reason: unknown) => V | PromiseLike<V>) | null,
	): Promise<U | V> {
		this.awaited = true;
		const next = super.then(yes, no);
		return typeof yes === "function" ? next : awaitable(next, this.asked); // after catch, it is still to be awaited
	}

	override finally(done?: (() => void) | null): Promise<T> {
		return awaitable(super.finally(done), this.asked);
	}
}

const reported = new Set<string>();

/**
 * Returns a promise of a permit. If the permit comes and nobody awaits it, that is an error in the log, once for each place in the
 * program: the promise of a no would have been true in the same condition. A no that nobody awaits is an unhandled rejection.
 */
export function awaitable<T>(permit: Promise<T>, asked: Error | undefined): Promise<T> {
	const promise = new Awaitable<T>((resolve) => resolve(permit));
	promise.asked = asked;
	permit.then(
		() => {
			if (promise.awaited) return;
			const frames = String(asked?.stack)
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
