// Conveniences. Nothing depends on them: a script moves the focus, follows links, copies ids and texts and keeps
// times up to date. It sends no form, writes texts as texts alone, and asks the server for nothing but how many requests wait.
"use strict";
(() => {
	const all = (selector) => Array.from(document.querySelectorAll(selector));
	const one = (selector) => document.querySelector(selector);

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

	// Who copies one text gets the text: a mark becomes the characters that it stands for. JSON has the same escapes.
	const marks = ".esc, .alike, .spaces";
	const ofMark = (mark, json) => {
		let text = mark.textContent;
		const [, unit, times] = text.match(/^([^×]+)×(\d+)$/) || [];
		if (unit === "⏎") return / empty lines$/.test(mark.title) ? "\n".repeat(times - 1) : text;
		if (unit) text = unit.repeat(times);
		if (/^[␣→ ]+$/.test(text)) return text.replace(/→( {3})?/g, json ? "\\t" : "\t").replaceAll("␣", " ");
		return json || !/^(\\u[0-9a-f]{4}|\\n|\\")+$/.test(text) ? text : JSON.parse('"' + text + '"');
	};
	const meant = (n, json) => {
		if (n.nodeType === Node.TEXT_NODE) return json ? n.data : n.data.replaceAll("\\\\", "\\");
		return n.matches?.(marks) ? ofMark(n, json) : Array.from(n.childNodes, (child) => meant(child, json)).join("");
	};
	document.addEventListener("copy", (e) => {
		const selection = getSelection(), range = selection.rangeCount === 1 && selection.getRangeAt(0);
		const [part, more] = all("bdi").filter((text) => range && range.intersectsNode(text)).map((text) => {
			const part = range.cloneRange();
			if (!text.contains(part.startContainer)) part.setStart(text, 0);
			if (!text.contains(part.endContainer)) part.setEnd(text, text.childNodes.length);
			return part;
		}).filter(String);
		if (!part || more || String(part).trim() !== String(selection).trim()) return;
		const around = (n, selector) => (n.closest ? n : n.parentElement).closest(selector);
		const json = around(part.commonAncestorContainer, ".json");
		const first = around(part.startContainer, marks), last = around(part.endContainer, marks);
		if (first) part.setStartBefore(first);
		if (last) part.setEndAfter(last);
		e.clipboardData.setData("text/plain", meant(part.cloneContents(), json));
		e.preventDefault();
	});

	for (const id of all("[data-copy]")) {
		const button = document.createElement("button");
		button.type = "button";
		button.className = "copy";
		button.textContent = "Copy";
		button.setAttribute("aria-label", "Copy " + (id.dataset.copy || "the id"));
		const text = id.textContent;
		button.addEventListener("click", () => {
			navigator.clipboard.writeText(text).then(() => { button.textContent = "Copied"; }, () => { button.textContent = "Not copied"; });
		});
		id.after(button);
	}

	// How many wait, here and in the other tabs: one of them has it from the server and passes it on. Each page has the
	// tag of the list that it was made of.
	const waits = () => {
		const root = document.documentElement, path = root.dataset.stream, live = one("[data-live]"), key = "inbox " + location.search;
		const here = window.BroadcastChannel && new BroadcastChannel(path);
		let last = null, due = 0;
		const idle = () => getSelection().isCollapsed && !document.activeElement.closest("input, select") &&
			all("input").every((f) => f.value === f.defaultValue) &&
			all("select").every((f) => (f.querySelector("[selected]") || f.options[0]).selected);
		const again = () => {
			due = 0;
			if (!idle()) return later(1000);
			sessionStorage.setItem(key, JSON.stringify([Date.now(), scrollY, document.activeElement.getAttribute("href")]));
			location.replace(location.pathname + location.search);
		};
		const later = (ms) => { due = due || setTimeout(again, ms); };
		const show = (now) => {
			last = now;
			const text = now.n || now.more ? now.n + (now.more ? "+" : "") : "";
			for (const e of all("[data-waiting]")) e.textContent = text;
			one("[data-badge]").hidden = now.n === 0;
			document.title = (now.n ? "(" + text + ") " : "") + document.title.replace(/^\(\d+\+?\) /, "");
			if (live && root.dataset.tag && now.tag !== root.dataset.tag) later(Math.max(0, loaded + 5000 - Date.now()));
		};
		const publish = (now) => { show(now); if (here) here.postMessage(now); };
		const poll = () => fetch(path, { headers: { Accept: "application/json" } }).then((r) => {
			if (r.status === 401) return;
			setTimeout(poll, 20000);
			return r.ok ? r.json().then(publish) : undefined;
		}, () => setTimeout(poll, 20000));
		const listen = () => new Promise(() => {
			const events = new EventSource(path);
			let alive;
			const cut = () => { clearTimeout(alive); events.close(); poll(); };
			const beat = () => { clearTimeout(alive); alive = setTimeout(cut, 45000); };
			events.addEventListener("waiting", (e) => { beat(); publish(JSON.parse(e.data)); });
			events.addEventListener("beat", beat);
			events.addEventListener("replaced", cut);
			events.addEventListener("error", () => { if (events.readyState === EventSource.CLOSED) cut(); });
			beat();
		});
		const [at, y, row] = JSON.parse(sessionStorage.getItem(key) || "[0]");
		const loaded = Date.now();
		sessionStorage.removeItem(key);
		if (live && loaded - at < 10000) {
			scrollTo(0, y);
			const focused = row && all("a").find((a) => a.getAttribute("href") === row);
			if (focused) focused.focus();
			live.textContent = "The list has changed.";
		}
		if (here) {
			here.onmessage = (e) => { if (e.data) show(e.data); else if (last) here.postMessage(last); };
			here.postMessage(null);
		}
		if (here && window.EventSource && navigator.locks) navigator.locks.request(path, listen); else poll();
	};
	if (document.documentElement.dataset.stream) waits();

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
	if (keys) keys.hidden = false;
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
