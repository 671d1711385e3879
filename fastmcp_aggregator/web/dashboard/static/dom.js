// Elements out of plain values. Text is only ever set as text: what servers say of themselves is not to be trusted.

/** An element with attributes, `on…` listeners and children; children that are null or false are left out. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "class") made.className = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

export const byId = (id) => document.getElementById(id);

/** Set a text if it is another one, so that a selection in it stays where nothing has changed. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
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
