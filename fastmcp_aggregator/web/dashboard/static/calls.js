// The tables of recent calls.

import { byId, element, reconcile, setText } from "./dom.js";
import { count, OUTCOMES, timeOfDay, took } from "./words.js";

const COLUMNS = ["Time", "Call", "Group", "Caller", "Outcome", "Took"];
const KINDS = { ok: "good", input_required: "neutral", cancelled: "neutral" };

/** Bring all tables up to date; each says in `data-calls` how many calls it shows. */
export function showCalls(view) {
  const began = Date.now() - view.now * 1000;
  for (const place of document.querySelectorAll("[data-calls]")) {
    const table = place.querySelector("table") ?? place.appendChild(makeTable());
    const calls = view.calls.slice(0, Number(place.dataset.calls));
    table.hidden = calls.length === 0;
    table.classList.toggle("single", view.groups.length < 2);
    table.classList.toggle("anonymous", view.viewer.name === null);
    reconcile(table.tBodies[0], calls, (call) => call.id, (call) => makeRow(call, began), () => {});
    const empty = place.querySelector(".empty") ?? place.appendChild(element("p", { class: "empty" }, "No calls yet. They appear here as they end."));
    empty.hidden = calls.length > 0;
  }
  const whose = view.viewer.sees_all ? "of all callers" : "yours";
  setText(byId("calls-summary"), view.calls.length ? `The last ${count(view.calls.length, "call")}, ${whose}; without arguments.` : "");
}

function makeTable() {
  const heads = COLUMNS.map((name) => element("th", { scope: "col", class: classOf(name) }, name));
  return element("table", { class: "stacking calls" }, element("thead", {}, element("tr", {}, heads)), element("tbody", {}));
}

const classOf = (name) => ({ Took: "number", Group: "group", Caller: "caller", Time: "time" })[name] ?? null;

/** A call that has ended does not change any more. */
function makeRow(call, began) {
  const ended = new Date(began + call.ended * 1000);
  const values = [
    element("time", { datetime: ended.toISOString(), title: ended.toLocaleString() }, timeOfDay(ended)),
    named(call),
    call.group,
    call.principal,
    outcome(call),
    took(call.seconds),
  ];
  const cells = values.map((value, number) => element("td", { class: classOf(COLUMNS[number]), "data-column": COLUMNS[number] }, value));
  return element("tr", {}, cells);
}

function named(call) {
  const what = [element("span", { class: "server" }, call.server), element("span", { class: "name" }, call.name)];
  return call.method === "tools/call" ? what : [...what, element("span", { class: "method" }, call.method)];
}

function outcome(call) {
  const words = OUTCOMES[call.outcome] ?? call.outcome;
  return element("span", { class: `outcome ${KINDS[call.outcome] ?? "bad"}` }, call.code === null ? words : `${words} ${call.code}`);
}
