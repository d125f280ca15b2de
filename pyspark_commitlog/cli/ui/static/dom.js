// Builds elements. Strings become text nodes: nothing that a log holds is ever parsed as HTML.

/** Return an element with attributes (`onclick` and the like are listeners) and children; null is left out. */
export function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(key.slice(2), value);
    else if (value === true) node.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(key, String(value));
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined).map(asNode));
  return node;
}

function asNode(child) {
  return child instanceof Node ? child : document.createTextNode(String(child));
}

/** Return a table inside a region that scrolls; a column is [title, cell of a row, class]. */
export function table(caption, columns, rows) {
  const head = columns.map(([title, , kind]) => element("th", { scope: "col", class: kind }, title));
  const body = rows.map((row) =>
    element("tr", {}, columns.map(([, cell, kind], index) =>
      element(index ? "td" : "th", { class: kind, scope: index ? null : "row" }, cell(row)))));
  return element("div", { class: "scroll", role: "region", "aria-label": caption, tabindex: 0 },
    element("table", {},
      element("caption", {}, caption),
      element("thead", {}, element("tr", {}, head)),
      element("tbody", {}, body)));
}

/** Return a list of names and values; values that are null are left out. */
export function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return element("dl", {}, shown.map(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
}

/** Return faults as paragraphs. */
export function faults(texts) {
  return texts.map((text) => element("p", { class: "fault" }, text));
}

/** Return buttons to the pages before and after the rows from `from` on; `go` gets the first row. */
export function pager(what, { total, from }, shown, most, go) {
  if (total <= shown && from === 0) return null;
  return element("div", { class: "buttons" },
    element("button", { type: "button", disabled: from === 0, onclick: () => go(Math.max(0, from - most)) }, `Previous ${what}`),
    element("button", { type: "button", disabled: from + shown >= total, onclick: () => go(from + shown) }, `Next ${what}`),
    element("span", { class: "muted" }, `${from + 1} to ${from + shown} of ${count(total)}`));
}

/** Return a number with separators; a dash for null. */
export function count(number) {
  return number === null || number === undefined ? "–" : number.toLocaleString("en");
}

/** Return a number with its noun: 1 topic, 2 topics. */
export function counted(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}

/** Return bytes in a unit. */
export function bytes(number) {
  if (number === null || number === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  let size = number;
  while (Math.abs(size) >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${unit ? size.toFixed(1) : size} ${units[unit]}`;
}

/** Say something in the status line, which screen readers announce. */
export function say(text) {
  document.getElementById("status").textContent = text;
}
