// One form field for each property of a JSON Schema: objects, arrays and choices of schemas are made of further fields.
// Whatever a field cannot express is written as JSON.

import { element } from "./dom.js";

const PLAIN = new Set(["string", "integer", "number", "boolean"]);
const INPUT_TYPES = { date: "date", time: "time", email: "email", password: "password" };
const REF_DEPTH = 8;
const NESTED_DEPTH = 4;
const MOST_ITEMS = 100;
const MOST_FIELDS = 500;
let made = 0;

/** How many fields more a form may have: what a schema refers to may refer to it in turn. */
export class Room {
  #left = MOST_FIELDS;

  /** Take it for so many fields, if there is as much. */
  take(count) {
    const fits = count <= this.#left;
    if (fits) this.#left -= count;
    return fits;
  }

  /** Take it for a field that was asked for. */
  add() {
    this.#left -= 1;
  }

  /** Give back that of the fields in an element, which is to be removed. */
  giveBack(node) {
    this.#left += node.querySelectorAll(".field").length;
  }
}

/** A problem with what was entered, in words for the person who did; of a field in it, if there is one. */
export class Invalid extends Error {
  constructor(message, input = null) {
    super(message);
    this.input = input;
  }
}

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

/** The values of fields by name; and the first control whose value is wrong, which is told there. */
export function collected(fields) {
  const values = [];
  let first = null;
  for (const field of fields) {
    try {
      const value = field.read();
      field.tell("");
      if (value !== undefined) values.push([field.name, value]);
    } catch (error) {
      if (!(error instanceof Invalid)) throw error;
      field.tell(error.message && `${field.name} ${error.message}`);
      first ??= error.input ?? field.input;
    }
  }
  return { values, first };
}

/** The fields for the properties of an object, those that are required first. There is room for them. */
export function fieldsOf(schema, root, { id, room, depth = 0 }) {
  const properties = Object.entries(schema.properties ?? {});
  const required = new Set(Array.isArray(schema.required) ? schema.required : []);
  const ordered = [...properties.filter(([name]) => required.has(name)), ...properties.filter(([name]) => !required.has(name))];
  return ordered.map(([name, one], number) => fieldFor(name, one, root, { isRequired: required.has(name), id: `${id}-${number}`, room, depth }));
}

/**
 * A field: its `node`, the first `input` in it, `read()` for its value (undefined: left out; throws Invalid), `write(value)`
 * and `tell(problem)`.
 */
export function fieldFor(name, rawSchema, root, options) {
  const schema = resolved(rawSchema, root);
  const { isRequired, room, depth = 0 } = options;
  if (depth < NESTED_DEPTH) {
    const variants = variantsOf(schema, root);
    if (variants && room.take(isRequired ? 1 : 0)) return choiceField(name, schema, variants, root, options);
    const properties = schema.type === "object" ? countOf(schema) : 0;
    if (properties && room.take(properties)) return objectField(name, schema, root, options);
    const isList = schema.type === "array" && schema.items && typeof schema.items === "object" && !Array.isArray(schema.items) && !schema.prefixItems;
    if (isList && room.take(firstItems(schema, isRequired).length)) return arrayField(name, schema, root, options);
  }
  return plainField(name, schema, options);
}

/** How many properties an object has. */
export function countOf(schema) {
  return Object.keys(schema.properties ?? {}).length;
}

/** The values of the items that an array begins with. */
function firstItems(schema, isRequired) {
  if (isRequired && Array.isArray(schema.default)) return schema.default.slice(0, MOST_ITEMS);
  return new Array(Math.max(0, Math.min(Number(schema.minItems) || 0, 10))).fill(undefined);
}

function plainField(name, schema, { isRequired, id }) {
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
  if (isRequired && schema.default !== undefined) write(input, schema, schema.default);
  return { name, node, input, tell, read: () => read(input, schema, isRequired), write: (value) => write(input, schema, value) };
}

/** The frame of a field that is made of others. */
function framed(name, schema, isRequired, ...content) {
  const problem = element("p", { class: "problem" });
  const node = element("fieldset", { class: "field nested" },
    element("legend", {}, element("code", {}, name), isRequired ? element("span", { class: "required" }, "required") : null, element("span", { class: "type" }, typeName(schema))),
    element("p", { class: "notes" }, describe(schema)), ...content, problem);
  return { node, tell: (message) => { problem.textContent = message; } };
}

function objectField(name, schema, root, { isRequired, id, room, depth = 0 }) {
  const fields = fieldsOf(schema, root, { id, room, depth: depth + 1 });
  const frame = framed(name, schema, isRequired, fields.map((field) => field.node));
  const known = new Set(fields.map((field) => field.name));
  let others = {};
  return {
    ...frame,
    name,
    input: fields[0].input,
    read() {
      const { values, first } = collected(isEmpty() && !isRequired ? [] : fields);
      if (first) throw new Invalid("", first);
      const value = { ...others, ...Object.fromEntries(values) };
      return isRequired || Object.keys(value).length ? value : undefined;
    },
    write(value) {
      const given = value && typeof value === "object" ? value : {};
      others = Object.fromEntries(Object.entries(given).filter(([key]) => !known.has(key)));
      for (const field of fields) field.write(given[field.name]);
    },
  };

  /** Whether nothing was entered, so that an object that may be left out is. */
  function isEmpty() {
    return fields.every((field) => {
      try {
        const value = field.read();
        return value === undefined || value === "";
      } catch {
        return [...field.node.querySelectorAll("input, textarea, select")].every((one) => one.value === "");
      }
    });
  }
}

function arrayField(name, schema, root, { isRequired, id, room, depth = 0 }) {
  const list = element("div", { class: "items" });
  const add = element("button", { type: "button", class: "quiet", onclick: () => added()?.input.focus() }, "Add");
  const frame = framed(name, schema, isRequired, list, element("p", { class: "actions" }, add));
  add.setAttribute("aria-label", `Add to ${name}`);
  let items = [];
  for (const value of firstItems(schema, isRequired)) append(value);

  function added(value) {
    if (items.length >= Math.min(schema.maxItems ?? MOST_ITEMS, MOST_ITEMS)) return null;
    room.add();
    return append(value);
  }
  function append(value) {
    made += 1;
    const field = fieldFor(`${name}[${items.length}]`, schema.items, root, { isRequired: true, id: `${id}-item-${made}`, room, depth: depth + 1 });
    const remove = element("button", { type: "button", class: "quiet remove", "aria-label": `Remove ${field.name}`, onclick: () => {
      items = items.filter((one) => one !== field);
      room.giveBack(row);
      row.remove();
      add.focus();
    } }, "Remove");
    const row = element("div", { class: "item" }, field.node, remove);
    field.write(value);
    items.push(field);
    list.append(row);
    return field;
  }
  function write(value) {
    items = [];
    room.giveBack(list);
    list.replaceChildren();
    for (const one of Array.isArray(value) ? value : []) added(one);
  }
  return {
    ...frame,
    name,
    input: add,
    read() {
      const { values, first } = collected(items);
      if (first) throw new Invalid("", first);
      if (items.length < (schema.minItems ?? 0)) throw new Invalid(`needs at least ${schema.minItems}`, add);
      return items.length || isRequired ? values.map(([, value]) => value) : undefined;
    },
    write,
  };
}

/** The alternatives of a schema, where there are several and each has fields of its own or a type. */
function variantsOf(schema, root) {
  const choices = schema.oneOf ?? schema.anyOf;
  if (!Array.isArray(choices) || choices.length > MOST_ITEMS || schema.enum) return null;
  const found = choices.map((choice) => resolved(choice, root)).filter((choice) => choice.type !== "null");
  return found.length > 1 && found.every((choice) => choice.type || choice.properties || choice.enum || Object.hasOwn(choice, "const")) ? found : null;
}

function choiceField(name, schema, variants, root, { isRequired, id, room, depth = 0 }) {
  const titles = variants.map((variant, number) => variant.title ?? constantOf(variant) ?? `${typeName(variant)}${variants.filter((one) => typeName(one) === typeName(variant)).length > 1 ? ` ${number + 1}` : ""}`);
  const select = element("select", { "aria-label": `Kind of ${name}`, onchange: () => choose(select.value) },
    isRequired ? null : element("option", { value: "" }, "not given"), titles.map((title, number) => element("option", { value: String(number) }, title)));
  const place = element("div", {});
  const frame = framed(name, { ...schema, type: "choice" }, isRequired, select, place);
  let field = null;
  function choose(number) {
    room.giveBack(place);
    if (number !== "") room.add();
    show(number);
  }
  function show(number) {
    made += 1;
    select.value = number;
    field = number === "" ? null : fieldFor(name, { type: variants[number].properties ? "object" : undefined, ...variants[number] }, root, { isRequired: true, id: `${id}-choice-${made}`, room, depth: depth + 1 });
    place.replaceChildren(...(field ? [field.node] : []));
  }
  show(isRequired ? "0" : "");
  return {
    ...frame,
    name,
    input: select,
    read() {
      if (!field) return undefined;
      const { values, first } = collected([field]);
      if (first) throw new Invalid("", first);
      return values[0]?.[1];
    },
    write(value) {
      if (value === undefined) choose(isRequired ? "0" : "");
      else {
        choose(String(Math.max(0, variants.findIndex((variant) => mayBe(value, variant, root)))));
        field.write(value);
      }
    },
  };
}

/** What a variant is told by: a property with one value. */
function constantOf(variant) {
  const found = Object.entries(variant.properties ?? {}).find(([, one]) => one && Object.hasOwn(one, "const"));
  return found ? String(found[1].const) : null;
}

function mayBe(value, variant, root) {
  if (Object.hasOwn(variant, "const")) return variant.const === value;
  if (variant.enum) return variant.enum.includes(value);
  const type = Array.isArray(value) ? "array" : typeof value;
  if (variant.properties || variant.type === "object") {
    if (type !== "object" || value === null) return false;
    return Object.entries(variant.properties ?? {}).every(([name, one]) => !Object.hasOwn(resolved(one, root), "const") || resolved(one, root).const === value[name]);
  }
  return variant.type === type || (type === "number" && (variant.type === "integer" ? Number.isInteger(value) : variant.type === "number"));
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
    const isOnly = isRequired && choices.length === 1;
    return element("select", {}, isOnly ? null : element("option", { value: "" }, isRequired ? "choose…" : hint || "not given"), options);
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
  if (value === undefined) input.value = input.tagName === "SELECT" && !input.querySelector('option[value=""]') ? input.options[0].value : "";
  else if (choicesOf(schema)) input.value = JSON.stringify(value);
  else input.value = PLAIN.has(schema.type) ? String(value) : JSON.stringify(value, null, 2);
}
