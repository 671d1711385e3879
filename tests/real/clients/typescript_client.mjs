// A client made with the TypeScript SDK: it goes through what server-everything offers and prints, as one JSON object,
// what it was given: the protocol `version`, `names`, and `heard`, everything else in its order.
//
//     node typescript_client.mjs '{"sdk": 1, "era": "legacy", "modules": DIR, "server": {"command": …, "args": […]}}'
//     node typescript_client.mjs '{"sdk": 2, "era": "auto", "modules": DIR, "server": {"url": …}, "separator": ":"}'
//
// `modules` is where the packages are installed. With a `separator` the server is behind an aggregator. With `calls`, a
// list of [name, arguments], it makes these and nothing else, and prints its `tools` and the `answers`.

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const { sdk, era, modules, server, separator, calls } = JSON.parse(process.argv[2]);
const resolve = createRequire(pathToFileURL(`${modules}/`)).resolve;
const load = async (name) => import(pathToFileURL(resolve(name)));
const name = (original) => (separator ? `everything${separator}${original}` : original);
const address = (original) => (separator ? original.replace("://", "://everything/") : original);

const ANSWERS = {
  "sampling/createMessage": { role: "assistant", content: { type: "text", text: "Bonjour" }, model: "a-model" },
  "elicitation/create": { action: "accept", content: { name: "Zoë", integer: 7 } },
};
const UPDATED = "notifications/resources/updated";
const LOG_LEVEL = { "io.modelcontextprotocol/logLevel": "debug" };

// Some servers have more tools once they know what their client can do.
async function settledTools() {
  let before, now;
  do {
    before = now;
    await new Promise((resolve) => setTimeout(resolve, 300));
    now = (await client.listTools()).tools.map((tool) => tool.name);
  } while (JSON.stringify(before) !== JSON.stringify(now));
  return now;
}

const heard = [];
let version;
const client = await makeClient();
const isModern = client.getProtocolEra?.() === "modern";
const got = calls ? await called() : { names: await listed(), heard: await goThrough() };
await client.close();
console.log(JSON.stringify({ version, ...got }));

async function listed() {
  return {
    "tools/list": await settledTools(),
    "resources/list": (await client.listResources()).resources.map((resource) => resource.uri),
    "resources/templates/list": (await client.listResourceTemplates()).resourceTemplates.map((each) => each.uriTemplate),
    "prompts/list": (await client.listPrompts()).prompts.map((prompt) => prompt.name),
  };
}

async function called() {
  const tools = (await client.listTools()).tools.map((tool) => tool.name);
  const answers = [];
  for (const [name, args] of calls) answers.push((await client.callTool({ name, arguments: args })).content);
  return { tools, answers };
}

async function makeClient() {
  const capabilities = { sampling: {}, elicitation: { form: {}, url: {} } };
  const about = { name: "typescript", version: "1" };
  const { Client, StdioClientTransport, StreamableHTTPClientTransport, kinds } = await (sdk === 1 ? first() : second());
  const made = new Client(about, { capabilities, versionNegotiation: { mode: era ?? "legacy" } });
  for (const [method, answer] of Object.entries(ANSWERS)) {
    made.setRequestHandler(kinds[method] ?? method, ({ params }) => {
      heard.push(["asked", method, params]);
      return answer;
    });
  }
  for (const method of ["notifications/message", UPDATED]) {
    made.setNotificationHandler(kinds[method] ?? method, ({ params }) => heard.push(["told", method, params]));
  }
  const transport = server.url
    ? new StreamableHTTPClientTransport(new URL(server.url))
    : new StdioClientTransport({ ...server, stderr: "inherit" });
  const setProtocolVersion = transport.setProtocolVersion?.bind(transport);
  transport.setProtocolVersion = (settled) => {
    version = settled;
    setProtocolVersion?.(settled);
  };
  await made.connect(transport);
  return made;
}

async function first() {
  const types = await load("@modelcontextprotocol/sdk/types.js");
  return {
    ...(await load("@modelcontextprotocol/sdk/client/index.js")),
    ...(await load("@modelcontextprotocol/sdk/client/stdio.js")),
    ...(await load("@modelcontextprotocol/sdk/client/streamableHttp.js")),
    kinds: {
      "sampling/createMessage": types.CreateMessageRequestSchema,
      "elicitation/create": types.ElicitRequestSchema,
      "notifications/message": types.LoggingMessageNotificationSchema,
      "notifications/resources/updated": types.ResourceUpdatedNotificationSchema,
    },
  };
}

async function second() {
  const packages = [await load("@modelcontextprotocol/client"), await load("@modelcontextprotocol/client/stdio")];
  return Object.assign({ kinds: {} }, ...packages);
}

async function goThrough() {
  await call("get-sum", { a: 1, b: 2 });
  await call("get-structured-content", { location: "Chicago" });
  await call("trigger-sampling-request", { prompt: "Grüße" });
  await call("trigger-elicitation-request", {});
  await call("trigger-long-running-operation", { duration: 0.2, steps: 3 });
  for (let i = 0; i < 8 * 2; i++) await call("toggle-simulated-logging", {}); // on and off, for each level
  await answered(client.getPrompt({ name: name("args-prompt"), arguments: { city: "Bern" } }));
  await answered(client.readResource({ uri: address("demo://resource/static/document/features.md") }));
  const argument = { name: "department", value: "E" };
  await answered(client.complete({ ref: { type: "ref/prompt", name: name("completable-prompt") }, argument }));
  const leave = await follow(address("demo://resource/dynamic/text/3"));
  await call("toggle-subscriber-updates", {});
  while (!heard.some(([, method]) => method === UPDATED)) await new Promise((done) => setTimeout(done, 5));
  await call("toggle-subscriber-updates", {});
  await leave();
  return heard;
}

async function call(tool, args) {
  const params = { name: name(tool), arguments: args, ...(isModern ? { _meta: LOG_LEVEL } : {}) };
  const options = { onprogress: (progress) => heard.push(["told", "notifications/progress", progress]) };
  await answered(sdk === 1 ? client.callTool(params, undefined, options) : client.callTool(params, options));
}

async function answered(result) {
  heard.push(["answered", "", { result: await result }]);
}

async function follow(uri) {
  if (isModern) {
    const subscription = await client.listen({ resourceSubscriptions: [uri] });
    return () => subscription.close();
  }
  await client.subscribeResource({ uri });
  return () => client.unsubscribeResource({ uri });
}
