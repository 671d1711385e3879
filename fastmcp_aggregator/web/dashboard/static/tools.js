// The tools, resources, templates and prompts of a group to choose from, and the one that is chosen: what it says of
// itself, its schemas, a form to call, read or get it.

import { listAll, request, toolNames } from "./api.js";
import { asked, copyButton } from "./controls.js";
import { byId, element, reconcile, setText } from "./dom.js";
import { argumentsForm } from "./form.js";
import { mayOperate, serviceButton } from "./operate.js";
import { noResult, resultOf } from "./result.js";
import { count, decoded, ownName, took } from "./words.js";

const HINTS = [
  ["readOnlyHint", true, "read only", "good"],
  ["destructiveHint", true, "destructive", "bad"],
  ["idempotentHint", true, "idempotent", "neutral"],
  ["openWorldHint", true, "open world", "neutral"],
];
const KINDS = {
  tools: { method: "tools/list", field: "tools", id: "name", noun: "tool" },
  resources: { method: "resources/list", field: "resources", id: "uri", noun: "resource" },
  templates: { method: "resources/templates/list", field: "resourceTemplates", id: "uriTemplate", noun: "template" },
  prompts: { method: "prompts/list", field: "prompts", id: "name", noun: "prompt" },
};
const MOST_ROWS = 200;
const MOST_KEPT = 50;
const SLICE = 4;

let listed = { group: null, kind: null, edition: null, items: [], servers: [] };
let search = { servers: [], words: [], from: [], found: [], looked: 0 };
let turns = 0;
let open = { group: null, name: null, definition: null };
let folded = new Map();
let shownServers = new Map();
const lastArguments = new Map();

/** The address of a tool in this page; without a name, of the tools of the group. */
export const toolAddress = (group, name) => `#tools/${encodeURIComponent(group)}${name ? `/${encodeURIComponent(name)}` : ""}`;

const kindChosen = () => byId("tools-kind").value;

/** Show what a group has of the chosen kind, and the one that is named. Whether that is done: something else may be asked for meanwhile. */
export async function showTools(view, { group: id, name }) {
  const turn = ++turns;
  const group = view.groups.find((one) => one.id === id) ?? view.groups[0];
  showChoice(view, group);
  if (!group) return false;
  const kind = kindChosen();
  if (listed.group !== group.id || listed.kind !== kind) showLoading(group, kind);
  if (listed.edition !== group.edition) {
    const found = await list(group, kind, view.servers.map((server) => server.key));
    if (turn !== turns) return false;
    listed = found;
  }
  shownServers = new Map(view.servers.map((server) => [server.key, server]));
  showList(group, name);
  showDetail(view, group, name);
  return true;
}

/** Nothing of another group or kind stays to be chosen while this one's list is loaded. */
function showLoading(group, kind) {
  folded = new Map();
  listed = { group: group.id, kind, edition: null, items: [], servers: [] };
  showList(group, null);
  setText(byId("tools-summary"), "Loading…");
}

async function list(group, kind, keys) {
  const { method, field, id } = KINDS[kind];
  const [found, names] = await Promise.all([listAll(group.endpoint, method, field), kind === "tools" ? toolNames() : {}]);
  const owners = new Map();
  for (const [key, owned] of Object.entries(names[group.id] ?? {})) {
    for (const name of owned) owners.set(name, key);
  }
  const items = found.map((one) => {
    const name = one[id];
    const owner = owners.get(name) ?? (kind === "tools" ? null : ownerOf(name, keys)) ?? "this hub";
    const text = `${name} ${one.title ?? ""} ${one.description ?? ""} ${owner}`.toLowerCase();
    return { name, owner, text, own: ownName(owner, name), about: one.title ?? one.annotations?.title ?? firstLine(one.description), definition: one };
  });
  const servers = [...Map.groupBy(items, (item) => item.owner)].map(([key, own]) => ({ key, items: own }));
  return { group: group.id, kind, edition: group.edition, items, servers };
}

/** The server of a prompt or a resource: by the beginning of its name, or the host of its address. */
function ownerOf(name, keys) {
  const host = /^[^:]+:\/\/([^/]+)/.exec(name)?.[1];
  return keys.find((key) => (host === undefined ? [":", "__", ".", "_"].some((separator) => name.startsWith(key + separator)) : decoded(host) === key));
}

function showChoice(view, group) {
  const select = byId("tools-group");
  byId("group-choice").hidden = view.groups.length < 2;
  reconcile(select, view.groups, (one) => one.id, (one) => element("option", { value: one.id }), (node, one) => setText(node, one.name || one.id));
  if (group) select.value = group.id;
  else setText(byId("tools-summary"), "There is no group that you may use.");
}

/** The list, without what the filter leaves out, as far as that is known at once; the rest of it soon after. */
function showList(group, current) {
  const words = byId("tools-filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  search = searchFor(words);
  look(search);
  showFound(group, current);
  if (!isDone(search)) setTimeout(goOn, 0, search, group, current);
}

function goOn(known, group, current) {
  if (search !== known) return;
  look(search);
  if (isDone(search)) showFound(group, current);
  else setTimeout(goOn, 0, search, group, current);
}

/** What is found; at most so many rows, the rest folded away. */
function showFound(group, current) {
  const { words } = search;
  const isFiltered = words.length > 0;
  let left = MOST_ROWS;
  let shown = 0;
  const isShort = listed.items.length <= MOST_ROWS;
  const servers = [];
  for (const { key, items: fitting } of search.found) {
    shown += fitting.length;
    const isOpen = folded.get(key) ?? (isFiltered || isShort || fitting.some((item) => item.name === current));
    const rows = isOpen ? fitting.slice(0, Math.max(0, left)) : [];
    left -= rows.length;
    servers.push({ key, isOpen, count: fitting.length, rows, hidden: isOpen ? fitting.length - rows.length : 0 });
  }
  reconcile(byId("tools-list"), servers, (server) => server.key, makeServer, (node, server) => {
    const head = node.firstElementChild.firstElementChild;
    setText(head.firstElementChild, server.key);
    setText(head.lastElementChild, String(server.count));
    head.setAttribute("aria-expanded", String(server.isOpen));
    reconcile(node.children[1], server.rows, (item) => item.name, (item) => makeEntry(group, item), (entry, item) => fillEntry(entry, item, current));
    node.lastElementChild.hidden = !server.hidden;
    setText(node.lastElementChild, `${server.hidden} more: filter to see them`);
  });
  rove();
  const all = count(listed.items.length, KINDS[listed.kind].noun);
  setText(byId("tools-summary"), shown === listed.items.length ? all : `${shown}${isDone(search) ? "" : " …"} of ${all}`);
}

/** The search for all these words. What fits more of a word fitted before, so only that is looked at, and what was not yet. */
function searchFor(words) {
  const isOfList = search.servers === listed.servers;
  if (isOfList && search.words.join(" ") === words.join(" ")) return search;
  if (!words.length) return { servers: listed.servers, words, from: [], found: listed.servers, looked: 0 };
  const isNarrower = isOfList && search.words.every((before) => words.some((word) => word.includes(before)));
  const from = isNarrower ? [...search.found, ...search.from.slice(search.looked)] : listed.servers;
  return { servers: listed.servers, words, from, found: [], looked: 0 };
}

const isDone = ({ from, looked }) => looked === from.length;

/** Look through the next servers, for some milliseconds: who types does not wait for the last of 200,000 tools. */
function look(search) {
  const ends = performance.now() + SLICE;
  const fits = (item) => search.words.every((word) => item.text.includes(word));
  while (!isDone(search)) {
    const { key, items } = search.from[search.looked++];
    const fitting = items.filter(fits);
    if (fitting.length) search.found.push({ key, items: fitting });
    if (performance.now() >= ends) return;
  }
}

function makeServer(server) {
  const head = element("button", { type: "button", class: "fold", onclick: () => fold(server.key) }, element("span", {}), element("span", { class: "beside" }));
  return element("section", {}, element("h3", {}, head), element("ul", {}), element("p", { class: "notes", hidden: true }));
}

function fold(key) {
  const head = byId("tools-list").querySelector(`[data-item="${CSS.escape(key)}"] .fold`);
  folded.set(key, head.getAttribute("aria-expanded") !== "true");
  showList({ id: listed.group }, open.name);
}

const makeEntry = (group, item) => element("li", {}, element("a", { href: toolAddress(group.id, item.name) }, element("span", { class: "name" }), element("span", { class: "about" })));

function fillEntry(entry, item, current) {
  const link = entry.firstChild;
  setText(link.firstChild, item.own);
  setText(link.lastChild, item.about);
  if (item.name === current) link.setAttribute("aria-current", "true");
  else link.removeAttribute("aria-current");
}

const firstLine = (text) => String(text ?? "").trim().split("\n", 1)[0];

// One stop for the Tab key in the whole list; the arrow keys go on in it.

const stops = () => [...byId("tools-list").querySelectorAll(".fold, a")];

function rove(to = null) {
  const all = stops();
  const current = to ?? all.find((one) => one === document.activeElement) ?? all.find((one) => one.getAttribute("aria-current")) ?? all.find((one) => one.tagName === "A") ?? all[0];
  for (const one of all) one.tabIndex = one === current ? 0 : -1;
}

byId("tools-list").addEventListener("keydown", (event) => {
  const all = stops();
  const at = all.indexOf(document.activeElement);
  if (at < 0) return;
  const here = all[at];
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[event.key];
  const isOpen = here.getAttribute("aria-expanded") === "true";
  if (to !== undefined && all[to]) move(event, all[to]);
  else if (event.key === "ArrowLeft" && here.tagName === "A") move(event, here.closest("section").querySelector(".fold"));
  else if ((event.key === "ArrowLeft" && isOpen) || (event.key === "ArrowRight" && here.tagName !== "A" && !isOpen)) {
    event.preventDefault();
    here.click();
  }
});

function move(event, to) {
  event.preventDefault();
  rove(to);
  to.focus();
}

/** Whatever was entered stays while the tool is the same, however often the lists are read. */
function showDetail(view, group, name) {
  const place = byId("tool");
  place.parentElement.classList.toggle("chosen", Boolean(name));
  const item = listed.items.find((one) => one.name === name);
  const definition = item ? JSON.stringify(item.definition) : null;
  const isSame = open.group === group.id && open.name === name && (open.definition === definition || (!item && open.definition));
  if (!isSame) {
    open = { group: group.id, name, definition };
    if (item) place.replaceChildren(...detail(group, item));
    else place.replaceChildren(element("p", { class: "empty" }), element("p", { class: "gone notice", hidden: true }), element("p", { class: "actions service" }));
  }
  showService(view, place, name, item);
}

/** Whether the tool can be used now, and for operators the button for that. */
function showService(view, place, name, item) {
  const out = item || listed.kind !== "tools" || !name ? undefined : withdrawnTool(name);
  const empty = place.querySelector(".empty");
  if (empty) {
    empty.hidden = Boolean(out);
    setText(empty, name ? `There is no ${KINDS[listed.kind].noun} ${name} now.` : "Choose one to see what it says of itself, and to use it.");
  }
  const gone = place.querySelector(".gone");
  gone.hidden = out ? false : Boolean(item) || Boolean(empty);
  setText(gone, out ? `${out.server} has this tool, but it is out of service.` : "The server that has this tool is not available now.");
  const { server, tool } = out ?? { server: item?.owner, tool: item?.own };
  const isOffered = listed.kind === "tools" && mayOperate(view) && shownServers.has(server);
  const buttons = isOffered ? [{ server, tool, isOut: Boolean(out) }] : [];
  reconcile(place.querySelector(".service"), buttons, (one) => `${one.isOut} ${one.server} ${one.tool}`, (one) => serviceButton(one.server, one.tool, one.isOut), () => {});
}

/** The server and the own name of a tool that is out of service; only operators are told of these. */
function withdrawnTool(name) {
  for (const { key, withdrawn } of shownServers.values()) {
    const tool = withdrawn?.find((one) => ownName(key, name) === one);
    if (tool !== undefined) return { server: key, tool };
  }
  return undefined;
}

function detail(group, { name, definition }) {
  const annotations = definition.annotations ?? {};
  const hints = HINTS.filter(([field, value]) => annotations[field] === value).map(([, , words, kind]) => element("span", { class: `outcome ${kind}` }, words));
  const title = definition.title ?? annotations.title;
  return [
    element("p", { class: "back" }, element("a", { href: toolAddress(group.id, "") }, `All ${listed.kind}`)),
    element("h3", { tabindex: "-1", id: "tool-name" }, element("code", {}, name)),
    title ? element("p", { class: "title" }, title) : "",
    hints.length ? element("p", { class: "hints" }, hints) : "",
    element("p", { class: "gone notice", hidden: true }),
    definition.description ? element("p", { class: "description", tabindex: definition.description.length > 600 ? "0" : null }, definition.description) : "",
    form(group, name, definition),
    listed.kind === "tools" ? schema("Input schema", definition.inputSchema) : schema("Definition", definition),
    definition.outputSchema ? schema("Output schema", definition.outputSchema) : "",
    element("p", { class: "actions service" }),
  ].filter(Boolean);
}

const pretty = (value) => JSON.stringify(value ?? {}, null, 2);

const schema = (title, value) => element("details", { class: "schema" }, element("summary", {}, title), copyButton(() => pretty(value)), element("pre", { class: "block", tabindex: "0" }, pretty(value)));

/** What is asked for, by the kind: the method, and its parameters from what was entered. */
function asking(name, definition) {
  switch (listed.kind) {
    case "tools":
      return { verb: "Call", inputs: definition.inputSchema ?? {}, method: "tools/call", params: (values) => ({ name, arguments: values }) };
    case "prompts": {
      const given = Array.isArray(definition.arguments) ? definition.arguments : [];
      const properties = Object.fromEntries(given.map((one) => [one.name, { type: "string", description: one.description }]));
      return { verb: "Get", inputs: { type: "object", properties, required: given.filter((one) => one.required).map((one) => one.name), additionalProperties: false }, method: "prompts/get", params: (values) => ({ name, arguments: values }) };
    }
    case "templates": {
      const variables = [...name.matchAll(/\{[+#./;?&]?([^}*]+)\*?\}/g)].flatMap((found) => found[1].split(","));
      const properties = Object.fromEntries(variables.map((one) => [one, { type: "string" }]));
      return { verb: "Read", inputs: { type: "object", properties, required: variables }, method: "resources/read", params: (values) => ({ uri: name.replace(/\{([+#./;?&]?)([^}*]+)\*?\}/g, (_, sign, names) => expanded(sign, names.split(","), values)) }) };
    }
    default:
      return { verb: "Read", inputs: { type: "object", additionalProperties: false }, method: "resources/read", params: () => ({ uri: name }) };
  }
}

/** One expression of a URI template (RFC 6570), as far as servers use them. */
function expanded(sign, names, values) {
  const [before, between] = { "?": ["?", "&"], "&": ["&", "&"], "/": ["/", "/"], "#": ["#", ","], ".": [".", "."], ";": [";", ";"] }[sign] ?? ["", ","];
  const encoded = (value) => (sign === "+" || sign === "#" ? encodeURI(value) : encodeURIComponent(value));
  return before + names.map((name) => (sign === "?" || sign === "&" || sign === ";" ? `${name}=${encoded(values[name])}` : encoded(values[name]))).join(between);
}

function form(group, name, definition) {
  const { verb, inputs, method, params } = asking(name, definition);
  const entered = argumentsForm(inputs);
  const place = `${group.id} ${listed.kind} ${name}`;
  const call = element("button", { type: "submit", class: "primary" }, verb);
  const cancel = element("button", { type: "button", class: "quiet", hidden: true }, "Cancel");
  const clock = element("span", { class: "clock" });
  const outcome = element("div", { class: "outcome-place" });
  const curl = copyButton(() => curlOf(`${group.endpoint}/${method}`, params(entered.read() ?? {})), "Copy as curl");
  const node = element("form", { class: "call", novalidate: true, "aria-label": `${verb} ${name}` }, entered.node,
    element("p", { class: "actions" }, call, cancel, Object.keys(inputs.properties ?? {}).length || listed.kind === "tools" ? entered.toggle : null, curl, clock), outcome);
  if (lastArguments.has(place)) entered.write(lastArguments.get(place));

  node.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) node.requestSubmit();
  });
  node.addEventListener("submit", async (event) => {
    event.preventDefault();
    const values = call.disabled ? null : entered.read();
    if (values === null) return;
    if (definition.annotations?.destructiveHint === true && !(await asked(`${name} says that it may destroy something. Call it?`, "Call it"))) return;
    keep(place, values);
    const stop = new AbortController();
    const began = performance.now();
    const seconds = () => (performance.now() - began) / 1000;
    const ticking = setInterval(() => setText(clock, took(seconds())), 100);
    cancel.onclick = () => stop.abort();
    setRunning(true);
    try {
      const answer = await request(group.endpoint, method, params(values), stop.signal);
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
    node.setAttribute("aria-busy", String(isRunning));
  }
  return node;
}

/** What was sent last, for as long as the page is open: "call again" begins with it. */
function keep(place, values) {
  lastArguments.delete(place);
  lastArguments.set(place, values);
  if (lastArguments.size > MOST_KEPT) lastArguments.delete(lastArguments.keys().next().value);
}

function curlOf(path, params) {
  const quoted = JSON.stringify(params).replaceAll("'", "'\\''");
  const key = document.documentElement.dataset.auth === "key" ? ' \\\n     -H "Authorization: Bearer YOUR_KEY"' : "";
  return `curl -X POST ${new URL(path, document.baseURI).href}${key} \\\n     --json '${quoted}'`;
}
