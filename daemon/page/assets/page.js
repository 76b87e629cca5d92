// Replaces parts of the page by those that the server sends. All that is shown becomes a text node, or an attribute of
// the list below; no text is ever parsed as HTML, and none is run.
"use strict";
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const SVG_TAGS = new Set(["svg", "rect", "path", "line"]);
  const TAGS = new Set(["b", "dd", "div", "dl", "dt", "h2", "li", "p", "section", "span", "table", "tbody", "td",
    "th", "thead", "time", "tr", "ul"]);
  const ATTRIBUTES = new Set(["aria-hidden", "aria-label", "class", "d", "datetime", "height", "id",
    "preserveAspectRatio", "role", "scope", "viewBox", "width", "x", "x2", "y", "y1", "y2"]);
  const AGAIN_MS = 10000;
  const SILENCE_MS = 15000;
  const live = document.getElementById("live");
  let last = 0;

  function build(node) {
    const [tag, attributes, ...content] = node;
    const svg = SVG_TAGS.has(tag);
    if (!svg && !TAGS.has(tag)) return document.createElement("span");
    const element = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (ATTRIBUTES.has(name)) element.setAttribute(name, value);
    }
    if (content.length === 1 && typeof content[0] === "string") {
      element.textContent = content[0];
    } else {
      element.append(...content.map((child) => typeof child === "string" ? child : build(child)));
    }
    return element;
  }

  function localTimes(root) {
    const form = { year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" };
    for (const element of root.querySelectorAll("time")) {
      const time = new Date(element.dateTime);
      if (!Number.isNaN(time.getTime())) element.textContent = time.toLocaleString(undefined, form);
    }
  }

  function show(event) {
    const part = build(JSON.parse(event.data));
    localTimes(part);
    const old = document.getElementById(part.id);
    // A part that was not there yet, such as those of a node at its first answer, has its place in the page as a whole.
    if (old) old.replaceWith(part); else location.reload();
    last = Date.now();
    live.textContent = "live";
  }

  function connect() {
    const events = new EventSource("/events");
    events.addEventListener("part", show);
    events.addEventListener("error", () => {
      live.textContent = "not live: the connection is made again";
      // Refused, as there are too many viewers: the page as a whole is read once in a while instead.
      if (events.readyState === EventSource.CLOSED) setTimeout(() => location.reload(), AGAIN_MS);
    });
  }

  setInterval(() => {
    if (last > 0 && Date.now() - last > SILENCE_MS) live.textContent = "not live: the server sends nothing";
  }, AGAIN_MS / 2);
  localTimes(document);
  connect();
})();
