// How a client is connected to a group: the entry in its config, and a call by curl.

import { copyButton } from "./controls.js";
import { element } from "./dom.js";

const pretty = (value) => JSON.stringify(value, null, 2);
const HEADERS = { Authorization: "Bearer YOUR_KEY" };

/** By client, what is written where. */
function entries(name, url, needsKey) {
  const headers = needsKey ? { headers: HEADERS } : {};
  const option = needsKey ? ' --header "Authorization: Bearer YOUR_KEY"' : "";
  const toml = needsKey ? '\nbearer_token_env_var = "MCP_HUB_KEY"' : "";
  const curl = needsKey ? ` \\\n     -H "Authorization: Bearer YOUR_KEY"` : "";
  return {
    "Claude Code": `claude mcp add --transport http ${name} ${url}${option}`,
    "Cursor": pretty({ mcpServers: { [name]: { url, ...headers } } }),
    "VS Code": pretty({ servers: { [name]: { type: "http", url, ...headers } } }),
    "Gemini CLI": pretty({ mcpServers: { [name]: { httpUrl: url, ...headers } } }),
    "Windsurf": pretty({ mcpServers: { [name]: { serverUrl: url, ...headers } } }),
    "OpenAI Codex": `[mcp_servers.${name}]\nurl = "${url}"${toml}`,
    "curl": `curl -X POST ${url}/tools/list${curl}`,
  };
}

/** A choice of clients, with what to write for each. */
export function connecting(group, url, needsKey) {
  const found = entries(group.id === "default" ? "hub" : group.id, url, needsKey);
  const shown = element("pre", { class: "block", tabindex: "0" });
  const choice = element("select", { "aria-label": "Client", onchange: () => show() }, Object.keys(found).map((client) => element("option", { value: client }, client)));
  const show = () => { shown.textContent = found[choice.value]; };
  show();
  return element("details", { class: "connect" }, element("summary", {}, "Connect a client"),
    element("p", { class: "actions" }, choice, copyButton(() => shown.textContent)), shown);
}
