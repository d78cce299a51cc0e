// What tests ask of a page that is open in a browser. Each function returns what is wrong, as text, or what there is.
(() => {
  const all = (selector) => [...document.querySelectorAll(selector)];
  const name = (e) => e.localName + (e.id ? "#" + e.id : "") + (e.className ? "." + String(e.className).replaceAll(" ", ".") : "");
  const brief = (text) => JSON.stringify(text.trim().slice(0, 40));
  const shown = (e) => e.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && e.getClientRects().length > 0;

  // What shows text of others, and what is said of such a text.
  const texts = "bdi.line, bdi.text, bdo.text";
  const remarks = "span.odd, span.aside, details.more, ul.heed";

  // What may be within either: the name of the element, its classes, and the names of its attributes.
  const within = new Set([
    "span.esc[class,title]", "span.spaces[class,title]", "span.alike[class,title]", "span.esc[class]", "span.spaces[class]", "span.alike[class]",
    "span.odd[class]", "span.aside[class]", "details.more[class]", "summary[]", "ul.heed[aria-label,class,tabindex]", "li[]", "a[href]",
    "ins[]", "del[]", "span.hidden[class]", "bdi.line[class]", "bdi.text[class]", "bdi.text json[class]", "bdo.text[class,dir]",
  ]);
  const form = (e) => e.localName + (e.className ? "." + e.className : "") + "[" + e.getAttributeNames().sort() + "]";

  // Everything else of the page: each element with its attributes and their values, but for what differs from one
  // approval request to another.
  const rest = (e) => e.localName + e.getAttributeNames().sort().map((a) => {
    let value = e.getAttribute(a);
    if (["token", "shown"].includes(e.name) && a === "value" || a === "datetime" || a === "data-now") value = "";
    return " " + a + "=" + value.replace(/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]+/g, "ID");
  }).join("");

  const dom = (root = document.documentElement) => {
    const lines = [], wrong = [];
    const walk = (e, depth) => {
      if (e.matches(texts) || e.matches(remarks)) {
        for (const one of [e, ...e.querySelectorAll("*")]) if (!within.has(form(one))) wrong.push(form(one));
        if (e.matches(texts)) lines.push(" ".repeat(depth) + "text");
        return;
      }
      if (e.matches("nav.beside")) return; // it depends on what else waits
      if (e.matches("datalist option")) { // whom one may name depends on who one is and who asked
        if (e.getAttributeNames().join() !== "value" || e.textContent) wrong.push(rest(e));
        return;
      }
      lines.push(" ".repeat(depth) + rest(e));
      for (const child of e.children) walk(child, depth + 1);
      if (e.shadowRoot) wrong.push("a shadow in " + name(e));
    };
    walk(root, 0);
    return { lines, wrong };
  };
  const rows = () => all("table.requests tbody tr").map((row) => {
    const { lines, wrong } = dom(row);
    return { lines: lines.filter((line) => !line.includes(" class=message") && line.trim() !== "text"), wrong };
  });

  // What cannot be seen, turns text around, or is a space that looks like another. The page's own text has line ends.
  const unseen = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cn}\p{Co}\p{Cs}\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\uffa0\ufe00-\ufe0f\u{e0100}-\u{e01ef}]|(?! )\p{Zs}/u;
  const marks = () => {
    const bare = [];
    const nodes = document.createTreeWalker(document.documentElement, NodeFilter.SHOW_TEXT);
    for (let n; (n = nodes.nextNode());) {
      const text = n.data.replaceAll("\n", "");
      const at = text.search(unseen);
      if (at >= 0) bare.push(name(n.parentElement) + " has U+" + text.codePointAt(at).toString(16) + " in " + brief(text));
    }
    for (const [a, elements] of [["title", "[title]"], ["aria-label", "[aria-label]"], ["value", "option"], ["placeholder", "[placeholder]"]]) {
      for (const e of all(elements)) if (unseen.test(e.getAttribute(a) ?? "")) bare.push(a + " of " + name(e) + " is " + brief(e.getAttribute(a)));
    }
    return { bare, marked: all(".esc, .spaces, .alike, .odd").length, alike: all(".alike").length };
  };

  // Where the buttons are, and whether they are what somebody hits there.
  const buttons = () => all("main button").filter((b) => shown(b) && ["Approve", "Deny"].includes(b.textContent)).map((b) => {
    const r = b.getBoundingClientRect();
    const hit = document.elementFromPoint(r.x + r.width / 2, r.y + r.height / 2);
    return b.textContent + " at " + [r.x, r.y, r.width, r.height].map(Math.round) + (hit === b ? "" : ", under " + (hit ? name(hit) : "nothing"));
  });

  // Colours as Chromium computes them: rgb(), rgba(), color(srgb …).
  const colour = (text) => {
    const n = text.match(/[\d.]+(?:e-?\d+)?%?/g).map((x) => x.endsWith("%") ? parseFloat(x) / 100 : parseFloat(x));
    const scale = text.startsWith("color(srgb ") ? 1 : 255;
    if (!/^(rgba?|color\(srgb )/.test(text)) throw new Error("a colour that the test cannot read: " + text);
    return { r: n[0] / scale, g: n[1] / scale, b: n[2] / scale, a: n[3] ?? 1 };
  };
  const over = (top, under) => {
    const a = top.a + under.a * (1 - top.a);
    const mix = (c) => a === 0 ? 0 : (top[c] * top.a + under[c] * under.a * (1 - top.a)) / a;
    return { r: mix("r"), g: mix("g"), b: mix("b"), a };
  };
  const canvas = () => {
    const probe = document.createElement("i");
    probe.style.backgroundColor = "Canvas";
    document.body.append(probe);
    const c = colour(getComputedStyle(probe).backgroundColor);
    probe.remove();
    return c;
  };
  const luminance = (c) => {
    const part = (v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    return 0.2126 * part(c.r) + 0.7152 * part(c.g) + 0.0722 * part(c.b);
  };
  const ratio = (a, b) => {
    const [light, dark] = [luminance(a), luminance(b)].sort((x, y) => y - x);
    return (light + 0.05) / (dark + 0.05);
  };
  const background = (e) => {
    let seen = { r: 0, g: 0, b: 0, a: 0 };
    for (let at = e; at && seen.a < 1; at = at.parentElement) {
      const style = getComputedStyle(at);
      const edges = at.matches(".facts, .scrolls"); // their shadows are at an edge behind which there is more
      if (style.backgroundImage !== "none" && !edges) throw new Error("a background that the test cannot read: " + name(at));
      seen = over(seen, colour(style.backgroundColor));
    }
    return over(seen, canvas());
  };
  const opacity = (e) => { let o = 1; for (let at = e; at; at = at.parentElement) o *= parseFloat(getComputedStyle(at).opacity); return o; };
  const hiddenFromEyes = (e) => { const r = e.getBoundingClientRect(); return r.width <= 1 || r.height <= 1 || getComputedStyle(e).clipPath !== "none"; };
  const contrast = () => {
    const wrong = [];
    const judge = (e, text, of) => {
      const under = background(e), ink = colour(of ?? getComputedStyle(e).color);
      ink.a *= opacity(e);
      const got = ratio(over(ink, under), under);
      if (got < 4.5) wrong.push(name(e) + " " + brief(text) + " has " + got.toFixed(2));
    };
    let judged = 0;
    const nodes = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let n; (n = nodes.nextNode());) {
      const e = n.parentElement;
      if (!n.data.trim() || !shown(e) || [...ancestors(e)].some(hiddenFromEyes)) continue;
      judge(e, n.data);
      judged++;
    }
    for (const e of all("input:not([type=hidden]), textarea, select").filter(shown)) {
      judge(e, e.value || "what is typed");
      if (e.placeholder) judge(e, e.placeholder, getComputedStyle(e, "::placeholder").color);
      judged++;
    }
    if (judged === 0) wrong.push("there is no text");
    return wrong;
  };
  function* ancestors(e) { for (let at = e; at && at !== document.body; at = at.parentElement) yield at; }

  const controls = () => all("a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex]").filter(shown);
  // A link in a sentence is as large as its words.
  const targets = () => controls().filter((e) => !e.matches("p a, dd a, td a, li a, div[tabindex], ul[tabindex], p[tabindex]")).flatMap((e) => {
    e.closest("tr")?.scrollIntoView({ block: "nearest" });
    const row = e.closest("tr"), whole = row?.getBoundingClientRect();
    const rows = row && document.elementFromPoint(whole.x + whole.width / 2, whole.bottom - 3) === e; // all of the row is the link
    const r = rows ? whole : e.getBoundingClientRect();
    return r.width >= 24 && r.height >= 24 ? [] : [name(e) + " " + brief(e.textContent) + " is " + Math.round(r.width) + " by " + Math.round(r.height)];
  });

  const own = () => {
    const wrong = all("style, script:not([src]), iframe, object, embed, base, meta[http-equiv]").map(name);
    for (const e of all("*")) {
      for (const a of e.getAttributeNames()) {
        if (a === "style" || a.startsWith("on") || a === "srcdoc") wrong.push(name(e) + " has " + a);
        if (["href", "src", "action", "formaction"].includes(a)) {
          const to = new URL(e.getAttribute(a), document.baseURI);
          if (to.origin !== location.origin) wrong.push(name(e) + " leads to " + to.origin);
        }
      }
    }
    return wrong;
  };

  const structure = () => {
    const wrong = [];
    const count = (selector) => all(selector).length;
    if (count("main") !== 1) wrong.push(count("main") + " of main");
    if (count("h1") !== 1) wrong.push(count("h1") + " of h1");
    if (!document.documentElement.lang || !document.title.trim()) wrong.push("no language, or no title");
    let last = 0;
    for (const h of all("h1, h2, h3, h4, h5, h6")) {
      const level = Number(h.localName[1]);
      if (level > last + 1) wrong.push(name(h) + " after a heading of level " + last);
      if (!h.textContent.trim()) wrong.push(name(h) + " is empty");
      last = level;
    }
    for (const e of all("input:not([type=hidden]), select, textarea")) {
      if (!e.labels?.length && !e.getAttribute("aria-label")) wrong.push(name(e) + " has no label");
    }
    const ids = all("[id]").map((e) => e.id);
    for (const id of new Set(ids)) if (ids.filter((x) => x === id).length > 1) wrong.push("several of #" + id);
    for (const a of ["aria-describedby", "aria-labelledby", "for", "list"]) {
      for (const e of all("[" + a + "]")) for (const id of e.getAttribute(a).split(/\s+/)) if (!ids.includes(id)) wrong.push(name(e) + " refers to no #" + id);
    }
    for (const e of all("body *").filter(shown)) {
      const style = getComputedStyle(e);
      const scrolls = ["auto", "scroll"].includes(style.overflowX) && e.scrollWidth > e.clientWidth + 1 || ["auto", "scroll"].includes(style.overflowY) && e.scrollHeight > e.clientHeight + 1;
      if (scrolls && e.tabIndex < 0) wrong.push(name(e) + " scrolls, and the keyboard does not reach it");
    }
    return wrong;
  };

  const sideways = () => {
    const page = document.scrollingElement;
    if (page.scrollWidth <= innerWidth) return [];
    const wide = all("body *").filter((e) => shown(e) && e.getBoundingClientRect().right > innerWidth + 1).map(name);
    return ["the page is " + page.scrollWidth + " wide, of " + innerWidth + ": " + wide.slice(0, 5)];
  };

  // Where the keyboard is, and whether it can be seen there.
  const focus = () => {
    const e = document.activeElement;
    if (!e || e === document.body) return "";
    const style = getComputedStyle(e);
    const seen = e.matches(":focus-visible") && style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1;
    const r = e.getBoundingClientRect();
    const inView = r.bottom > 0 && r.top < innerHeight && r.right > 0 && r.left < innerWidth;
    return name(e) + " " + brief(e.textContent) + (seen ? "" : ": its focus is not seen") + (inView ? "" : ": it is out of view");
  };
  const stops = () => controls().filter((e) => e.tabIndex >= 0 && !e.disabled).length;

  // In forced colours a button is told from a text by its border alone.
  const borders = () => all("button, a.button, input:not([type=hidden]), textarea, select").filter(shown).filter((e) => {
    const style = getComputedStyle(e);
    return style.borderTopStyle === "none" || parseFloat(style.borderTopWidth) < 1 || e.matches("button") && style.color === style.backgroundColor;
  }).map(name);

  // What is printed has no box that scrolls, and nothing that covers it.
  const print = () => all("main, main *").filter(shown).flatMap((e) => {
    const style = getComputedStyle(e);
    const cut = !e.matches("textarea, input, .hidden, .hidden *") && style.overflow !== "visible" && (e.scrollHeight > e.clientHeight + 1 || e.scrollWidth > e.clientWidth + 1);
    return [...cut ? [name(e) + " is cut"] : [], ...["fixed", "sticky"].includes(style.position) ? [name(e) + " is " + style.position] : []];
  });

  // Whatever is decided about, somebody who has scrolled to a button sees it.
  const reach = () => all("main button, main textarea").filter(shown).flatMap((e) => {
    e.scrollIntoView({ block: "nearest" });
    const r = e.getBoundingClientRect();
    const hit = document.elementFromPoint(r.x + r.width / 2, Math.min(r.y + r.height / 2, innerHeight - 1));
    return hit === e ? [] : [name(e) + " " + brief(e.textContent) + " is under " + (hit ? name(hit) : "nothing")];
  });

  globalThis.looks = { dom, rows, borders, print, reach, marks, buttons, contrast, targets, own, structure, sideways, focus, stops };
})()
