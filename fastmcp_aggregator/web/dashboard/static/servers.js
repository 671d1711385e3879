// The table of servers, what is wrong first, and what is said aloud when one of them changes.

import { fillLogin } from "./accounts.js";
import { history, start } from "./api.js";
import { lately, sparkline, wordsOf } from "./controls.js";
import { byId, element, reconcile, setAttribute, setText } from "./dom.js";
import { mayOperate, openServer } from "./operate.js";
import { count, forTime, offers, STATES, took } from "./words.js";

const COLUMNS = ["Server", "State", "Last hour", "Offers", "Uptime", "Restarts", "Process", "In flight", "Last error"];
const NUMBERS = new Set(["Uptime", "Restarts", "Process", "In flight"]);
// What tells of other callers, too; not shown to those who see their own groups alone.
const OTHERS = new Set(["Process", "In flight", "Last hour"]);
// Whom each of its instances is for, where that is not everybody.
const INSTANCES = { directory: "one for each folder", session: "one for each client" };
const URGENCY = ["failed", "cut off", "starting", "stopped", "running", "sleeping"];
const MOST_ROWS = 200;
const HISTORY_PAUSE = 10_000;

let before = new Map();
let minutes = Object.create(null); // a server may be called `constructor`
let askedAt = -Infinity;
let chosen = "";
let most = MOST_ROWS;
let again = () => {};

/** Bring the table up to date; `age` is how many seconds old the view is. */
export function showServers(view, age) {
  again = () => showServers(view, age);
  const table = byId("servers-table");
  table.classList.toggle("member", !view.viewer.sees_all);
  table.hidden = view.servers.length === 0;
  byId("servers-empty").hidden = view.servers.length > 0;
  showChips(view.servers);
  const words = byId("servers-filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (server) => (!chosen || wordOf(server) === chosen) && words.every((word) => `${server.key} ${server.last_error ?? ""}`.toLowerCase().includes(word));
  const found = sorted(view.servers.filter(fits));
  reconcile(table.tBodies[0], found.slice(0, most), (server) => server.key, makeRow, (row, server) => fillRow(row, server, age, view));
  const rest = byId("servers-rest");
  rest.hidden = found.length <= most;
  setText(rest, `Show ${count(Math.min(MOST_ROWS, found.length - most), "more server")} of ${found.length}`);
  setText(byId("servers-summary"), summary(view.servers));
  showHub(view);
}

/** Ask for the last hour, if it is time. */
export async function refreshHistory(view) {
  if (!view.viewer.sees_all || performance.now() - askedAt < HISTORY_PAUSE) return;
  askedAt = performance.now();
  try {
    minutes = Object.assign(Object.create(null), await history());
    again();
  } catch {
    // It is asked for again.
  }
}

/** Only what runs on: how long a server has been as it is. */
export function tickServers(view, age) {
  for (const server of view.servers) {
    const row = byId("servers-table").tBodies[0].querySelector(`[data-item="${CSS.escape(server.key)}"]`);
    if (row) fillTimes(row, server, age);
  }
}

/** Say which servers are in another state than before. */
export function announceChanges(view) {
  const now = new Map(view.servers.map((server) => [server.key, server.state]));
  const changed = [...now].filter(([key, state]) => before.size > 0 && before.get(key) !== state);
  const gone = [...before.keys()].filter((key) => !now.has(key)).map((key) => `${key} is gone`);
  before = now;
  const said = [...changed.map(([key, state]) => `${key} is ${STATES[state] ?? state}`), ...gone];
  if (said.length) setText(byId("announcer"), said.join(", "));
}

const wordOf = (server) => (server.is_cut_off ? "cut off" : STATES[server.state] ?? server.state);

function sorted(servers) {
  const by = {
    "": (one) => URGENCY.indexOf(wordOf(one)) * 2 - (lately(minutes[one.key] ?? []).failed > 0 ? 1 : 0),
    calls: (one) => -lately(minutes[one.key] ?? []).rate,
    failed: (one) => -lately(minutes[one.key] ?? []).failed,
    slow: (one) => -lately(minutes[one.key] ?? []).p99,
  }[byId("servers-sort").value];
  if (!by) return [...servers].sort((one, other) => one.key.localeCompare(other.key));
  const rank = new Map(servers.map((one) => [one, by(one)]));
  return [...servers].sort((one, other) => rank.get(one) - rank.get(other));
}

function showChips(servers) {
  const counts = new Map();
  for (const server of servers) counts.set(wordOf(server), (counts.get(wordOf(server)) ?? 0) + 1);
  if (chosen && !counts.has(chosen)) chosen = "";
  const chips = [["", servers.length], ...URGENCY.filter((word) => counts.has(word)).map((word) => [word, counts.get(word)])];
  const make = ([word]) => element("button", { type: "button", class: "chip", "data-state": word, onclick: () => { chosen = word; again(); } });
  reconcile(byId("servers-chips"), chips, ([word]) => word || "all", make, (chip, [word, number]) => {
    setText(chip, `${word || "all"} (${number})`);
    setAttribute(chip, "aria-pressed", String(word === chosen));
  });
}

function showHub(view) {
  const place = byId("hub-history");
  place.hidden = !view.viewer.sees_all;
  const found = minutes[""] ?? [];
  const { rate, failed, p99 } = lately(found);
  setText(place.lastElementChild, found.length ? `${rate.toFixed(1)} calls a minute, ${(failed * 100).toFixed(1)} % failed, p99 ${took(p99)}, of the last five minutes` : "No calls in the last hour.");
  if (place.dataset.words !== wordsOf(found)) {
    place.dataset.words = wordsOf(found);
    place.firstElementChild.replaceChildren(sparkline(found));
  }
}

function summary(servers) {
  const running = servers.filter((server) => server.state === "running").length;
  return servers.length === 0 ? "" : `${running} of ${count(servers.length, "server")} running`;
}

function makeRow(server) {
  const classes = (name) => [NUMBERS.has(name) ? "number" : "", OTHERS.has(name) ? "others" : "", { "In flight": "busy", "Last error": "error", "Last hour": "hour" }[name] ?? ""].join(" ").trim() || null;
  const cells = COLUMNS.map((name, number) =>
    element(number === 0 ? "th" : "td", { scope: number === 0 ? "row" : null, "data-column": name, class: classes(name) }));
  const button = element("button", { type: "button", class: "wake", hidden: "" });
  button.addEventListener("click", () => {
    button.disabled = true;
    start("wake", server.key).catch(() => {}).finally(() => { button.disabled = false; });
  });
  const name = element("button", { type: "button", class: "name", "aria-expanded": "false" });
  const row = element("tr", {}, cells);
  name.addEventListener("click", () => {
    if (row.dataset.operates) openServer(row.server);
    else name.setAttribute("aria-expanded", String(row.classList.toggle("open")));
  });
  cells[0].append(name);
  cells[1].append(element("span", { class: "state" }), button, element("span", { class: "beside" }));
  cells[2].append(element("span", { class: "graph" }), element("span", { class: "beside" }));
  cells[3].append(element("a", {}), element("span", { class: "beside" }));
  cells[8].append(element("span", {}), element("span", { class: "troubles" }));
  return row;
}

function fillRow(row, server, age, view) {
  const [key, state, hour, offered, , restarts, process, busy, error] = row.cells;
  row.server = server;
  setAttribute(row, "data-operates", mayOperate(view) ? "yes" : null);
  setText(key.firstChild, server.key);
  setText(offered.lastChild, server.era ?? "");
  setAttribute(offered.lastChild, "title", server.protocol_version ? `MCP ${server.protocol_version}` : null);
  setAttribute(row, "data-state", server.state);
  setText(state.firstChild, wordOf(server));
  setAttribute(state.firstChild, "data-state", server.is_cut_off ? "failed" : server.state);
  state.children[1].hidden = server.state !== "sleeping";
  setText(state.children[1], "Start");
  setAttribute(state.children[1], "aria-label", `Start ${server.key}`);
  fillLogin(state, server, view);
  fillHour(hour, minutes[server.key] ?? []);
  setText(restarts, String(server.restarts));
  setText(offered.firstChild, offers(server) || "–");
  setAttribute(offered.firstChild, "href", server.tools ? `#tools?${encodeURIComponent(server.key)}` : null);
  setText(process, [server.pid ? String(server.pid) : "–", INSTANCES[server.isolation]].filter(Boolean).join(", "));
  setAttribute(process, "title", server.isolation_reason ?? null);
  setText(busy, server.waiting ? `${server.in_flight} + ${server.waiting} waiting` : String(server.in_flight ?? ""));
  busy.toggleAttribute("data-idle", !server.in_flight);
  setText(error.firstChild, server.last_error ?? "");
  setText(error.lastChild, troubles(server));
  fillTimes(row, server, age);
}

function fillHour(cell, found) {
  if (cell.dataset.words === JSON.stringify(found)) return;
  cell.dataset.words = JSON.stringify(found);
  const { rate, failed, p99 } = lately(found);
  cell.firstChild.replaceChildren(...(found.length ? [sparkline(found)] : []));
  setText(cell.lastChild, rate ? [`${rate.toFixed(1)}/min`, failed ? `${(failed * 100).toFixed(0)} % failed` : "", took(p99)].filter(Boolean).join(", ") : "");
}

/** What goes wrong without a failure. */
function troubles(server) {
  const counts = [[server.unanswered, "unanswered request"], [server.ignored_lines, "line that is no MCP", "lines that are no MCP"], [server.dropped_notifications, "dropped notification"], [server.dropped_stderr_lines, "dropped line of stderr", "dropped lines of stderr"], [server.withdrawn?.length, "tool out of service", "tools out of service"]];
  return counts.filter(([number]) => number).map(([number, one, many]) => (number > 1 && many ? `${number} ${many}` : count(number, one))).join(", ");
}

function fillTimes(row, server, age) {
  const [, state, , , uptime] = row.cells;
  const lasted = forTime(server.since + age);
  const isUp = server.state === "running";
  setText(uptime, isUp ? lasted : "–");
  setText(state.lastChild, isUp ? "" : [`for\u00a0${lasted}`, nextTry(server, age), listedSince(server)].filter(Boolean).join(", "));
}

/** When what is listed was read, if the server has not been asked since the hub runs. */
function listedSince(server) {
  return server.catalogue_since === null ? "" : `lists of ${new Date(server.catalogue_since * 1000).toLocaleString()}`;
}

function nextTry(server, age) {
  if (server.retry_in === null) return "";
  const left = server.retry_in - age;
  return left > 0.5 ? `next\u00a0try\u00a0in\u00a0${forTime(left)}` : "next\u00a0try now";
}

byId("servers-filter").addEventListener("input", () => again());
byId("servers-sort").addEventListener("change", () => again());
byId("servers-rest").addEventListener("click", () => { most += MOST_ROWS; again(); });
