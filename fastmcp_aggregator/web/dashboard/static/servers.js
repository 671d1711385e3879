// The table of servers, and what is said aloud when one of them changes.

import { start } from "./api.js";
import { byId, element, reconcile, setAttribute, setText } from "./dom.js";
import { count, forTime, offers, STATES } from "./words.js";

const COLUMNS = ["Server", "State", "Era", "Uptime", "Restarts", "Offers", "Process", "In flight", "Last error"];
const NUMBERS = new Set(["Uptime", "Restarts", "Process", "In flight"]);
// What tells of other callers, too; not shown to those who see their own groups alone.
const OTHERS = new Set(["Process", "In flight"]);
// Whom each of its instances is for, where that is not everybody.
const INSTANCES = { directory: "one for each folder", session: "one for each client" };

let before = new Map();

/** Bring the table up to date; `age` is how many seconds old the view is. */
export function showServers(view, age) {
  const table = byId("servers-table");
  table.classList.toggle("member", !view.viewer.sees_all);
  table.hidden = view.servers.length === 0;
  table.nextElementSibling.hidden = view.servers.length > 0;
  reconcile(table.tBodies[0], view.servers, (server) => server.key, makeRow, (row, server) => fillRow(row, server, age, view.viewer.sees_all));
  setText(byId("servers-summary"), summary(view.servers));
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

function summary(servers) {
  const running = servers.filter((server) => server.state === "running").length;
  return servers.length === 0 ? "" : `${running} of ${count(servers.length, "server")} running`;
}

function makeRow() {
  const cells = COLUMNS.map((name, number) =>
    element(number === 0 ? "th" : "td", {
      scope: number === 0 ? "row" : null,
      "data-column": name,
      class: [NUMBERS.has(name) ? "number" : "", OTHERS.has(name) ? "others" : "", name === "In flight" ? "busy" : "", name === "Last error" ? "error" : ""].join(" ").trim() || null,
    }));
  const button = element("button", { type: "button", class: "wake", hidden: "" });
  button.addEventListener("click", () => {
    button.disabled = true;
    start(button.dataset.how, button.closest("tr").dataset.item).catch(() => {}).finally(() => { button.disabled = false; });
  });
  cells[1].append(element("span", { class: "state" }), button, element("span", { class: "beside" }));
  cells[5].append(element("a", {}));
  cells[8].append(element("span", {}), element("span", { class: "troubles" }));
  return element("tr", {}, cells);
}

function fillRow(row, server, age, mayRestart) {
  const [key, state, era, , restarts, offered, process, busy, error] = row.cells;
  setText(key, server.key);
  setAttribute(row, "data-state", server.state);
  setText(state.firstChild, server.is_cut_off ? "cut off" : STATES[server.state] ?? server.state);
  setAttribute(state.firstChild, "data-state", server.is_cut_off ? "failed" : server.state);
  fillButton(state.children[1], server, mayRestart);
  setText(era, server.era ? server.era : "–");
  setAttribute(era, "title", server.protocol_version ? `MCP ${server.protocol_version}` : null);
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

function fillButton(button, server, mayRestart) {
  const sleeps = server.state === "sleeping";
  const word = sleeps ? "Start" : "Restart";
  button.hidden = !sleeps && !mayRestart;
  button.dataset.how = sleeps ? "wake" : "restart";
  setText(button, word);
  setAttribute(button, "aria-label", `${word} ${server.key}`);
}

/** What goes wrong without a failure. */
function troubles(server) {
  const counts = [[server.unanswered, "unanswered request"], [server.ignored_lines, "line that is no MCP", "lines that are no MCP"], [server.dropped_notifications, "dropped notification"]];
  return counts.filter(([number]) => number).map(([number, one, many]) => (number > 1 && many ? `${number} ${many}` : count(number, one))).join(", ");
}

function fillTimes(row, server, age) {
  const [, state, , uptime] = row.cells;
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
