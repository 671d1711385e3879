// The groups, and what each contains.

import { connecting } from "./connect.js";
import { copyButton } from "./controls.js";
import { byId, element, reconcile, setAttribute, setText } from "./dom.js";
import { toolAddress } from "./tools.js";
import { count, offers, ownName, STATES } from "./words.js";

const MOST_CHIPS = 12;
const MOST_ROWS = 200;

/** Bring the cards up to date; `names` are the tools by group and server key: their public names. */
export function showGroups(view, names) {
  const states = new Map(view.servers.map((server) => [server.key, server.state]));
  const fill = (card, group) => fillCard(card, group, states, names[group.id] ?? {});
  reconcile(byId("groups-list"), view.groups, (group) => group.id, makeCard, fill);
}

function makeCard(group) {
  return element(
    "article",
    { class: "card group" },
    element("h3", {}, element("span", { class: "title" }), element("code", { class: "id" })),
    element("p", { class: "description" }),
    element("p", { class: "endpoint" }, element("code", {}), copyButton(() => addressOf(group), "Copy address")),
    element("ul", { class: "parts" }),
    element("p", { class: "parts-rest beside" }),
    element("p", {}, element("a", { href: toolAddress(group.id, "") }, `Tools of ${group.name || group.id}`)),
    connecting(group, addressOf(group), document.documentElement.dataset.auth === "key"),
  );
}

const addressOf = (group) => new URL(group.endpoint, document.baseURI).href;

function fillCard(card, group, states, names) {
  const [heading, description, endpoint, parts, rest] = card.children;
  setText(heading.firstChild, group.name || group.id);
  setText(heading.lastChild, group.name && group.name !== group.id ? group.id : "");
  setText(description, group.description);
  setText(endpoint.firstChild, addressOf(group));
  const shown = group.servers.slice(0, MOST_ROWS);
  const most = Math.min(MOST_CHIPS, Math.floor(MOST_ROWS / Math.max(1, shown.length)) - 1);
  reconcile(parts, shown, (part) => part.key, makePart, (node, part) => fillPart(node, part, group, states, names[part.key] ?? [], most));
  const more = group.servers.length - shown.length;
  rest.hidden = !more;
  setText(rest, `and ${count(more, "more server")}`);
}

function makePart() {
  return element("li", {}, element("span", { class: "state" }), element("strong", {}), element("span", { class: "offers" }), element("div", { class: "tools" }));
}

function fillPart(node, part, group, states, names, most) {
  const state = states.get(part.key) ?? "stopped";
  const [dot, key, offered, tools] = node.children;
  setText(dot, STATES[state]);
  setAttribute(dot, "data-state", state);
  setText(key, part.key);
  setText(offered, offers(part) || "nothing now");
  const linked = (name) => element("a", { href: toolAddress(group.id, name) }, ownName(part.key, name));
  const more = { more: names.length - most };
  const shown = names.length > most ? [...names.slice(0, most), more] : names;
  const make = (name) => (name === more ? element("a", { href: `#tools/${encodeURIComponent(group.id)}?${encodeURIComponent(part.key)}` }, most ? `${more.more} more` : count(more.more, "tool")) : linked(name));
  reconcile(tools, shown, (name) => (name === more ? ` ${more.more}` : name), make, () => {});
}
