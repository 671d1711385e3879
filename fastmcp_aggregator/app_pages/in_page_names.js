/* Put in front of the page of an app by fastmcp-aggregator. To the page its server's tools, prompts and resources have
   the names that the server gave them; the host knows them by others. What the page and the host say to each other goes
   through here and is written for the one that reads it. */
(function (names) {
  "use strict";
  const host = window.parent;
  if (host === window) return;

  const inverse = (map) => Object.fromEntries(Object.entries(map).map(([own, known]) => [known, own]));
  const own = { tools: inverse(names.tools), prompts: inverse(names.prompts) };
  const lookUp = (map, name) => (Object.hasOwn(map, name) ? map[name] : undefined);
  const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

  // Names: one that is not listed is named with its server, so that it never means another server's.
  const toHost = (kind, name) =>
    typeof name === "string" ? lookUp(names[kind], name) ?? names.key + ":" + name : name;
  const toPage = (kind, name) => lookUp(own[kind], name) ?? name;

  // Addresses: scheme://host/rest and, for those without a "//", scheme://host:/rest.
  const OPAQUE = /^((?:\{[^{}]*\}|[^:{])*):/;
  function addressToHost(uri) {
    if (typeof uri !== "string" || names.host === null) return uri;
    const at = uri.indexOf("://");
    if (at >= 0) return uri.slice(0, at) + "://" + names.host + "/" + uri.slice(at + 3);
    const opaque = OPAQUE.exec(uri);
    return opaque ? opaque[1] + "://" + names.host + ":/" + uri.slice(opaque[0].length) : uri;
  }
  function addressToPage(uri) {
    if (typeof uri !== "string" || names.host === null) return uri;
    const at = uri.indexOf("://");
    const rest = uri.slice(at + 3);
    for (const [mark, between] of [[names.host + "/", "://"], [names.host + ":/", ":"]])
      if (at >= 0 && rest.startsWith(mark)) return uri.slice(0, at) + between + rest.slice(mark.length);
    return uri;
  }

  // Objects of the protocol; each function returns another object, or the same if there is nothing to change.
  const withAddress = (item, way) => (isObject(item) && "uri" in item ? { ...item, uri: way(item.uri) } : item);
  const withAddresses = (items, way) => (Array.isArray(items) ? items.map((item) => way(item)) : items);
  function block(item, way) {
    if (isObject(item) && item.type === "resource_link") return withAddress(item, way);
    if (isObject(item) && item.type === "resource") return { ...item, resource: withAddress(item.resource, way) };
    return item;
  }
  function content(holder, way) {
    if (!isObject(holder) || !("content" in holder)) return holder;
    const items = holder.content;
    return { ...holder, content: Array.isArray(items) ? items.map((item) => block(item, way)) : block(items, way) };
  }
  function context(holder) {
    const tool = holder?.toolInfo?.tool;
    return isObject(tool) ? { ...holder, toolInfo: { ...holder.toolInfo, tool: listed("tools", tool) } } : holder;
  }
  function listed(kind, item) {
    const named = { ...item, name: toPage(kind, item.name) };
    const page = item._meta?.ui?.resourceUri;
    if (typeof page === "string")
      named._meta = { ...item._meta, ui: { ...item._meta.ui, resourceUri: addressToPage(page) } };
    return named;
  }

  // What the page asks of the host, by method: how its parameters and its result are written.
  const sameServer = (field) => (item) => names.host === null || addressToPage(item[field]) !== item[field];
  const list = (key, keep, change) => ({
    result: (result) =>
      Array.isArray(result?.[key]) ? { ...result, [key]: result[key].filter(isObject).filter(keep).map(change) } : result,
  });
  const addressed = { params: (params) => withAddress(params, addressToHost) };
  const requests = {
    "tools/call": {
      params: (params) => ({ ...params, name: toHost("tools", params.name) }),
      result: (result) => content(result, addressToPage),
    },
    "prompts/get": {
      params: (params) => ({ ...params, name: toHost("prompts", params.name) }),
      result: (result) => ({
        ...result,
        messages: withAddresses(result.messages, (message) => content(message, addressToPage)),
      }),
    },
    "resources/read": {
      ...addressed,
      result: (result) => ({
        ...result,
        contents: withAddresses(result.contents, (part) => withAddress(part, addressToPage)),
      }),
    },
    "resources/subscribe": addressed,
    "resources/unsubscribe": addressed,
    "tools/list": list("tools", (item) => Object.hasOwn(own.tools, item.name), (item) => listed("tools", item)),
    "prompts/list": list("prompts", (item) => Object.hasOwn(own.prompts, item.name), (item) => listed("prompts", item)),
    "resources/list": list("resources", sameServer("uri"), (item) => withAddress(item, addressToPage)),
    "resources/templates/list": list("resourceTemplates", sameServer("uriTemplate"), (item) => ({
      ...item,
      uriTemplate: addressToPage(item.uriTemplate),
    })),
    "ui/message": { params: (params) => content(params, addressToHost) },
    "ui/update-model-context": { params: (params) => content(params, addressToHost) },
    "ui/initialize": {
      result: (result) => ("hostContext" in result ? { ...result, hostContext: context(result.hostContext) } : result),
    },
  };
  const notifications = {
    "ui/notifications/tool-result": (params) => content(params, addressToPage),
    "ui/notifications/host-context-changed": context,
    "notifications/resources/updated": (params) => withAddress(params, addressToPage),
  };

  const asked = new Map(); // the results that are still to come, by the id of their request
  const isMessage = (data) => isObject(data) && data.jsonrpc === "2.0";

  function fromPage(data) {
    const request = isMessage(data) && typeof data.method === "string" ? lookUp(requests, data.method) : undefined;
    if (!request) return data;
    if (request.result && data.id !== undefined) asked.set(data.id, request.result);
    return request.params && isObject(data.params) ? { ...data, params: request.params(data.params) } : data;
  }
  function fromHost(data) {
    if (!isMessage(data)) return data;
    if (typeof data.method === "string") {
      const notification = lookUp(notifications, data.method);
      return notification && isObject(data.params) ? { ...data, params: notification(data.params) } : data;
    }
    const result = asked.get(data.id);
    asked.delete(data.id);
    return result && isObject(data.result) ? { ...data, result: result(data.result) } : data;
  }

  // The page talks to what stands for its host. `postMessage` of a window of another origin cannot be replaced, but
  // `window.parent` can; and who a message is from is compared with that.
  const postMessage = (data, ...how) => host.postMessage(fromPage(data), ...how);
  const standIn = new Proxy(host, {
    get(target, name) {
      if (name === "postMessage") return postMessage;
      const value = Reflect.get(target, name, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
  Object.defineProperty(window, "parent", { configurable: true, enumerable: true, get: () => standIn });
  window.addEventListener(
    "message",
    (event) => {
      if (event.source !== host) return;
      Object.defineProperty(event, "source", { value: standIn });
      Object.defineProperty(event, "data", { value: fromHost(event.data) });
    },
    true,
  );
})
