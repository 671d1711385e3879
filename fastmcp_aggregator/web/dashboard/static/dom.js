// Elements out of plain values. Text is only ever set as text: what servers say of themselves is not to be trusted.
// Nor may it hide something or turn round what stands beside it: characters that nobody sees become marks.

// Controls but tab and newline, those of the direction of text, blanks without a width, and tags; joiners where no script
// or emoji needs them.
const UNSEEN = new RegExp(
  "[\\u0000-\\u0008\\u000b\\u000c\\u000e-\\u001f\\u007f-\\u009f\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180e\\u200b\\u200e\\u200f" +
  "\\u2028-\\u202e\\u2060-\\u206f\\u2800\\u3164\\ufeff\\uffa0\\ufff9-\\ufffb\\u{e0000}-\\u{e0fff}]|(?<=[ -~]|^)[\\u200c\\u200d]|[\\u200c\\u200d](?=[ -~]|$)",
  "gu",
);

/** A text with marks for what nobody sees in it: `[U+202E]`. */
export function visible(text) {
  return String(text).replace(UNSEEN, (character) => `[U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}]`);
}

/** An element with attributes, `on…` listeners and children; children that are null or false are left out. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "class") made.className = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  const shown = children.flat().filter((child) => child !== null && child !== undefined && child !== false);
  made.append(...shown.map((child) => (child instanceof Node ? child : visible(child))));
  return made;
}

export const byId = (id) => document.getElementById(id);

/** Set a text if it is another one, so that a selection in it stays where nothing has changed. */
export function setText(node, text) {
  const shown = visible(text);
  if (node.textContent !== shown) node.textContent = shown;
}

/** Set an attribute if it is another one; null takes it away. */
export function setAttribute(node, name, value) {
  if (value === null) node.removeAttribute(name);
  else if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

/**
 * Make the children of a node those of a list of items: nodes of items that stay are kept, with the focus in them.
 * `make` makes the node of a new item, `fill` brings any node up to date.
 */
export function reconcile(parent, items, keyOf, make, fill) {
  const before = new Map([...parent.children].map((node) => [node.dataset.item, node]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const key = String(keyOf(item));
    let node = before.get(key);
    before.delete(key);
    if (!node) {
      node = make(item);
      node.dataset.item = key;
    }
    fill(node, item);
    if (node === place) place = place.nextElementSibling;
    else parent.insertBefore(node, place);
  }
  for (const node of before.values()) node.remove();
}
