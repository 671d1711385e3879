// A host of MCP Apps, with the bridge of the reference implementation. `mcp(method, params)` is its MCP client.
import { AppBridge, PostMessageTransport } from "@modelcontextprotocol/ext-apps/app-bridge";

const CAPABILITIES = {
  openLinks: {}, serverTools: {}, serverResources: {}, logging: {}, message: {}, updateModelContext: {},
};
const CONTEXT = { theme: "light", displayMode: "inline", availableDisplayModes: ["inline", "fullscreen"] };

// Show the page of a tool with the result of a call; what the page does from then on is in `did`.
window.show = async (html, { tool, result }) => {
  window.did = [];
  const frame = document.createElement("iframe");
  frame.setAttribute("sandbox", "allow-scripts allow-forms");
  frame.style.cssText = "width: 100%; height: 900px; border: 0";
  document.body.append(frame);

  const options = { hostContext: { ...CONTEXT, toolInfo: { id: 1, tool } } };
  const bridge = new AppBridge(null, { name: "host", version: "1" }, CAPABILITIES, options);
  const noted = (method, answer) => async (params) => {
    window.did.push([method, params ?? {}]);
    return answer(params ?? {});
  };
  const served = (method) =>
    noted(method, async (params) => JSON.parse(await window.mcp(method, JSON.stringify(params))));
  bridge.oncalltool = served("tools/call");
  bridge.onreadresource = served("resources/read");
  bridge.onlistresources = served("resources/list");
  bridge.onmessage = noted("ui/message", () => ({}));
  bridge.onopenlink = noted("ui/open-link", () => ({}));
  bridge.onupdatemodelcontext = noted("ui/update-model-context", () => ({}));
  bridge.onrequestdisplaymode = noted("ui/request-display-mode", ({ mode }) => ({ mode }));
  bridge.onloggingmessage = noted("notifications/message", () => ({}));

  const initialized = new Promise((done) => { bridge.oninitialized = done; });
  await bridge.connect(new PostMessageTransport(frame.contentWindow, frame.contentWindow));
  frame.srcdoc = html;
  await initialized;
  await bridge.sendToolInput({ arguments: {} });
  await bridge.sendToolResult(result);
};
