// What operators see and do: a server's stderr, its restart and its end, the keys, and definitions that are not as pinned.

import { ask, operate } from "./api.js";
import { asked, copyButton, dialog } from "./controls.js";
import { byId, element, setText } from "./dom.js";
import { count } from "./words.js";

const MOST_ROWS = 200, MOST_DIFFERENCES = 50;

let keys = [];

export const mayOperate = (view) => view.viewer.roles.includes("operate");

/** What can be done with a server, and the last it has written to stderr. */
export function openServer(server) {
  const lines = element("pre", { class: "block stderr", tabindex: "0" }, "Loading…");
  const told = element("p", { class: "problem", role: "status" });
  const act = (how, question) => element("button", { type: "button", class: how === "stop" ? "danger" : null, onclick: () => done(how, question) }, how === "stop" ? "Stop" : server.state === "stopped" || server.state === "sleeping" ? "Start" : "Restart");
  const again = element("button", { type: "button", class: "quiet", onclick: load }, "Load again");
  const facts = [["Era", server.era], ["Protocol", server.protocol_version], ["Process", server.pid], ["Restarts", server.restarts], ["In flight", server.in_flight], ["Waiting", server.waiting], ["Instances for", server.isolation], ["Why", server.isolation_reason]];
  dialog(server.key,
    element("dl", { class: "facts" }, facts.filter(([, value]) => value !== null && value !== undefined && value !== "").flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, String(value))])),
    server.last_error ? element("p", { class: "notice bad" }, server.last_error) : null,
    element("p", { class: "actions" }, act("restart", `Restart ${server.key}? The calls that it is answering fail.`),
      server.state === "stopped" ? null : act("stop", `Stop ${server.key}? Its calls fail until it is started again.`), told),
    server.withdrawn?.length ? outOfService(server) : null,
    element("div", { class: "heading" }, element("h3", {}, "stderr"), again, copyButton(() => lines.textContent)), lines);
  load();

  async function load() {
    try {
      const answer = await (await ask(`stderr/${encodeURIComponent(server.key)}`)).json();
      setText(lines, answer.lines?.length ? answer.lines.join("\n") : "Nothing was written.");
      lines.scrollTop = lines.scrollHeight;
    } catch (error) {
      setText(lines, error.message);
    }
  }
  async function done(how, question) {
    if (!(await asked(question, how === "stop" ? "Stop" : "Restart"))) return;
    try {
      await operate(how, server.key);
      setText(told, how === "stop" ? "It is being stopped." : "It is being restarted.");
    } catch (error) {
      setText(told, error.message);
    }
  }
}

/** The tools of a server that are out of service; one that is put back is no longer among them. */
function outOfService(server) {
  const rows = server.withdrawn.slice(0, MOST_ROWS).map((tool) => {
    const row = element("li", {}, element("code", {}, tool), " ", serviceButton(server.key, tool, true, () => row.remove()));
    return row;
  });
  const more = server.withdrawn.length - rows.length;
  return element("section", { class: "withdrawn" }, element("h3", {}, "Out of service"), element("ul", {}, rows), more > 0 ? element("p", {}, `and ${more} more`) : null);
}

/** A button that takes a tool out of service, or puts it back; `done` is called when that is done. */
export function serviceButton(server, tool, isOut, done = () => {}) {
  const button = element("button", { type: "button", class: "quiet", onclick: act }, isOut ? "Put back into service" : "Take out of service");
  async function act() {
    if (!isOut && !(await asked(`Take ${tool} of ${server} out of service? Nobody can call it until it is put back, or the hub is restarted.`, "Take it out"))) return;
    try {
      await operate(isOut ? "reinstate" : "withdraw", server, { tool });
      done();
    } catch (error) {
      setText(button, error.message);
    }
  }
  return button;
}

/** The keys, and what is not as pinned. */
export async function showOperator() {
  const [found, pins] = await Promise.all(["keys", "pins"].map(async (path) => (await ask(path)).json()));
  keys = found.keys;
  showKeys();
  const servers = [...new Set(pins.differences.map((one) => one.server))];
  setText(byId("pins-summary"), pins.is_on ? (servers.length ? "" : "Everything is as pinned.") : "Pins are off.");
  byId("pins-list").replaceChildren(...servers.slice(0, MOST_ROWS).map((key) => pinned(key, pins.offers[key], pins.differences.filter((one) => one.server === key))));
}

function showKeys() {
  const words = byId("keys-filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (key) => words.every((word) => `${key.name} ${key.id} ${key.roles.join(" ")} ${(key.groups ?? ["all"]).join(" ")}`.toLowerCase().includes(word));
  const shown = keys.filter(fits).slice(0, MOST_ROWS);
  byId("keys-table").tBodies[0].replaceChildren(...shown.map((key) => element("tr", {},
    element("th", { scope: "row", "data-column": "Name" }, key.name, " ", element("code", {}, key.id)),
    element("td", { "data-column": "Roles" }, key.roles.join(", ")),
    element("td", { "data-column": "Groups" }, key.groups === null ? "all" : key.groups.join(", ")),
    element("td", { "data-column": "Last used" }, key.last_used ? new Date(key.last_used).toLocaleString() : "not since the start"),
    element("td", { "data-column": "Expires" }, key.expires ? new Date(key.expires).toLocaleDateString() : "never"))));
  const all = keys.length ? count(keys.length, "key") : "No keys.";
  setText(byId("keys-summary"), shown.length === keys.length ? all : `${shown.length} of ${all}`);
}

function pinned(key, offer, found) {
  const approve = element("button", { type: "button", onclick: act }, `Approve all of ${key}`);
  async function act() {
    if (!(await asked(`Pin what ${key} offers now? ${count(found.length, "difference")} would be approved.`, "Approve"))) return;
    await operate("pins", key, { offer }).then(showOperator, (error) => setText(approve, error.message));
  }
  const shown = element("div"), more = element("button", { type: "button", class: "quiet", onclick: show });
  show();
  return element("article", { class: "card" }, element("h3", {}, key), shown, element("p", { class: "actions" }, more, approve));

  /** Show the next differences; nothing may be approved before all are shown. */
  function show() {
    const next = found.slice(shown.childElementCount, shown.childElementCount + MOST_DIFFERENCES);
    shown.append(...next.map((one) => element("details", {}, element("summary", {}, `${one.what}: ${one.kind}`), element("pre", { class: "block", tabindex: "0" }, one.diff.join("\n")))));
    const left = found.length - shown.childElementCount;
    setText(more, `Show ${Math.min(left, MOST_DIFFERENCES)} of ${left} more`);
    more.hidden = left === 0;
    approve.hidden = left > 0;
  }
}

byId("keys-filter").addEventListener("input", showKeys);
