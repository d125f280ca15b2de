// Segments of a topic's partitions to scale, and what maintenance has done and will do.

import { ask, part } from "./api.js";
import { segmentBar } from "./charts.js";
import { bytes, count, counted, element, faults, pager, table } from "./dom.js";
import { instant } from "./forms.js";

const SEGMENT_ROWS = 20;

/** Return the section; it asks for the segments of some partitions once it is there. */
export function segmentSection(topic, signal) {
  const place = element("div", {}, element("p", { class: "muted" }, "Loading …"));
  load(topic, 0, place, signal);
  return [element("h2", {}, "Segments and maintenance"), element("p", { class: "muted" }, maintenance(topic)), place];
}

function maintenance(topic) {
  return `Last: ${topic.maintained}. Now: ${topic.backlog}. Below are the segments, what is due, and what the last runs did.`;
}

async function load(topic, from, place, signal) {
  try {
    const page = await ask(`topics/${part(topic.name)}/segments`, { from }, signal);
    if (!signal.aborted) place.replaceChildren(...drawn(page, (start) => load(topic, start, place, signal)));
  } catch (error) {
    if (!signal.aborted) place.replaceChildren(element("p", { class: "fault" }, error.message));
  }
}

function drawn(page, go) {
  const whole = Math.max(...page.rows.map((row) => row.bytes + row.unsettledBytes), 1);
  return [
    ...faults(page.failures),
    element("div", { class: "bars" }, page.rows.map((row) => element("div", {}, element("span", { class: "muted" }, row.partition), segmentBar(row, whole)))),
    element("p", { class: "legend" },
      ...[["segment", "segment"], ["segment active", "active segment"], ["segment due", "due to be deleted"], ["unsettled", "not settled yet"]]
        .map(([kind, text]) => element("span", {}, element("span", { class: `key ${kind}` }), text)),
      `The full width is ${bytes(whole)}.`),
    workTable(page.rows),
    pager("segments", page, page.rows.length, SEGMENT_ROWS, go),
    runTable(page.runs),
    element("details", {}, element("summary", { class: "more" }, "Segments as a table"), element("div", {}, segmentTable(page.rows))),
  ].filter(Boolean);
}

function workTable(rows) {
  const columns = [
    ["Partition", (row) => row.partition, "number"],
    ["Next maintenance", (row) => row.due.join("; ") || "nothing is due", "wrap"],
    ["Segments", (row) => count(row.segments.length + row.earlier.segments), "number"],
    ["Settled", (row) => bytes(row.bytes), "number"],
    ["Waiting", (row) => bytes(row.unsettledBytes), "number"],
    ["Settled below", (row) => count(row.settledEnd), "number"],
    ["Deleted below", (row) => count(row.logStart), "number"],
    ["Compacted below", (row) => count(row.cleaned), "number"],
  ];
  return table(`Maintenance of ${counted(rows.length, "partition")}`, columns, rows);
}

function runTable(runs) {
  const columns = [
    ["At", (run) => instant(run.at)],
    ["Maintenance", (run) => run.did.join("; "), "wrap"],
  ];
  return runs.length ? table(`${counted(runs.length, "run")} of maintenance that did something`, columns, runs) : null;
}

function segmentTable(rows) {
  const segments = rows.flatMap((row) => row.segments.map((each) => ({ ...each, partition: row.partition })));
  const columns = [
    ["Partition", (each) => each.partition, "number"],
    ["Base offset", (each) => count(each.base), "number"],
    ["Records below", (each) => count(each.end), "number"],
    ["Size", (each) => bytes(each.bytes), "number"],
    ["Latest record", (each) => (each.latest === null ? "–" : instant(each.latest))],
    ["State", (each) => [each.active ? "active" : "sealed", each.due ? "due to be deleted" : ""].filter(Boolean).join(", ")],
  ];
  const earlier = rows.filter((row) => row.earlier.segments)
    .map((row) => element("p", {}, `Partition ${row.partition} has ${counted(row.earlier.segments, "earlier segment")} with ${bytes(row.earlier.bytes)}.`));
  return [table(counted(segments.length, "segment"), columns, segments), ...earlier];
}
