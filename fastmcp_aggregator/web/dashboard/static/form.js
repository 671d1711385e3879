// The form for a tool's arguments: fields made from its input schema, or all of it as JSON.

import { element } from "./dom.js";
import { fieldFor, Invalid, resolved } from "./fields.js";

/** A form for an input schema: its `node`, and `read()` for the arguments, or null once it has told what is wrong. */
export function argumentsForm(inputSchema) {
  const root = resolved(inputSchema, inputSchema);
  const properties = Object.entries(root.properties ?? {});
  const required = new Set(Array.isArray(root.required) ? root.required : []);
  const ordered = [...properties.filter(([name]) => required.has(name)), ...properties.filter(([name]) => !required.has(name))];
  const fields = ordered.map(([name, schema], number) =>
    fieldFor(name, schema, inputSchema, { isRequired: required.has(name), id: `argument-${number}` }));
  const raw = fieldFor("arguments", { type: "object", description: "All arguments as one JSON object." }, {}, { isRequired: true, id: "arguments-json" });
  const takesNone = fields.length === 0 && (root.additionalProperties === false || !root.additionalProperties);
  const parts = element("div", {}, takesNone ? element("p", { class: "notes" }, "Takes no arguments.") : fields.map((field) => field.node));
  const toggle = element("button", { type: "button", class: "quiet", "aria-pressed": "false", onclick: () => setRaw(raw.node.hidden) }, "As JSON");
  const node = element("div", { class: "arguments" }, parts, raw.node);
  raw.node.hidden = true;
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
    for (const field of fields) field.write(values.arguments[field.name]);
    return true;
  }

  return {
    node,
    toggle,
    read: () => {
      if (raw.node.hidden) return checked(fields);
      return checked([raw])?.arguments ?? null;
    },
  };
}

/** The values of fields by name; null if one of them is wrong, which is told there, and focused. */
function checked(fields) {
  const values = [];
  let first = null;
  for (const field of fields) {
    try {
      const value = field.read();
      field.tell("");
      if (value !== undefined) values.push([field.name, value]);
    } catch (error) {
      if (!(error instanceof Invalid)) throw error;
      field.tell(`${field.name} ${error.message}`);
      first ??= field.input;
    }
  }
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

