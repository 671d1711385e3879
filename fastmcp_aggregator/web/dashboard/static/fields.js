// One form field for each property of a JSON Schema. Whatever a field cannot express is written as JSON.

import { element } from "./dom.js";

const PLAIN = new Set(["string", "integer", "number", "boolean"]);
const INPUT_TYPES = { date: "date", time: "time", email: "email", password: "password" };
const REF_DEPTH = 8;

/** A problem with what was entered, in words for the person who did. */
export class Invalid extends Error {}

/** A schema with its local `$ref` followed and an alternative of null taken off. */
export function resolved(schema, root, depth = REF_DEPTH) {
  if (!schema || typeof schema !== "object") return {};
  if (typeof schema.$ref === "string" && depth > 0) {
    const { $ref, ...beside } = schema;
    return resolved({ ...target($ref, root), ...beside }, root, depth - 1);
  }
  const choices = schema.anyOf ?? schema.oneOf;
  if (Array.isArray(choices) && depth > 0) {
    const others = choices.filter((choice) => choice?.type !== "null");
    const { anyOf, oneOf, ...beside } = schema;
    if (others.length === 1) return resolved({ ...others[0], ...beside }, root, depth - 1);
  }
  if (Array.isArray(schema.type)) {
    const types = schema.type.filter((type) => type !== "null");
    return types.length === 1 ? { ...schema, type: types[0] } : { ...schema, type: undefined };
  }
  return schema;
}

function target(ref, root) {
  if (!ref.startsWith("#/")) return {};
  const steps = ref.slice(2).split("/").map((step) => step.replaceAll("~1", "/").replaceAll("~0", "~"));
  return steps.reduce((at, step) => (at && Object.hasOwn(at, step) ? at[step] : undefined), root) ?? {};
}

/** A field: its `node`, `read()` for its value (undefined: left out; throws Invalid), and `write(value)`. */
export function fieldFor(name, rawSchema, root, { isRequired, id }) {
  const schema = resolved(rawSchema, root);
  const input = control(schema, isRequired);
  input.id = id;
  const problem = element("p", { class: "problem", id: `${id}-problem` });
  const notes = element("p", { class: "notes", id: `${id}-notes` }, describe(schema));
  input.setAttribute("aria-describedby", `${id}-notes ${id}-problem`);
  if (isRequired) input.setAttribute("aria-required", "true");
  const node = element(
    "div",
    { class: "field" },
    element("label", { for: id }, element("code", {}, name), isRequired ? element("span", { class: "required" }, "required") : null,
      element("span", { class: "type" }, typeName(schema))),
    input, notes, problem,
  );
  const tell = (message) => {
    problem.textContent = message;
    if (message) input.setAttribute("aria-invalid", "true");
    else input.removeAttribute("aria-invalid");
  };
  return { name, node, input, tell, read: () => read(input, schema, isRequired), write: (value) => write(input, schema, value) };
}

function typeName(schema) {
  if (schema.type !== "boolean" && choicesOf(schema)) return "choice";
  if (schema.type === "string" && INPUT_TYPES[schema.format]) return schema.format;
  if (schema.type === "array" && typeof schema.items?.type === "string") return `array of ${schema.items.type}`;
  return schema.type ?? "JSON";
}

/** The values to choose from, where there are so few that they are listed. */
function choicesOf(schema) {
  if (schema.type === "boolean") return [true, false];
  if (Object.hasOwn(schema, "const")) return [schema.const];
  return Array.isArray(schema.enum) && schema.enum.length ? schema.enum : null;
}

function control(schema, isRequired) {
  const hint = schema.default === undefined ? "" : `default: ${shown(schema.default)}`;
  const choices = choicesOf(schema);
  if (choices) {
    const options = choices.map((choice) => element("option", { value: JSON.stringify(choice) }, shown(choice)));
    return element("select", {}, element("option", { value: "" }, isRequired ? "choose…" : hint || "not given"), options);
  }
  if (schema.type === "integer" || schema.type === "number") {
    const step = schema.type === "integer" ? "1" : "any";
    return element("input", { type: "number", step, placeholder: hint, min: schema.minimum, max: schema.maximum });
  }
  const type = INPUT_TYPES[schema.format];
  if (schema.type === "string" && type) return element("input", { type, placeholder: hint, autocomplete: "off" });
  const isJson = schema.type !== "string";
  const example = schema.type === "array" ? "[…]" : schema.type === "object" ? "{…}" : "JSON";
  return element("textarea", { rows: 1, spellcheck: "false", class: isJson ? "code" : null, placeholder: hint || (isJson ? example : "") });
}

const shown = (value) => (typeof value === "string" ? value : JSON.stringify(value));

/** What the schema says of the value, for people. */
function describe(schema) {
  const limits = [];
  const range = [schema.minimum, schema.maximum];
  if (range.some((limit) => limit !== undefined)) limits.push(`${range[0] ?? ""} … ${range[1] ?? ""}`.trim());
  if (schema.format && schema.type === "string" && !INPUT_TYPES[schema.format]) limits.push(schema.format);
  if (schema.pattern) limits.push(`matches ${schema.pattern}`);
  if (schema.maxLength !== undefined) limits.push(`at most ${schema.maxLength} characters`);
  return [typeof schema.description === "string" ? schema.description : schema.title, limits.length ? `(${limits.join("; ")})` : ""]
    .filter(Boolean)
    .join(" ");
}

function read(input, schema, isRequired) {
  if (input.validity?.badInput) throw new Invalid("is not a number");
  const text = input.value;
  if (text === "" && !(isRequired && schema.type === "string" && !choicesOf(schema))) {
    if (isRequired) throw new Invalid("is required");
    return undefined;
  }
  if (choicesOf(schema)) return JSON.parse(text);
  if (schema.type === "string") return text;
  if (schema.type === "integer" || schema.type === "number") return number(input, schema);
  return json(text, schema.type);
}

function number(input, schema) {
  const value = Number(input.value);
  if (schema.type === "integer" && !Number.isInteger(value)) throw new Invalid("must be a whole number");
  if (schema.type === "integer" && !Number.isSafeInteger(value)) throw new Invalid("is too large to be exact here");
  if (input.validity.rangeUnderflow || input.validity.rangeOverflow) {
    throw new Invalid(input.validity.rangeUnderflow ? `must be at least ${schema.minimum}` : `must be at most ${schema.maximum}`);
  }
  return value;
}

/** A value from JSON text, of a type if one is given. */
export function json(text, type) {
  let value;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new Invalid(`is not valid JSON: ${error.message}`);
  }
  if (type === "array" && !Array.isArray(value)) throw new Invalid("must be a JSON array, such as [1, 2]");
  if (type === "object" && (value === null || typeof value !== "object" || Array.isArray(value))) {
    throw new Invalid('must be a JSON object, such as {"name": "value"}');
  }
  return value;
}

function write(input, schema, value) {
  if (value === undefined) input.value = "";
  else if (choicesOf(schema)) input.value = JSON.stringify(value);
  else input.value = PLAIN.has(schema.type) ? String(value) : JSON.stringify(value, null, 2);
}
