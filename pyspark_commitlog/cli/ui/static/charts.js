// Drawings in SVG, by attributes and classes alone: the policy of the page allows no inline style. Each has its text.

import { bytes, count, counted, element, table } from "./dom.js";
import { instant } from "./forms.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 1000;
const BAR = 24;
const HEIGHT = 200;
const MOST_ROWS = 100;

function shape(name, attributes, ...children) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, String(value));
  node.append(...children);
  return node;
}

function drawing(label, height, kind, shapes) {
  return shape("svg", { viewBox: `0 0 ${WIDTH} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label, class: kind }, ...shapes);
}

/** Return the blocks of a partition, in order: class, bytes, and what they are. */
export function blocksOf(row) {
  const blocks = row.segments.map((each) => [
    ["segment", each.active ? "active" : "", each.due ? "due" : ""].filter(Boolean).join(" "),
    each.bytes,
    `${each.active ? "active segment" : "segment"} ${each.base}: offsets ${each.base} to ${each.end - 1}, ${bytes(each.bytes)}${each.due ? ", due to be deleted" : ""}`,
  ]);
  if (row.earlier.segments) blocks.unshift(["segment earlier", row.earlier.bytes, `${counted(row.earlier.segments, "earlier segment")}, ${bytes(row.earlier.bytes)}`]);
  if (row.unsettledBytes) blocks.push(["unsettled", row.unsettledBytes, `${counted(row.unsettled, "record")} not settled yet, about ${bytes(row.unsettledBytes)}`]);
  return blocks;
}

/** Return a partition's segments, and what is not settled, as a bar; `whole` bytes have the full width. */
export function segmentBar(row, whole) {
  let at = 0;
  const shapes = blocksOf(row).map(([kind, size, text]) => {
    const width = (size / Math.max(1, whole)) * WIDTH;
    const block = shape("rect", { x: at.toFixed(2), y: 0, width: width.toFixed(2), height: BAR, class: kind }, shape("title", {}, text));
    at += width;
    return block;
  });
  const segments = row.segments.length + row.earlier.segments;
  const label = `Partition ${row.partition}: ${counted(segments, "segment")} with ${bytes(row.bytes)}, about ${bytes(row.unsettledBytes)} not settled yet`;
  return drawing(label, BAR, "segments", shapes);
}

/** Return the points of a line in the drawing: the oldest at the left, 0 at the bottom. */
export function linePoints(samples) {
  const [first, last] = [samples[0].at, samples[samples.length - 1].at];
  const most = Math.max(1, ...samples.map((each) => each.value));
  return samples.map(({ at, value }) => {
    const x = last > first ? ((at - first) / (last - first)) * WIDTH : WIDTH;
    return `${x.toFixed(1)},${(HEIGHT - (value / most) * (HEIGHT - 4) - 2).toFixed(1)}`;
  }).join(" ");
}

/** Return samples (`at` in ms since 1970, `value`) as a line with its summary, and as a table with the newest first. */
export function lineChart(name, noun, samples) {
  const values = samples.map((each) => each.value);
  const last = samples[samples.length - 1];
  const text = `${name}: ${counted(last.value, noun)} now, at least ${count(Math.min(...values))}, at most ${count(Math.max(...values))}, in ${counted(samples.length, "look")} since ${instant(samples[0].at)}`;
  const columns = [["Time", (each) => instant(each.at)], [name, (each) => count(each.value), "number"]];
  return element("figure", {},
    drawing(text, HEIGHT, "line", [shape("polyline", { points: linePoints(samples) })]),
    element("figcaption", {}, text),
    element("details", {}, element("summary", { class: "more" }, `${name} as a table`),
      element("div", {}, table(`${name} over time, the newest first`, columns, samples.slice(-MOST_ROWS).reverse()))));
}
