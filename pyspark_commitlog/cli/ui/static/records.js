// The browser of a topic's records.

import { ask, askBlob, part } from "./api.js";
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
function queryOf({ start, at, ...values }) {
  const query = filtersOf(values);
  if (start === "newest") query.newest = "1";
  if (start === "offset" || start === "time") query[start] = at || "0";
  return query;
}

function filtersOf({ partition, limit, filter, search, key, everywhere, path, header }) {
  return { partition, limit, filter, search, key, everywhere, path, header };
}

/** Return the cursor of records, and the offsets after them: partition:offset, by partition. */
function rangeOf(records) {
  const first = new Map();
  const after = new Map();
  for (const { partition, offset } of records) {
    first.set(partition, Math.min(offset, first.get(partition) ?? offset));
    after.set(partition, Math.max(offset + 1, after.get(partition) ?? 0));
  }
  const text = (offsets) => Array.from(offsets, (pair) => pair.join(":")).join(",");
  return { cursor: text(first), end: text(after) };
}

/** Return the elements of the browser, with the first page. */
export async function recordBrowser(topic, parameters, signal) {
  const browser = new RecordBrowser(topic, parameters, signal);
  await browser.start();
  return browser.elements;
}

class RecordBrowser {
  constructor(topic, parameters, signal) {
    this.topic = topic;
    this.signal = signal;
    this.records = [];
    this.page = null;
    this.filters = {};
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
        element("button", { type: "button", onclick: save("jsonl") }, "Save as JSON lines"),
        element("button", { type: "button", onclick: () => this.saveParquet() }, "Save as Parquet")),
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
      field("key", "Key is", { value: given("key"), spellcheck: "false" }),
      element("label", { class: "inline" }, element("input", { type: "checkbox", name: "everywhere", checked: given("everywhere") !== "" }), "Key in all partitions"),
      field("search", "Key or value contains", { type: "search", value: given("search") }, "wide"),
      field("filter", "Filter in SQL", { value: given("filter"), spellcheck: "false", placeholder: this.topic.typed ? "price > 1.5 AND user = 'ada'" : "key = 'ada' AND offset > 100" }, "wide"),
      field("path", "JSON path", { value: given("path"), spellcheck: "false", placeholder: "$.user.city = Berlin" }, "wide"),
      field("header", "Header", { value: given("header"), spellcheck: "false", placeholder: "name=value, or name" }, "wide"),
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
    await this.start();
  }

  /** Show the page that the form asks for; its filters are those of the pages before and after it. */
  start() {
    const values = this.values();
    this.filters = filtersOf(values);
    return this.load(queryOf(values));
  }

  turn(which) {
    this.form.elements.follow.checked = false;
    return this.load({ ...this.filters, cursor: this.page[which] });
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
      const before = this.page;
      try {
        const page = await ask(`topics/${part(this.topic.name)}/records`, { ...this.filters, cursor: before.next }, this.signal);
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
    const { scanned, ended, previous, keyPartition } = this.page;
    const searched = scanned > this.records.length ? ` of ${count(scanned)} offsets` : "";
    this.summary.textContent = `${counted(shown.length, "record")}${searched}${ended ? ", up to the high watermark" : "; more follow"}${keyPartition === null ? "" : `. ${onePartition(keyPartition)}`}`;
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
    this.download(new Blob([text], { type: kind === "csv" ? "text/csv" : "application/jsonl" }), kind);
  }

  /** Save the records that are shown with their whole values, which the server reads again. */
  async saveParquet() {
    try {
      if (!this.records.length) throw new Error("there are no records to save");
      const { filter, search, key, path, header } = this.filters;
      const query = { filter, search, key, path, header, ...rangeOf(this.records) };
      this.download(await askBlob(`topics/${part(this.topic.name)}/parquet`, query, this.signal), "parquet");
    } catch (error) {
      if (!this.signal.aborted) say(error.message);
    }
  }

  download(blob, kind) {
    const url = URL.createObjectURL(blob);
    element("a", { href: url, download: `${this.topic.name}.${kind}` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }
}

function onePartition(partition) {
  return `Only partition ${partition} was searched, where Kafka's default partitioner puts the key. `
    + "“Key in all partitions” also finds records with another partitioner, a given partition, or from before partitions were added.";
}

function recordBody(record, form) {
  const kind = record.timestampType ? "LogAppendTime" : "CreateTime";
  return element("div", {},
    element("p", { class: "muted" }, `partition ${record.partition}, offset ${record.offset}, ${instant(record.timestamp)} (${kind})`),
    fieldBlock("Key", record.key, form),
    fieldBlock("Value", record.cells && record.value ? { ...record.value, size: null } : record.value, form),
    record.headers.map(([name, each]) => fieldBlock(`Header ${name}`, each, form)));
}

function fieldBlock(name, each, form) {
  const size = each === null || each.size === null ? "" : counted(each.size, "byte");
  const about = [size, each?.cut ? "cut" : ""].filter(Boolean).join(", ");
  return [element("p", {}, element("strong", {}, name), about && ` (${about})`), element("pre", {}, formed(each, form))];
}
