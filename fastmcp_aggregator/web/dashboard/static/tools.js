// The tools of a group to choose from, and the one that is chosen: what it says of itself, its schemas, a form to call it.

import { listTools, request, toolNames } from "./api.js";
import { byId, element, reconcile, setText } from "./dom.js";
import { argumentsForm } from "./form.js";
import { noResult, resultOf } from "./result.js";
import { count, ownName, took } from "./words.js";

const HINTS = [
  ["readOnlyHint", true, "read only", "good"],
  ["destructiveHint", true, "destructive", "bad"],
  ["idempotentHint", true, "idempotent", "neutral"],
  ["openWorldHint", true, "open world", "neutral"],
];

let listed = { group: null, edition: null, tools: [], owners: new Map() };
let turns = 0;
let open = { group: null, name: null, definition: null };

/** The address of a tool in this page; without a name, of the tools of the group. */
export const toolAddress = (group, name) => `#tools/${encodeURIComponent(group)}${name ? `/${encodeURIComponent(name)}` : ""}`;

/** Show the tools of a group, and the one that is named. Whether that is done: something else may be asked for meanwhile. */
export async function showTools(view, { group: id, name }) {
  const turn = ++turns;
  const group = view.groups.find((one) => one.id === id) ?? view.groups[0];
  showChoice(view, group);
  if (!group) return false;
  if (listed.group !== group.id || listed.edition !== group.edition) {
    const found = await list(group);
    if (turn !== turns) return false;
    listed = found;
  }
  showList(group, name);
  showDetail(group, name);
  return true;
}

async function list(group) {
  if (listed.group !== group.id) setText(byId("tools-summary"), "Loading…");
  const [tools, names] = await Promise.all([listTools(group.endpoint), toolNames()]);
  const owners = new Map();
  for (const [key, owned] of Object.entries(names[group.id] ?? {})) {
    for (const name of owned) owners.set(name, key);
  }
  return { group: group.id, edition: group.edition, tools, owners };
}

function showChoice(view, group) {
  const select = byId("tools-group");
  byId("group-choice").hidden = view.groups.length < 2;
  reconcile(select, view.groups, (one) => one.id, (one) => element("option", { value: one.id }), (node, one) => setText(node, one.name || one.id));
  if (group) select.value = group.id;
  else setText(byId("tools-summary"), "There is no group that you may use.");
}

/** The list, without what the filter leaves out. */
function showList(group, current) {
  const words = byId("tools-filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (tool) => {
    const text = `${tool.name} ${tool.title ?? ""} ${tool.description ?? ""} ${listed.owners.get(tool.name) ?? ""}`.toLowerCase();
    return words.every((word) => text.includes(word));
  };
  const shown = listed.tools.filter(fits);
  const servers = [...new Set(shown.map(ownerOf))].map((key) => ({ key, tools: shown.filter((tool) => ownerOf(tool) === key) }));
  reconcile(byId("tools-list"), servers, (server) => server.key, makeServer, (node, server) => {
    reconcile(node.lastElementChild, server.tools, (tool) => tool.name, (tool) => makeEntry(group, tool), (entry, tool) => fillEntry(entry, tool, current));
  });
  const all = count(listed.tools.length, "tool");
  setText(byId("tools-summary"), shown.length === listed.tools.length ? all : `${shown.length} of ${all}`);
}

const ownerOf = (tool) => listed.owners.get(tool.name) ?? "this hub";

const makeServer = (server) => element("section", {}, element("h3", {}, server.key), element("ul", {}));

const makeEntry = (group, tool) => element("li", {}, element("a", { href: toolAddress(group.id, tool.name) }, element("span", { class: "name" }), element("span", { class: "about" })));

function fillEntry(entry, tool, current) {
  const link = entry.firstChild;
  setText(link.firstChild, ownName(ownerOf(tool), tool.name));
  setText(link.lastChild, tool.title ?? tool.annotations?.title ?? firstLine(tool.description));
  if (tool.name === current) link.setAttribute("aria-current", "true");
  else link.removeAttribute("aria-current");
}

const firstLine = (text) => String(text ?? "").trim().split("\n", 1)[0];

/** Whatever was entered stays while the tool is the same, however often the lists are read. */
function showDetail(group, name) {
  const place = byId("tool");
  place.parentElement.classList.toggle("chosen", Boolean(name));
  const tool = listed.tools.find((one) => one.name === name);
  const definition = tool ? JSON.stringify(tool) : null;
  if (open.group === group.id && open.name === name && (open.definition === definition || (!tool && open.definition))) {
    place.querySelector(".gone")?.toggleAttribute("hidden", Boolean(tool));
    return;
  }
  open = { group: group.id, name, definition };
  if (tool) place.replaceChildren(...detail(group, tool));
  else place.replaceChildren(element("p", { class: "empty" }, name ? `There is no tool ${name} now.` : "Choose a tool to see its schemas and to call it."));
}

function detail(group, tool) {
  const annotations = tool.annotations ?? {};
  const hints = HINTS.filter(([field, value]) => annotations[field] === value).map(([, , words, kind]) => element("span", { class: `outcome ${kind}` }, words));
  return [
    element("p", { class: "back" }, element("a", { href: toolAddress(group.id, "") }, "All tools")),
    element("h3", { tabindex: "-1", id: "tool-name" }, element("code", {}, tool.name)),
    tool.title || annotations.title ? element("p", { class: "title" }, tool.title ?? annotations.title) : "",
    hints.length ? element("p", { class: "hints" }, hints) : "",
    element("p", { class: "gone notice", hidden: true }, "The server that has this tool is not available now."),
    tool.description ? element("p", { class: "description" }, tool.description) : "",
    callForm(group, tool),
    schema("Input schema", tool.inputSchema),
    tool.outputSchema ? schema("Output schema", tool.outputSchema) : "",
  ].filter(Boolean);
}

const schema = (title, value) => element("details", { class: "schema" }, element("summary", {}, title), element("pre", { class: "block", tabindex: "0" }, JSON.stringify(value ?? {}, null, 2)));

function callForm(group, tool) {
  const entered = argumentsForm(tool.inputSchema ?? {});
  const call = element("button", { type: "submit", class: "primary" }, "Call");
  const cancel = element("button", { type: "button", class: "quiet", hidden: true }, "Cancel");
  const clock = element("span", { class: "clock" });
  const outcome = element("div", { class: "outcome-place" });
  const form = element("form", { class: "call", novalidate: true, "aria-label": `Call ${tool.name}` }, entered.node,
    element("p", { class: "actions" }, call, cancel, entered.toggle, clock), outcome);

  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const values = call.disabled ? null : entered.read();
    if (values === null) return;
    const stop = new AbortController();
    const began = performance.now();
    const seconds = () => (performance.now() - began) / 1000;
    const ticking = setInterval(() => setText(clock, took(seconds())), 100);
    cancel.onclick = () => stop.abort();
    setRunning(true);
    try {
      const answer = await request(group.endpoint, "tools/call", { name: tool.name, arguments: values }, stop.signal);
      outcome.replaceChildren(resultOf(answer, seconds()));
    } catch (error) {
      outcome.replaceChildren(noResult(stop.signal.aborted ? "Cancelled." : `No answer came: ${error.message}`));
    } finally {
      setText(byId("announcer"), outcome.querySelector(".verdict").textContent);
      clearInterval(ticking);
      setRunning(false);
    }
  });

  function setRunning(isRunning) {
    call.disabled = isRunning;
    cancel.hidden = !isRunning;
    setText(clock, "");
    form.setAttribute("aria-busy", String(isRunning));
  }
  return form;
}
