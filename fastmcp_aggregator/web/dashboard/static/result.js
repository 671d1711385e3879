// What came of a call: content blocks, structured content, and the whole as JSON.

import { element } from "./dom.js";
import { took } from "./words.js";

const TEXT_SHOWN = 100_000;
const MEDIA = /^(image\/(png|jpeg|gif|webp|avif|svg\+xml)|audio\/[a-z0-9.+-]+)$/;
const BASE64 = /^[A-Za-z0-9+/=\s]*$/;

/** An answer of the JSON API, with the seconds that it took. */
export function resultOf(answer, seconds) {
  if (answer.error) return failed(answer.error, seconds);
  const isWrong = answer.isError === true;
  const blocks = (Array.isArray(answer.content) ? answer.content : []).map(block);
  const structured = answer.structuredContent;
  return element(
    "div",
    { class: "result" },
    verdict(isWrong ? "The tool says that it failed" : "Done", isWrong ? "bad" : "good", seconds),
    blocks,
    blocks.length === 0 && structured === undefined ? element("p", { class: "notes" }, "The result is empty.") : null,
    structured === undefined ? null : folded("Structured content", pretty(structured), blocks.length === 0),
    folded("Whole result", pretty(answer), false),
  );
}

/** A text that says that nothing came. */
export function noResult(message) {
  return element("div", { class: "result" }, element("p", { class: "verdict bad" }, message));
}

function failed({ code, message, data }, seconds) {
  return element(
    "div",
    { class: "result" },
    verdict(`Error ${code}`, "bad", seconds),
    element("pre", { class: "block", tabindex: "0" }, String(message)),
    data === undefined ? null : folded("Data", pretty(data), true),
  );
}

function verdict(words, kind, seconds) {
  return element("p", { class: `verdict ${kind}` }, element("strong", {}, words), " ", element("span", {}, took(seconds)));
}

const pretty = (value) => JSON.stringify(value, null, 2);

function folded(title, text, isOpen) {
  return element("details", { open: isOpen }, element("summary", {}, title), long(text));
}

function block(content) {
  switch (content?.type) {
    case "text":
      return long(tidied(String(content.text)));
    case "image":
    case "audio":
      return media(content);
    case "resource_link":
      return element("p", { class: "block" }, link(content.uri, content.title ?? content.name), content.description ? ` – ${content.description}` : "");
    case "resource":
      return resource(content.resource ?? {});
    default:
      return long(pretty(content));
  }
}

function resource(resource) {
  const title = element("p", { class: "caption" }, link(resource.uri, resource.uri));
  if (typeof resource.text === "string") return element("div", {}, title, long(resource.text));
  return element("div", {}, title, media({ data: resource.blob, mimeType: resource.mimeType }));
}

/** JSON that came as one line is easier to read in several. */
function tidied(text) {
  if (text.length > TEXT_SHOWN || !/^\s*[[{]/.test(text)) return text;
  try {
    return pretty(JSON.parse(text));
  } catch {
    return text;
  }
}

function media({ data, mimeType }) {
  const type = String(mimeType).toLowerCase();
  if (typeof data !== "string" || !MEDIA.test(type) || !BASE64.test(data)) {
    return element("p", { class: "block" }, `${type}, ${typeof data === "string" ? Math.floor((data.length * 3) / 4) : 0} bytes`);
  }
  const src = `data:${type};base64,${data}`;
  if (type.startsWith("audio/")) return element("audio", { controls: true, src });
  return element("img", { class: "block", src, alt: `An image that the tool has made (${type})` });
}

/** Only addresses of the web can be followed; others are shown. */
function link(uri, words) {
  const address = String(uri);
  if (!/^https?:\/\//i.test(address)) return element("code", {}, words && words !== address ? `${words}: ${address}` : address);
  return element("a", { href: address, target: "_blank", rel: "noopener noreferrer" }, String(words ?? address));
}

function long(text) {
  const node = element("pre", { class: "block", tabindex: "0" }, text.slice(0, TEXT_SHOWN));
  if (text.length <= TEXT_SHOWN) return node;
  const rest = element("button", { type: "button", class: "quiet", onclick: () => { node.textContent = text; rest.remove(); } },
    `Show all ${text.length.toLocaleString("en")} characters`);
  return element("div", {}, node, rest);
}
