// The groups, and what each contains.

import { byId, element, reconcile, setAttribute, setText } from "./dom.js";
import { toolAddress } from "./tools.js";
import { offers, ownName, STATES } from "./words.js";

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
    element("p", { class: "endpoint" }, element("code", {})),
    element("ul", { class: "parts" }),
    element("p", {}, element("a", { href: toolAddress(group.id, "") }, `Tools of ${group.name || group.id}`)),
  );
}

function fillCard(card, group, states, names) {
  const [heading, description, endpoint, parts] = card.children;
  setText(heading.firstChild, group.name || group.id);
  setText(heading.lastChild, group.name && group.name !== group.id ? group.id : "");
  setText(description, group.description);
  setText(endpoint.firstChild, new URL(group.endpoint, document.baseURI).href);
  reconcile(parts, group.servers, (part) => part.key, makePart, (node, part) => fillPart(node, part, group, states, names[part.key] ?? []));
}

function makePart() {
  return element("li", {}, element("span", { class: "state" }), element("strong", {}), element("span", { class: "offers" }), element("div", { class: "tools" }));
}

function fillPart(node, part, group, states, names) {
  const state = states.get(part.key) ?? "stopped";
  const [dot, key, offered, tools] = node.children;
  setText(dot, STATES[state]);
  setAttribute(dot, "data-state", state);
  setText(key, part.key);
  setText(offered, offers(part) || "nothing now");
  const linked = (name) => element("a", { href: toolAddress(group.id, name) }, ownName(part.key, name));
  reconcile(tools, names, (name) => name, linked, () => {});
}
