// The views of topics and groups.

import { ask, part } from "./api.js";
import { lineChart } from "./charts.js";
import { bytes, count, counted, element, facts, faults, pager, table } from "./dom.js";
import { recordBrowser } from "./records.js";
import { segmentSection } from "./segments.js";
import { rateOf, watched } from "./watch.js";

const ROWS = 50;
const PARTITION_ROWS = 100;
const LAG_SAMPLES = 720;

/** Return the rows of a page of a list; the server sends as many at once as it describes in a second. */
async function listed(path, parameters, signal) {
  const search = parameters.get("search") ?? "";
  const answer = await ask(path, { from: parameters.get("from"), search }, signal);
  while (answer.from + answer.rows.length < answer.pageEnd) {
    const more = await ask(path, { from: answer.from + answer.rows.length, search }, signal);
    if (!more.rows.length) break;
    answer.rows.push(...more.rows.slice(0, answer.pageEnd - answer.from - answer.rows.length));
  }
  return answer;
}

function goTo(view, parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== "" && value !== null);
  location.hash = `#/${view}${given.length ? `?${new URLSearchParams(given)}` : ""}`;
}

function searchForm(view, label, search) {
  return element("form", {
    role: "search",
    onsubmit: (event) => {
      event.preventDefault();
      goTo(view, { search: new FormData(event.target).get("search") });
    },
  },
  element("label", { class: "wide" }, label, element("input", { name: "search", type: "search", value: search })),
  element("button", { class: "main" }, "Find"));
}

function listView(view, title, label, columns, answer, parameters) {
  const search = parameters.get("search") ?? "";
  const failed = answer.rows.filter((row) => row.message);
  const rows = answer.rows.filter((row) => !row.message);
  return [
    element("h1", {}, title),
    searchForm(view, label, search),
    rows.length ? table(counted(answer.total, view.slice(0, -1)), columns, rows) : element("p", {}, search ? "None has such a name." : "There are none."),
    ...failed.map((row) => element("p", { class: "fault" }, `${row.name ?? row.group}: ${row.message}`)),
    pager(view, answer, answer.rows.length, ROWS, (from) => goTo(view, { search, from })),
  ].filter(Boolean);
}

/** Show the topics. */
export async function showTopics(_, parameters, signal) {
  const answer = await listed("topics", parameters, signal);
  const columns = [
    ["Topic", (row) => element("a", { href: `#/topics/${part(row.name)}` }, row.name)],
    ["Partitions", (row) => count(row.partitions), "number"],
    ["Offsets", (row) => count(row.offsets), "number"],
    ["Size", (row) => bytes(row.bytes), "number"],
    ["Unsettled", (row) => count(row.unsettled), "number"],
    ["In sync", (row) => (row.replicas === null ? "–" : `${row.inSync} of ${row.replicas}`), "number"],
    ["Columns", (row) => (row.typed ? "declared" : "key, value")],
    ["State", (row) => (row.faults.length ? element("span", { class: "fault" }, row.faults[0]) : "ok"), "wrap"],
  ];
  return listView("topics", "Topics", "Topics whose name contains", columns, answer, parameters);
}

/** Show the groups. */
export async function showGroups(_, parameters, signal) {
  const answer = await listed("groups", parameters, signal);
  const columns = [
    ["Group", (row) => element("a", { href: `#/groups/${part(row.group)}` }, row.group)],
    ["State", (row) => row.state],
    ["Members", (row) => count(row.members), "number"],
    ["Lag", (row) => count(row.lag), "number"],
    ["Topics", (row) => row.topics.join(", "), "wrap"],
    ["Faults", (row) => (row.faults.length ? element("span", { class: "fault" }, row.faults[0]) : "none"), "wrap"],
  ];
  return listView("groups", "Groups", "Groups whose name contains", columns, answer, parameters);
}

function configs(topic) {
  const names = Object.keys(topic.overrides);
  if (!names.length) return element("p", { class: "muted" }, "All configs have their defaults.");
  return facts(names.map((name) => [name, topic.overrides[name]]));
}

function replication(of) {
  if (!of) return [];
  const columns = [
    ["Replica", (row) => row.url],
    ["Role", (row) => row.role],
    ["Entries to learn", (row) => count(row.entriesBehind), "number"],
    ["Bytes to learn", (row) => bytes(row.bytesBehind), "number"],
    ["Seconds of lag", (row) => (row.msBehind === null ? "–" : (row.msBehind / 1000).toFixed(1)), "number"],
    ["Fault", (row) => row.fault ?? "none", "wrap"],
  ];
  return [
    element("h2", {}, "Replicas"),
    facts([
      ["Leader", of.leader],
      ["Leader epoch", of.leaderEpoch],
      ["ISR", of.isr.join(", ")],
      ["Metadata", of.metadata.map((root) => `${root.url}${root.fault ? ` (${root.fault})` : ""}`).join(", ")],
    ]),
    table("Replicas of the topic", columns, of.replicas),
  ];
}

function schemaTable(schema) {
  if (!schema) return [];
  const columns = [
    ["Column", (row) => row.name],
    ["Type", (row) => row.type],
    ["Nullable", (row) => (row.nullable ? "yes" : "no")],
    ["Role", (row) => [row.name === schema.key ? "key" : "", row.name === schema.timestamp ? "timestamp" : ""].filter(Boolean).join(", ")],
    ["Comment", (row) => row.comment ?? "", "wrap"],
  ];
  return [element("h2", {}, "Columns"), table(`Version ${schema.version} of the columns`, columns, schema.columns)];
}

function partitionTable(caption, columns, { total, from, rows }, go) {
  return [
    table(caption, columns, rows),
    pager("partitions", { total, from }, rows.length, PARTITION_ROWS, go),
  ].filter(Boolean);
}

/** Return what shows a topic's rates: cells of its partitions, and a line for all; each look fills them. */
function rates(topic, look, signal) {
  const cells = new Map();
  const cell = (kind) => (row) => {
    const place = element("span", {}, "–");
    cells.set(`${kind} ${row.partition}`, place);
    return place;
  };
  const line = element("span", { class: "muted" });
  const rowOf = (partition) => (seen) => seen.partitionRows.rows.find((row) => row.partition === partition);
  const draw = (samples) => {
    const all = [rateOf(samples, (seen) => seen.written), rateOf(samples, (seen) => seen.bytes)];
    line.textContent = all[0] === null ? "Rates come with the second look." : `All partitions: ${perSecond(all[0], "records")}, ${perSecond(all[1], "bytes")}.`;
    for (const { partition } of topic.partitionRows.rows) {
      const row = rowOf(partition);
      cells.get(`records ${partition}`).textContent = perSecond(rateOf(samples, (seen) => row(seen)?.highWatermark), "records");
      cells.get(`bytes ${partition}`).textContent = perSecond(rateOf(samples, (seen) => row(seen)?.bytes), "bytes");
    }
  };
  const columns = [["Records/s", cell("records"), "number"], ["Bytes/s", cell("bytes"), "number"]];
  return { columns, bar: () => element("p", { class: "watch" }, watched("Watch rates", topic, look, draw, 2, signal), line) };
}

function perSecond(rate, kind) {
  if (rate === null) return "–";
  return kind === "bytes" ? `${bytes(Math.round(rate))}/s` : `${rate.toLocaleString("en", { maximumFractionDigits: 1 })} records/s`;
}

/** Show a topic: its partitions, configs, columns, replicas, and records. */
export async function showTopic(name, parameters, signal) {
  const look = () => ask(`topics/${part(name)}`, { from: parameters.get("from") }, signal);
  const topic = await look();
  const rate = rates(topic, look, signal);
  const columns = [
    ["Partition", (row) => row.partition, "number"],
    ["Log start offset", (row) => count(row.logStart), "number"],
    ["High watermark", (row) => count(row.highWatermark), "number"],
    ["Log end offset", (row) => count(row.logEnd), "number"],
    ["Segments", (row) => count(row.segments), "number"],
    ["Size", (row) => bytes(row.bytes), "number"],
    ["Unsettled", (row) => count(row.unsettled), "number"],
    ...rate.columns,
  ];
  const { total } = topic.partitionRows;
  const partitions = partitionTable(counted(total, "partition"), columns, topic.partitionRows, (from) => goTo(`topics/${part(name)}`, { from }));
  return [
    element("h1", {}, name),
    element("p", { class: "muted" }, [
      counted(total, "partition"), counted(topic.offsets, "offset"), bytes(topic.bytes),
      topic.replicas === null ? null : `${topic.inSync} of ${topic.replicas} replicas in sync`, topic.maintained,
    ].filter(Boolean).join(" · ")),
    ...faults(topic.faults),
    ...await recordBrowser(topic, parameters, signal),
    element("h2", {}, "Partitions"),
    rate.bar(),
    ...partitions,
    ...segmentSection(topic, signal),
    element("h2", {}, "State"),
    facts([["Settling", topic.backlog], ["Maintenance", topic.maintained], ["Topic id", topic.topicId]]),
    element("h2", {}, "Configs that differ from the defaults"),
    configs(topic),
    ...schemaTable(topic.schema),
    ...replication(topic.replication),
  ];
}

/** Show a group: its members, and its lag by partition. */
export async function showGroup(name, parameters, signal) {
  const look = () => ask(`groups/${part(name)}`, { from: parameters.get("from") }, signal);
  const group = await look();
  const lag = async () => (await look()).lag;
  const chart = element("div");
  const draw = (samples) => {
    const opened = chart.querySelector("details")?.open ?? false;
    const focused = chart.contains(document.activeElement);
    chart.replaceChildren(lineChart("Lag", "record", samples.map(({ at, what }) => ({ at, value: what }))));
    chart.querySelector("details").open = opened;
    if (focused) chart.querySelector("summary").focus({ preventScroll: true });
  };
  const members = [
    ["Member", (row) => row.consumerId],
    ["Host", (row) => row.host],
    ["Instance", (row) => row.instanceId ?? "–"],
    ["Assigned", (row) => count(row.assigned), "number"],
    ["Partitions", (row) => row.partitions, "wrap"],
  ];
  const partitions = [
    ["Topic", (row) => element("a", { href: `#/topics/${part(row.topic)}` }, row.topic)],
    ["Partition", (row) => row.partition, "number"],
    ["Committed offset", (row) => count(row.offset), "number"],
    ["High watermark", (row) => count(row.highWatermark), "number"],
    ["Lag", (row) => count(row.lag), "number"],
    ["Member", (row) => row.member ?? "–"],
  ];
  return [
    element("h1", {}, name),
    ...faults(group.faults),
    facts([
      ["State", group.state],
      ["Lag", counted(group.lag, "record")],
      ["Assignor", group.protocol],
      ["Generation", group.generation],
    ]),
    element("h2", {}, "Lag over time"),
    element("p", { class: "watch" }, watched("Watch lag", group.lag, lag, draw, LAG_SAMPLES, signal)),
    chart,
    element("h2", {}, "Members"),
    group.memberRows.length ? table(counted(group.memberRows.length, "member"), members, group.memberRows) : element("p", {}, "No member is active."),
    element("h2", {}, "Partitions, the largest lag first"),
    ...partitionTable(counted(group.partitionRows.total, "partition"), partitions, group.partitionRows, (from) => goTo(`groups/${part(name)}`, { from })),
  ];
}
