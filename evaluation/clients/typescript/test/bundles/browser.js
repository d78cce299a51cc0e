// A page: it takes a call from the server that it comes from, and brings the outcome when it takes the next one.
import { answer } from "./entry.js";

for (let last = ""; ; ) {
	const { body, text } = await fetch("/next", { method: "POST", body: last }).then(async (r) => ({ body: r.ok, text: await r.text() }));
	if (!body) break;
	last = await answer(text);
}
