// The browser of a topic's records.

import { ask, part } from "./api.js";
import { count, counted, element, say, table } from "./dom.js";
import { csvOf, formed, instant, jsonLinesOf, oneLine } from "./forms.js";

const FOLLOW_MS = 2000;
const MOST_SHOWN = 500;
const MOST_PARTITIONS = 100;
const STARTS = [["newest", "Newest"], ["beginning", "Beginning"], ["offset", "Offset"], ["time", "Time"]];

function field(name, label, options = {}, kind = "") {
  return element("label", { class: kind }, label, element("input", { name, ...options }));
}

function select(name, label, choices, chosen) {
  const options = choices.map(([value, text]) => element("option", { value, selected: value === chosen }, text));
  return element("label", {}, label, element("select", { name }, options));
}

/** Return the parameters of the API for what a form has. */
function queryOf({ partition, start, at, limit, filter, search }) {
  const query = { partition, limit, filter, search };
  if (start === "newest") query.newest = "1";
  if (start === "offset" || start === "time") query[start] = at || "0";
  return query;
}

/** Return the elements of the browser, with the first page. */
export async function recordBrowser(topic, parameters, signal) {
  const browser = new RecordBrowser(topic, parameters, signal);
  await browser.load(queryOf(browser.values()));
  return browser.elements;
}

class RecordBrowser {
  constructor(topic, parameters, signal) {
    this.topic = topic;
    this.signal = signal;
    this.records = [];
    this.page = null;
    this.timer = null;
    this.form = this.buildForm(parameters);
    this.list = element("div");
    this.summary = element("p", { class: "muted", role: "status" });
    this.older = element("button", { type: "button", onclick: () => this.turn("previous") }, "Older");
    this.newer = element("button", { type: "button", onclick: () => this.turn("next") }, "Newer");
    const save = (kind) => () => this.save(kind);
    this.elements = [
      element("h2", {}, "Records"),
      this.form,
      this.summary,
      this.list,
      element("div", { class: "buttons" },
        this.older,
        this.newer,
        element("button", { type: "button", onclick: save("csv") }, "Save as CSV"),
        element("button", { type: "button", onclick: save("jsonl") }, "Save as JSON lines")),
    ];
    signal.addEventListener("abort", () => clearTimeout(this.timer));
  }

  buildForm(parameters) {
    const given = (name, otherwise = "") => parameters.get(name) ?? otherwise;
    const first = this.topic.partitions > MOST_PARTITIONS ? "0" : "";
    const forms = [["json", "JSON"], ["text", "Text"], ["hex", "Hex"]];
    if (this.topic.typed) forms.push(["columns", "Columns"]);
    const form = element("form", { onsubmit: (event) => this.submit(event), "aria-label": "Records to show" },
      select("start", "Start at", STARTS, given("start", "newest")),
      field("at", "Offset, or time as 2026-01-31T12:00 or -1h", { value: given("at") }),
      field("partition", "Partition (all without)", { type: "number", min: 0, max: this.topic.partitions - 1, value: given("partition", first) }),
      field("limit", "Records", { type: "number", min: 1, max: MOST_SHOWN, value: given("limit", "50") }),
      field("search", "Key or value contains", { type: "search", value: given("search") }, "wide"),
      field("filter", "Filter in SQL", { value: given("filter"), spellcheck: "false", placeholder: this.topic.typed ? "price > 1.5 AND user = 'ada'" : "key = 'ada' AND offset > 100" }, "wide"),
      select("form", "Show as", forms, given("form", this.topic.typed ? "columns" : "json")),
      element("button", { class: "main" }, "Show"),
      element("label", { class: "inline" }, element("input", { type: "checkbox", name: "follow", onchange: () => this.follow() }), "Follow"));
    form.elements.form.addEventListener("change", () => this.draw());
    return form;
  }

  values() {
    return Object.fromEntries(new FormData(this.form));
  }

  async submit(event) {
    event.preventDefault();
    const { follow, ...values } = this.values();
    const given = Object.entries(values).filter(([, value]) => value !== "");
    history.replaceState(null, "", `#/topics/${part(this.topic.name)}?${new URLSearchParams(given)}`);
    await this.load(queryOf(values));
  }

  turn(which) {
    this.form.elements.follow.checked = false;
    const { limit, filter, search } = this.values();
    return this.load({ cursor: this.page[which], limit, filter, search });
  }

  /** Show a page, or why there is none. */
  async load(query) {
    try {
      this.page = await ask(`topics/${part(this.topic.name)}/records`, query, this.signal);
      this.records = this.page.records;
      this.draw();
    } catch (error) {
      if (this.signal.aborted) return;
      this.list.replaceChildren(element("p", { class: "fault", role: "alert" }, error.message));
      this.summary.textContent = "";
      this.older.disabled = this.newer.disabled = true;
    }
  }

  /** Ask for what has come since, until the box is cleared or the view changes. */
  follow() {
    clearTimeout(this.timer);
    if (!this.form.elements.follow.checked || this.signal.aborted || this.page === null) return;
    this.timer = setTimeout(async () => {
      const { limit, filter, search } = this.values();
      const before = this.page;
      try {
        const page = await ask(`topics/${part(this.topic.name)}/records`, { cursor: before.next, limit, filter, search }, this.signal);
        if (this.page !== before) return this.follow(); // another page is shown by now
        this.page = { ...page, previous: before.previous };
        this.records = [...this.records, ...page.records].slice(-MOST_SHOWN);
        if (page.records.length) this.draw();
      } catch (error) {
        if (!this.signal.aborted) say(error.message);
      }
      return this.follow();
    }, FOLLOW_MS);
  }

  draw() {
    const { start, form } = this.values();
    const shown = start === "newest" ? [...this.records].reverse() : this.records;
    const opened = new Set(Array.from(this.list.querySelectorAll("details[open]"), (each) => each.dataset.place));
    const drawn = form === "columns" ? this.columnTable(shown) : this.recordList(shown, form, opened);
    const focused = document.activeElement.closest(".records details")?.dataset.place;
    this.list.replaceChildren(shown.length ? drawn : element("p", {}, "No records."));
    if (focused) this.list.querySelector(`details[data-place="${focused}"] > summary`)?.focus({ preventScroll: true });
    const { scanned, ended, previous } = this.page;
    const searched = scanned > this.records.length ? ` of ${count(scanned)} offsets` : "";
    this.summary.textContent = `${counted(shown.length, "record")}${searched}${ended ? ", up to the high watermark" : "; more follow"}`;
    this.older.disabled = previous === null;
    this.newer.disabled = ended;
  }

  recordList(records, form, opened) {
    return element("ul", { class: "records" }, records.map((record) => {
      const place = `${record.partition}:${record.offset}`;
      const details = element("details", { "data-place": place, open: opened.has(place) },
        element("summary", {},
          element("span", { class: "place" }, place),
          element("time", { datetime: instant(record.timestamp) }, instant(record.timestamp)),
          element("span", { class: "preview" }, record.key === null ? "" : `${oneLine(record.key)}: `, oneLine(record.value))));
      const fill = () => {
        if (details.open && details.childElementCount === 1) details.append(recordBody(record, form));
      };
      details.addEventListener("toggle", fill);
      fill();
      return element("li", {}, details);
    }));
  }

  columnTable(records) {
    const columns = [
      ["Partition", (record) => record.partition, "number"],
      ["Offset", (record) => record.offset, "number"],
      ["Time", (record) => instant(record.timestamp)],
      ...this.page.columns.map((name, index) => [name, (record) => oneLine(record.cells[index]), "cell"]),
    ];
    return table(`Records of ${this.topic.name}`, columns, records);
  }

  save(kind) {
    if (this.page === null) return;
    const text = (kind === "csv" ? csvOf : jsonLinesOf)(this.records, this.page.columns);
    const url = URL.createObjectURL(new Blob([text], { type: kind === "csv" ? "text/csv" : "application/jsonl" }));
    element("a", { href: url, download: `${this.topic.name}.${kind}` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }
}

function recordBody(record, form) {
  const kind = record.timestampType ? "LogAppendTime" : "CreateTime";
  return element("div", {},
    element("p", { class: "muted" }, `partition ${record.partition}, offset ${record.offset}, ${instant(record.timestamp)} (${kind})`),
    fieldBlock("Key", record.key, form),
    fieldBlock("Value", record.value, form),
    record.headers.map(([name, each]) => fieldBlock(`Header ${name}`, each, form)));
}

function fieldBlock(name, each, form) {
  const size = each === null || each.size === null ? "" : ` (${counted(each.size, "byte")}${each.cut ? ", cut" : ""})`;
  return [element("p", {}, element("strong", {}, name), size), element("pre", {}, formed(each, form))];
}
