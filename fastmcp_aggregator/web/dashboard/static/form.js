// The form for a tool's arguments: fields made from its input schema, or all of it as JSON.

import { element } from "./dom.js";
import { collected, countOf, fieldFor, fieldsOf, Invalid, resolved, Room } from "./fields.js";

/** A form for an input schema: its `node`, `read()` for the arguments, or null once it has told what is wrong; `write`. */
export function argumentsForm(inputSchema) {
  const root = resolved(inputSchema, inputSchema);
  const room = new Room();
  const fields = room.take(countOf(root)) ? fieldsOf(root, inputSchema, { id: "argument", room }) : [];
  const raw = fieldFor("arguments", { type: "object", description: "All arguments as one JSON object." }, {}, { isRequired: true, id: "arguments-json", room });
  const takesNone = countOf(root) === 0 && (root.additionalProperties === false || !root.additionalProperties);
  const parts = element("div", {}, takesNone ? element("p", { class: "notes" }, "Takes no arguments.") : fields.map((field) => field.node));
  const toggle = element("button", { type: "button", class: "quiet", "aria-pressed": "false", onclick: () => setRaw(raw.node.hidden) }, "As JSON");
  const node = element("div", { class: "arguments" }, parts, raw.node);
  raw.node.hidden = true;
  toggle.hidden = fields.length === 0 && !takesNone;
  if (fields.length === 0 && !takesNone) setRaw(true);

  function setRaw(isRaw) {
    if (isRaw) raw.write(lenient(fields));
    else if (!takeBack()) return;
    raw.node.hidden = !isRaw;
    parts.hidden = isRaw;
    toggle.setAttribute("aria-pressed", String(isRaw));
  }

  /** Fill the fields with what was written as JSON; whether it could be read. */
  function takeBack() {
    const values = checked([raw]);
    if (values === null) return false;
    write(values.arguments);
    return true;
  }

  function write(values) {
    for (const field of fields) field.write(values[field.name]);
  }

  return {
    node,
    toggle,
    write: (values) => {
      if (raw.node.hidden) write(values);
      else raw.write(values);
    },
    read: () => {
      if (raw.node.hidden) return checked(fields);
      return checked([raw])?.arguments ?? null;
    },
  };
}

/** The values of fields by name; null if one of them is wrong, which is told there, and focused. */
function checked(fields) {
  const { values, first } = collected(fields);
  first?.focus();
  return first ? null : Object.fromEntries(values);
}

/** What is right so far. */
function lenient(fields) {
  const values = {};
  for (const field of fields) {
    try {
      const value = field.read();
      if (value !== undefined && value !== "") values[field.name] = value;
    } catch (error) {
      if (!(error instanceof Invalid)) throw error;
    }
  }
  return values;
}
