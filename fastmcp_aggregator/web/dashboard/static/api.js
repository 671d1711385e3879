// The way to the hub: the viewer's key, requests with it, and the view as it changes.

const KEY = `fastmcp-aggregator.key ${location.pathname}`;
const WAIT = 20;
const LEAST_PAUSE = 300;
const MOST_PAUSE = 10_000;

export const key = {
  get: () => read(),
  set: (value) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

function read() {
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return null;
  }
}

/** The hub does not take the key, or wants one; the message says which. */
export class Unauthorized extends Error {
  constructor(status) {
    super(status === 403 ? "this key may not be used here" : "this key is not accepted");
    this.isForbidden = status === 403;
  }
}

export async function ask(path, options = {}) {
  const headers = new Headers(options.headers);
  if (key.get()) headers.set("Authorization", `Bearer ${key.get()}`);
  const response = await fetch(path, { ...options, headers, cache: "no-store", credentials: options.credentials ?? "omit", redirect: "error" });
  if (response.status === 401 || response.status === 403) throw new Unauthorized(response.status);
  return response;
}

/** The result of an MCP method, by the JSON API of a group; an object with `error` if there is none. */
export async function request(endpoint, method, params, signal) {
  const response = await ask(`${endpoint}/${method}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(params),
    signal,
  });
  const text = await response.text();
  try {
    const answer = JSON.parse(text);
    return response.ok || answer.error ? answer : { error: { code: response.status, message: text } };
  } catch {
    return { error: { code: response.status, message: text || response.statusText } };
  }
}

/** Have a server started that sleeps ("wake"), or any started anew ("restart"). */
export async function start(how, server) {
  const response = await ask(`${how}/${encodeURIComponent(server)}`, { method: "POST" });
  if (!response.ok) throw new Error(response.statusText);
}

/** An act of an operator on a server. */
export async function operate(how, server, body) {
  const sent = body ? { headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) } : {};
  const response = await ask(`${how}/${encodeURIComponent(server)}`, { method: "POST", ...sent });
  if (!response.ok) throw new Error((await response.json().catch(() => ({}))).error ?? response.statusText);
}

/** The last hour of calls, by server key and "" for all. */
export async function history() {
  const response = await ask("dashboard/history");
  if (!response.ok) throw new Error(response.statusText);
  return response.json();
}

/** The public names of all tools, by group and server key. */
export async function toolNames() {
  const response = await ask("dashboard/names");
  if (!response.ok) throw new Error(response.statusText);
  return response.json();
}

/** All that a group lists by a method, such as `tools/list`, under `field`; an Error if it cannot be listed. */
export async function listAll(endpoint, method, field) {
  const found = [];
  let cursor;
  do {
    const page = await request(endpoint, method, cursor ? { cursor } : {});
    if (page.error) throw new Error(page.error.message);
    for (const each of page[field]) found.push(each); // more than a call may have arguments
    cursor = page.nextCursor;
  } while (cursor);
  return found;
}

/**
 * Follow the view until the key is refused. `onView` gets each view, `onConnection` "live", "lost" or "paused".
 * The answer to each request waits until there is something new, so this neither polls fast nor keeps a stream.
 */
export async function follow({ onView, onConnection }) {
  let etag = null;
  let failures = 0;
  for (;;) {
    await whileHidden(onConnection);
    const began = performance.now();
    try {
      const wait = etag && failures === 0 ? { "If-None-Match": etag, Prefer: `wait=${WAIT}` } : {};
      const response = await ask("dashboard/state", { headers: wait, signal: AbortSignal.timeout((WAIT + 15) * 1000) });
      if (response.status === 200) {
        etag = response.headers.get("ETag");
        onView(await response.json());
      } else if (response.status !== 304) {
        throw new Error(response.statusText);
      }
      failures = 0;
      onConnection("live");
    } catch (error) {
      if (error instanceof Unauthorized) throw error;
      failures += 1;
      onConnection("lost");
    }
    const pause = failures ? Math.min(500 * 2 ** failures, MOST_PAUSE) : LEAST_PAUSE;
    await sleep(Math.max(0, pause - (failures ? 0 : performance.now() - began)));
  }
}

const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** A page that nobody sees asks for nothing. */
async function whileHidden(onConnection) {
  if (!document.hidden) return;
  onConnection("paused");
  await new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
}
