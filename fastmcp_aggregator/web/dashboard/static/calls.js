// The tables of recent calls.

import { copyButton } from "./controls.js";
import { byId, element, reconcile, setText } from "./dom.js";
import { toolAddress } from "./tools.js";
import { count, OUTCOMES, timeOfDay, took } from "./words.js";

const COLUMNS = ["Time", "Call", "Group", "Caller", "Outcome", "Took", "Trace", ""];
const KINDS = { ok: "good", input_required: "neutral", cancelled: "neutral" };

let again = () => {};

/** Bring all tables up to date; each says in `data-calls` how many calls it shows. `names` are the tools' public names. */
export function showCalls(view, names = {}) {
  again = () => showCalls(view, names);
  const began = Date.now() - view.now * 1000;
  const words = byId("calls-filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const isFailed = byId("calls-failed").checked;
  const textOf = (call) => `${call.server} ${call.name} ${call.method} ${call.group} ${call.principal} ${OUTCOMES[call.outcome] ?? call.outcome} ${call.code ?? ""} ${call.trace_id}`.toLowerCase();
  const fits = (call) => (!isFailed || !["ok", "input_required"].includes(call.outcome)) && words.every((word) => textOf(call).includes(word));
  for (const place of document.querySelectorAll("[data-calls]")) {
    const table = place.querySelector("table") ?? place.appendChild(makeTable());
    const isAll = place.closest("#view-calls") !== null;
    const found = isAll ? view.calls.filter(fits) : view.calls;
    const calls = found.slice(0, Number(place.dataset.calls));
    table.hidden = calls.length === 0;
    table.classList.toggle("single", view.groups.length < 2);
    table.classList.toggle("anonymous", view.viewer.name === null);
    reconcile(table.tBodies[0], calls, (call) => call.id, (call) => makeRow(call, began, names), () => {});
    const empty = place.querySelector(".empty") ?? place.appendChild(element("p", { class: "empty" }));
    setText(empty, view.calls.length ? "None of the last calls is like that." : "No calls yet. They appear here as they end.");
    empty.hidden = calls.length > 0;
    if (isAll) setText(byId("calls-summary"), summaryOf(view, found));
  }
}

function summaryOf(view, found) {
  if (!view.calls.length) return "";
  const whose = view.viewer.sees_all ? "of all callers" : "yours";
  const which = found.length === view.calls.length ? `The last ${count(found.length, "call")}` : `${found.length} of the last ${count(view.calls.length, "call")}`;
  return `${which}, ${whose}; without arguments.`;
}

function makeTable() {
  const heads = COLUMNS.map((name) => element("th", { scope: "col", class: classOf(name) }, name || element("span", { class: "unseen" }, "Again")));
  return element("table", { class: "stacking calls" }, element("thead", {}, element("tr", {}, heads)), element("tbody", {}));
}

const classOf = (name) => ({ Took: "number", Group: "group", Caller: "caller", Time: "time", Trace: "trace", "": "again" })[name] ?? null;

/** A call that has ended does not change any more. */
function makeRow(call, began, names) {
  const ended = new Date(began + call.ended * 1000);
  const address = call.method === "tools/call" ? toolAddress(call.group, publicName(call, names)) : null;
  const isToday = ended.toDateString() === new Date().toDateString();
  const values = [
    element("time", { datetime: ended.toISOString(), title: ended.toLocaleString() }, isToday ? timeOfDay(ended) : ended.toLocaleString()),
    named(call, address),
    call.group,
    call.principal,
    outcome(call),
    took(call.seconds),
    call.trace_id ? [element("code", { title: call.trace_id }, call.trace_id.slice(0, 8)), copyButton(() => call.trace_id)] : "",
    address ? element("a", { href: address }, "Again") : "",
  ];
  const cells = values.map((value, number) => element("td", { class: classOf(COLUMNS[number]), "data-column": COLUMNS[number] }, value));
  return element("tr", {}, cells);
}

/** The name under which a group lists a tool; the plain one, if it is not known. */
function publicName(call, names) {
  const listed = names[call.group]?.[call.server] ?? [];
  return listed.find((name) => name.endsWith(call.name) && name.length > call.name.length) ?? `${call.server}:${call.name}`;
}

function named(call, address) {
  const name = address ? element("a", { class: "name", href: address }, call.name) : element("span", { class: "name" }, call.name);
  const what = [element("span", { class: "server" }, call.server), name];
  return call.method === "tools/call" ? what : [...what, element("span", { class: "method" }, call.method)];
}

function outcome(call) {
  const words = OUTCOMES[call.outcome] ?? call.outcome;
  return element("span", { class: `outcome ${KINDS[call.outcome] ?? "bad"}` }, call.code === null ? words : `${words} ${call.code}`);
}

byId("calls-filter").addEventListener("input", () => again());
byId("calls-failed").addEventListener("change", () => again());
