// What is more convenient with a script. Nothing depends on it: it moves the focus, follows links, copies ids and keeps
// times up to date. It sends no form, and writes texts as texts alone.
"use strict";
(() => {
	const all = (what) => Array.from(document.querySelectorAll(what));
	const one = (what) => document.querySelector(what);

	// The clock of the server goes on from when the page was made. That of the browser may be wrong.
	const made = Date.parse(document.documentElement.dataset.now);
	const began = performance.now();
	const now = () => made + (performance.now() - began);

	const span = (ms) => {
		let s = Math.max(0, Math.floor(ms / 1000));
		const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
		for (let n = 0; n < 3; n++) {
			const [length, name] = units[n];
			if (s < length) continue;
			const whole = Math.floor(s / length), rest = Math.floor((s % length) / units[n + 1][0]);
			return whole + " " + name + (rest === 0 || length === 60 ? "" : " " + rest + " " + units[n + 1][1]);
		}
		return s + " s";
	};
	const times = () => {
		for (const t of all("time[data-left]")) {
			const left = Date.parse(t.dateTime) - now();
			t.textContent = left > 0 ? span(left) + " left" : "time is up";
		}
		for (const t of all("time[data-ago]")) {
			const ago = now() - Date.parse(t.dateTime);
			t.textContent = ago < 60000 ? "just now" : span(ago) + " ago";
		}
	};
	if (!Number.isNaN(made)) setInterval(times, 15000);

	for (const id of all("[data-copy]")) {
		const button = document.createElement("button");
		button.type = "button";
		button.className = "copy";
		button.textContent = "Copy";
		button.setAttribute("aria-label", "Copy the id");
		const text = id.textContent;
		button.addEventListener("click", () => {
			navigator.clipboard.writeText(text).then(() => { button.textContent = "Copied"; }, () => { button.textContent = "Not copied"; });
		});
		id.after(button);
	}

	const rows = all("a[data-row]");
	const move = (by) => {
		if (rows.length > 0) {
			const at = rows.indexOf(document.activeElement);
			const to = at < 0 ? (by > 0 ? 0 : rows.length - 1) : at + by;
			if (rows[to]) rows[to].focus();
			return;
		}
		const link = one(by > 0 ? "a[rel=next]" : "a[rel=prev]");
		if (link) link.click();
	};
	// A key moves to a button and never presses it.
	const toButton = (key) => {
		const button = one("button[data-key=" + key + "]");
		if (!button) return;
		const reason = button.form.elements.namedItem("reason");
		(reason.value.trim() === "" ? reason : button).focus();
	};
	const keys = one(".keys");
	const does = {
		j: () => move(1),
		k: () => move(-1),
		a: () => toButton("a"),
		d: () => toButton("d"),
		"?": () => { if (keys) keys.hidden = !keys.hidden; },
	};
	document.addEventListener("keydown", (e) => {
		const typing = e.target.closest("input, textarea, select, [contenteditable]");
		if (typing && e.key === "Escape") typing.blur();
		if (typing || e.ctrlKey || e.metaKey || e.altKey || e.repeat || !Object.hasOwn(does, e.key)) return;
		e.preventDefault();
		does[e.key]();
	});
})();
