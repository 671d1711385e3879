// The page: which part of it is shown, the key, and the view as it comes.

import { showAccounts } from "./accounts.js";
import { follow, key, toolNames, Unauthorized } from "./api.js";
import { showCalls } from "./calls.js";
import { byId, setText } from "./dom.js";
import { showGroups } from "./groups.js";
import { showNotices } from "./notices.js";
import { mayOperate, showOperator } from "./operate.js";
import { announceChanges, refreshHistory, showServers, tickServers } from "./servers.js";
import { showTools, toolAddress } from "./tools.js";
import { decoded } from "./words.js";

const PARTS = ["servers", "groups", "tools", "calls", "accounts", "operator"];
const WORDS = { connecting: "Connecting…", live: "Live", lost: "Connection lost, trying again", paused: "Paused", none: "No key" };

let view = null;
let receivedAt = 0;
let names = { edition: null, byGroup: {} };
let isNewPlace = false;
let isNewPart = true;

const age = () => (performance.now() - receivedAt) / 1000;
let needsKey = document.documentElement.dataset.auth === "key";

/** What the address names: `#tools/GROUP/TOOL`, or `#tools?FILTER`. */
function place() {
  const [path, filter] = location.hash.slice(1).split("?", 2);
  const [part, group, name] = path.split("/").map(decoded);
  return { part: PARTS.includes(part) ? part : "servers", group, name, filter: filter === undefined ? undefined : decoded(filter) };
}

/** The address may bring a filter; what is entered later stays. */
function takeFilter(at) {
  if (at.filter !== undefined) byId("tools-filter").value = at.filter;
}

/** Show the part that the address names, of the last view. */
async function show(at = place()) {
  const shown = view ? at.part : "key";
  for (const part of [...PARTS, "key"]) byId(`view-${part}`).hidden = part !== shown || (part === "key" && !needsKey);
  for (const link of document.querySelectorAll("header nav a")) {
    if (link.hash === `#${shown}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (!view) return;
  byId("operator-link").hidden = !mayOperate(view);
  byId("accounts-link").hidden = !view.servers.some((server) => server.account);
  byId("tools-link").hidden = !view.viewer.roles.includes("call");
  showServers(view, age());
  refreshHistory(view);
  showCalls(view, names.byGroup);
  try {
    if (at.part === "groups" || at.part === "calls") await refreshGroups();
    if (at.part === "accounts" && isNewPart) await showAccounts(view);
    if (at.part === "operator" && mayOperate(view) && isNewPart) await showOperator();
    isNewPart = false;
    // News may come while a list is loaded; then it is the later of the two that shows the tool.
    if (at.part === "tools" && (await showTools(view, at)) && isNewPlace) {
      isNewPlace = false;
      byId("tool-name")?.focus();
    }
  } catch (error) {
    setText(byId("tools-summary"), `Not loaded: ${error.message}`);
  }
}

async function refreshGroups() {
  const edition = view.groups.map((group) => `${group.id} ${group.edition}`).join();
  showGroups(view, names.byGroup);
  if (names.edition === edition) return;
  names = { edition, byGroup: await toolNames() };
  showGroups(view, names.byGroup);
}

function take(newView) {
  const isFirst = view === null;
  view = newView;
  receivedAt = performance.now();
  announceChanges(view);
  showNotices(view);
  document.title = title();
  setText(byId("hub-name"), view.name);
  setText(byId("version"), `fastmcp-aggregator ${view.version}`);
  setText(byId("viewer"), view.viewer.name === null ? "" : `Signed in as ${view.viewer.name}`);
  byId("forget").hidden = !needsKey;
  show();
  if (isFirst && needsKey) byId("main").focus({ preventScroll: true });
}

/** With what needs attention first: it is what a tab shows. */
function title() {
  const down = view.servers.filter((server) => server.state === "failed").length;
  return `${down ? `(${down} failed) ` : ""}${view.name}`;
}

function connection(state) {
  const node = byId("connection");
  node.dataset.state = state;
  setText(node, WORDS[state]);
  document.body.classList.toggle("stale", state === "lost");
}

async function run() {
  byId("key-error").textContent = "";
  connection("connecting");
  show();
  try {
    await follow({ onView: take, onConnection: connection });
  } catch (error) {
    if (!(error instanceof Unauthorized)) throw error;
    const hadKey = Boolean(key.get());
    key.forget();
    askForKey(hadKey ? refusal(error) : "");
  }
}

function refusal({ isForbidden }) {
  return isForbidden
    ? "This key may not be used here: it lacks a scope that is required."
    : "This key is not accepted. It may be mistyped, revoked or expired.";
}

function askForKey(problem) {
  view = null;
  showNotices({});
  needsKey = true;
  connection("none");
  byId("forget").hidden = true;
  document.title = "MCP servers";
  setText(byId("viewer"), "");
  show();
  byId("key-error").textContent = problem;
  byId("key").focus();
}

byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const entered = byId("key").value.trim();
  if (!/^[\x21-\x7e]+$/.test(entered)) {
    byId("key-error").textContent = "A key has only letters, digits and signs, and no spaces.";
    byId("key").focus();
    return;
  }
  key.set(entered);
  byId("key").value = "";
  run();
});

byId("forget").addEventListener("click", () => {
  key.forget();
  location.reload();
});
byId("tools-filter").addEventListener("input", () => view && showTools(view, place()));
byId("tools-kind").addEventListener("change", () => view && showTools(view, { group: byId("tools-group").value }));
byId("tools-group").addEventListener("change", (event) => {
  location.hash = toolAddress(event.target.value, "");
});
addEventListener("hashchange", async () => {
  const at = place();
  takeFilter(at);
  isNewPlace = at.part === "tools" && Boolean(at.name);
  isNewPart = true;
  await show(at);
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  byId("main").focus();
});
setInterval(() => view && tickServers(view, age()), 1000);
setInterval(() => view && !document.hidden && refreshHistory(view), 5000);

takeFilter(place());
if (needsKey && !key.get()) askForKey("");
else run();
