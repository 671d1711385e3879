// What an observer has to do something about, above all parts of the page: files that are refused, keys that expire soon.

import { byId, element, reconcile, setText } from "./dom.js";

/** Show what there is; to others than observers nothing is told. */
export function showNotices(view) {
  reconcile(byId("notices"), notices(view), ({ id }) => id, make, (node, { text }) => setText(node, text));
}

const make = ({ isBad }) => element("p", { class: isBad ? "notice bad" : "notice" });

function notices({ refused_files: files = {}, expiring_keys: keys = [] }) {
  const refused = Object.entries(files).map(([what, { problem }]) => ({ id: `file ${what}`, isBad: true, text: refusal(what, problem) }));
  const expiring = keys.map(({ id, name, expires }) => ({ id: `key ${id}`, isBad: false, text: `The key ${id} of ${name} expires on ${expires.slice(0, 10)}.` }));
  return [...refused, ...expiring];
}

function refusal(what, problem = "the log says why") {
  const instead = what === "keys" ? "all keys are rejected" : "what it said before stays in use";
  return `The ${what} file is refused as it is now, and ${instead}: ${problem}`;
}
