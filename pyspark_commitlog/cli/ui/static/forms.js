// Forms of a record's fields: text, JSON, hex; lines of CSV and JSON. Pure, but for the encoder.

const encoder = new TextEncoder();

/** Return a field's bytes in hex. */
export function hexOf(field) {
  if (field.hex !== undefined) return field.hex;
  return Array.from(encoder.encode(field.text), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Return lines of 16 bytes: position, hex, and the characters that are ASCII. */
export function hexLines(hex) {
  const lines = [];
  for (let at = 0; at < hex.length; at += 32) {
    const pairs = hex.slice(at, at + 32).match(/../g);
    const text = pairs.map((pair) => {
      const code = parseInt(pair, 16);
      return code > 31 && code < 127 ? String.fromCharCode(code) : ".";
    });
    lines.push(`${(at / 2).toString(16).padStart(8, "0")}  ${pairs.join(" ").padEnd(47)}  ${text.join("")}`);
  }
  return lines.join("\n");
}

/** Return JSON with line breaks; numbers keep all their digits, as they are not parsed. Null if it is no object or array. */
export function indented(text) {
  if (!/^\s*[[{]/.test(text)) return null;
  try {
    JSON.parse(text);
  } catch {
    return null;
  }
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|[^\s"[\]{},:]+|[[\]{},:]/g);
  let depth = 0;
  let result = "";
  tokens.forEach((token, index) => {
    const opens = token === "{" || token === "[";
    const closes = token === "}" || token === "]";
    const empty = closes && (tokens[index - 1] === "{" || tokens[index - 1] === "[");
    if (closes) depth -= 1;
    if (closes && !empty) result += `\n${"  ".repeat(depth)}`;
    result += token === ":" ? ": " : token;
    if (opens) depth += 1;
    const next = tokens[index + 1];
    if (token === "," || (opens && next !== "}" && next !== "]")) result += `\n${"  ".repeat(depth)}`;
  });
  return result;
}

/** Return a field in one line, for lists. */
export function oneLine(field) {
  if (field === null) return "null";
  return (field.text ?? `0x${field.hex}`).slice(0, 200);
}

/** Return a field in a form: json, text or hex. */
export function formed(field, form) {
  if (field === null) return "null";
  if (form === "hex" && !field.masked) return hexLines(hexOf(field));
  if (field.text === undefined) return hexLines(field.hex);
  return (form === "json" && indented(field.text)) || field.text;
}

/** Return a time as ISO 8601 in UTC; the number if it is beyond what a date can be. */
export function instant(ms) {
  const date = new Date(ms);
  return Number.isNaN(date.getTime()) ? String(ms) : date.toISOString();
}

function plain(field) {
  return field === null ? null : field.text ?? `0x${field.hex}`;
}

/** Return a cell of CSV. A text that a spreadsheet would take for a formula gets ' before it. */
function csvCell(value) {
  if (value === null) return "";
  const text = /^[=+\-@\t\r]/.test(value) && Number.isNaN(Number(value)) ? `'${value}` : String(value);
  return /[",\r\n]/.test(text) || text !== text.trim() ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Return records as CSV, with a line of names. */
export function csvOf(records, columns) {
  const names = ["partition", "offset", "timestamp", "key", ...(columns.length ? columns : ["value"]), "headers"];
  const lines = records.map((record) => [
    record.partition, record.offset, instant(record.timestamp), plain(record.key),
    ...(columns.length ? record.cells.map(plain) : [plain(record.value)]),
    record.headers.length ? JSON.stringify(record.headers.map(([name, field]) => [name, plain(field)])) : null,
  ]);
  return [names, ...lines].map((line) => `${line.map(csvCell).join(",")}\r\n`).join("");
}

/** Return records as JSON lines; the value of a typed topic is an object, other values are strings. */
export function jsonLinesOf(records, columns) {
  return records.map((record) => {
    const { partition, offset, timestamp } = record;
    const headers = record.headers.map(([name, field]) => [name, plain(field)]);
    const head = JSON.stringify({ partition, offset, timestamp, key: plain(record.key), headers });
    const whole = columns.length && record.value.size === encoder.encode(record.value.text ?? "").length;
    const value = whole ? record.value.text : JSON.stringify(plain(record.value));
    return `${head.slice(0, -1)},"value":${value}}\n`;
  }).join("");
}
