// Accounts at remote servers: those of the viewer, for operators those of everybody, and the button that leads to a login.

import { ask } from "./api.js";
import { asked } from "./controls.js";
import { byId, element, setText } from "./dom.js";

const MOST_ROWS = 200;

const mayOperate = (view) => view.viewer.roles.includes("operate");

/** The accounts of the viewer, and of everybody if the viewer may see them. */
export async function showAccounts(view) {
  const mine = await loaded("accounts/mine");
  byId("accounts-table").tBodies[0].replaceChildren(...mine.slice(0, MOST_ROWS).map((account) => row(account, view)));
  setText(byId("accounts-summary"), mine.length ? `${mine.filter((one) => one.isLoggedIn).length} of ${mine.length} logged in` : "There is no server at which you have an account of your own.");
  byId("accounts-of-all").hidden = !mayOperate(view);
  if (!mayOperate(view)) return;
  const all = await loaded("accounts");
  byId("accounts-all-table").tBodies[0].replaceChildren(...all.slice(0, MOST_ROWS).map((account) => rowOfAll(account, view)));
  setText(byId("accounts-all-summary"), all.length > MOST_ROWS ? `${MOST_ROWS} of ${all.length}` : String(all.length));
}

/** The cell of a server's state: with a button where a person has to log in. */
export function fillLogin(cell, server, view) {
  const place = cell.querySelector(".login") ?? element("span", { class: "login" });
  if (!place.parentNode) cell.insertBefore(place, cell.lastChild);
  if (server.for_each_caller) cell.querySelector(".wake").hidden = true;
  const hasOwn = server.account === "caller" && view.viewer.name !== null;
  const wanted = `${hasOwn} ${Boolean(server.login_needed)}`;
  if (place.dataset.wanted === wanted) return;
  place.dataset.wanted = wanted;
  place.replaceChildren(
    ...(hasOwn ? [element("a", { href: "#accounts" }, "Your account")] : []),
    ...(server.login_needed ? [logInButton(`accounts/hub/${encodeURIComponent(server.key)}`, server.key)] : []),
  );
}

async function loaded(path) {
  const response = await ask(path);
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error ?? response.statusText);
  return answer;
}

function row(account, view) {
  const path = `accounts/mine/${encodeURIComponent(account.server)}`;
  return element("tr", {}, cells(account),
    element("td", { "data-column": "Action" }, account.isLoggedIn
      ? endButton(`End your login to ${account.server}?`, "Log out", () => ask(path, { method: "DELETE" }), view)
      : logInButton(path, account.server)));
}

function rowOfAll(account, view) {
  const body = JSON.stringify({ server: account.server, principal: account.principal });
  const revoke = () => ask("accounts/revoke", { method: "POST", headers: { "Content-Type": "application/json" }, body });
  const who = account.principal || "the hub";
  return element("tr", {}, element("td", { "data-column": "Who" }, who), cells(account),
    element("td", { "data-column": "Action" }, endButton(`End the login of ${who} to ${account.server}?`, "Revoke", revoke, view)));
}

function cells({ server, isLoggedIn, issuer, scopes, since }) {
  return [
    element("th", { scope: "row", "data-column": "Server" }, server),
    element("td", { "data-column": "Account" }, issuer ? `${isLoggedIn ? "" : "login needed, "}${issuer}` : "not logged in"),
    element("td", { "data-column": "Scopes" }, (scopes ?? []).join(" ") || "–"),
    element("td", { "data-column": "Since" }, since ? new Date(since * 1000).toLocaleString() : "–"),
  ];
}

function endButton(question, label, end, view) {
  const button = element("button", { type: "button", class: "danger", onclick: act }, label);
  async function act() {
    if (!(await asked(question, label))) return;
    try {
      const response = await end();
      if (!response.ok) throw new Error((await response.json()).error);
      await showAccounts(view);
    } catch (error) {
      setText(button, error.message);
    }
  }
  return button;
}

/** Leads to the authorization server, with a cookie that ties the way back to this browser. */
function logInButton(path, server) {
  const told = element("span", { class: "problem", role: "status" });
  const button = element("button", { type: "button", class: "login", "aria-label": `Log in to ${server}`, onclick: begin }, "Log in");
  async function begin() {
    button.disabled = true;
    setText(told, "");
    try {
      const response = await ask(path, { method: "POST", credentials: "same-origin" });
      const answer = await response.json();
      if (!response.ok) throw new Error(answer.error ?? response.statusText);
      if (!/^https?:\/\//.test(answer.address)) throw new Error("its address cannot be opened");
      location.assign(answer.address);
    } catch (error) {
      setText(told, error.message);
      button.disabled = false;
    }
  }
  return element("span", {}, button, told);
}
