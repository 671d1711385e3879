// A client made with the TypeScript SDK that logs in by itself and calls a tool; prints the tools' names as JSON.
//
//     node typescript_login.mjs '{"sdk": 1, "modules": DIR, "url": …, "tool": …}'
//
// In place of a person, it fills in the forms of oidc-provider.

import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const { sdk, modules, url, tool } = JSON.parse(process.argv[2]);
const resolve = createRequire(pathToFileURL(`${modules}/`)).resolve;
const load = async (name) => import(pathToFileURL(resolve(name)));
const REDIRECT = "http://127.0.0.1:1/callback";

class Person {
  redirectUrl = REDIRECT;
  clientMetadata = { client_name: "typescript", scope: "openid", redirect_uris: [REDIRECT], grant_types: ["authorization_code"], token_endpoint_auth_method: "none" };
  #kept = {};
  brought = null;

  clientInformation() { return this.#kept.client; }
  saveClientInformation(client) { this.#kept.client = client; }
  tokens() { return this.#kept.tokens; }
  saveTokens(tokens) { this.#kept.tokens = tokens; }
  codeVerifier() { return this.#kept.verifier; }
  saveCodeVerifier(verifier) { this.#kept.verifier = verifier; }

  async redirectToAuthorization(address) {
    const cookies = new Map();
    let next = { address: new URL(address), options: {} };
    for (;;) {
      const fitting = [...cookies.values()].filter((one) => next.address.pathname.startsWith(one.path));
      const cookie = fitting.map((one) => one.pair).join("; ");
      const answer = await fetch(next.address, { ...next.options, redirect: "manual", headers: { cookie } });
      for (const text of answer.headers.getSetCookie()) {
        const [pair] = text.split(";", 1);
        const path = /; path=([^;]*)/i.exec(text)?.[1] ?? "/";
        const key = `${pair.split("=", 1)[0]} ${path}`;
        if (pair.endsWith("=")) cookies.delete(key);
        else cookies.set(key, { pair, path });
      }
      const location = answer.headers.get("location");
      if (location?.startsWith(REDIRECT)) {
        this.brought = new URL(location).searchParams;
        return;
      }
      if (location) {
        next = { address: new URL(location, next.address), options: {} };
        continue;
      }
      const form = /action="([^"]+)"[^>]*>\s*<input type="hidden" name="prompt" value="(\w+)"/.exec(await answer.text());
      next = { address: new URL(form[1], next.address), options: { method: "POST", body: new URLSearchParams({ prompt: form[2], login: "carol", password: "any" }) } };
    }
  }
}

const { Client, StreamableHTTPClientTransport } = sdk === 1
  ? { ...(await load("@modelcontextprotocol/sdk/client/index.js")), ...(await load("@modelcontextprotocol/sdk/client/streamableHttp.js")) }
  : await load("@modelcontextprotocol/client");
const person = new Person();
const connect = async () => {
  const client = new Client({ name: "typescript", version: "1" }, sdk === 1 ? {} : { versionNegotiation: { mode: "auto" } });
  const transport = new StreamableHTTPClientTransport(new URL(url), { authProvider: person });
  try {
    await client.connect(transport);
    return client;
  } catch (error) {
    if (!person.brought) throw error;
    const { brought } = person;
    person.brought = null;
    await (sdk === 1 ? transport.finishAuth(brought.get("code")) : transport.finishAuth(brought));
    return null;
  }
};
const client = (await connect()) ?? (await connect());
const names = (await client.listTools()).tools.map((one) => one.name);
const result = await client.callTool({ name: tool, arguments: {} });
await client.close();
console.log(JSON.stringify({ names, isError: Boolean(result.isError) }));
