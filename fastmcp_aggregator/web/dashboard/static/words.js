// Times, counts, states and addresses in words.

// A number stays on one line with its unit.
const joined = (...parts) => parts.join("\u00a0");

/** A duration in seconds, in the one or two units that matter. */
export function forTime(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return joined(whole, "s");
  if (whole < 3600) return joined(Math.floor(whole / 60), "min", pad(whole % 60), "s");
  if (whole < 86400) return joined(Math.floor(whole / 3600), "h", pad(Math.floor(whole / 60) % 60), "min");
  return joined(Math.floor(whole / 86400), "d", Math.floor(whole / 3600) % 24, "h");
}

const pad = (number) => String(number).padStart(2, "0");

/** How long a call took. */
export function took(seconds) {
  if (seconds < 0.0995) return joined((seconds * 1000).toFixed(1), "ms");
  if (seconds < 0.9995) return joined(Math.round(seconds * 1000), "ms");
  return seconds < 60 ? joined(seconds.toFixed(2), "s") : forTime(seconds);
}

/** The time of day, by the browser's clock. */
export function timeOfDay(date) {
  return [date.getHours(), date.getMinutes(), date.getSeconds()].map(pad).join(":");
}

/** A part of an address as it is meant, or as it is if it is not valid. */
export function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** `3 tools`, `1 tool`. */
export const count = (number, noun) => joined(number, number === 1 ? noun : `${noun}s`);

/** What a server or a group offers: only what there is. */
export function offers({ tools, resources, prompts, for_each_caller: isForEach }) {
  if (isForEach) return "as each account sees it";
  const parts = [[tools, "tool"], [resources, "resource"], [prompts, "prompt"]];
  return parts.filter(([number]) => number).map(([number, noun]) => count(number, noun)).join(", ");
}

/** A public name without the key of its server, where that is clear from the place. */
export function ownName(key, name) {
  const separator = [":", "__", ".", "_"].find((one) => name.startsWith(key + one));
  return separator && name.length > key.length + separator.length ? name.slice(key.length + separator.length) : name;
}

export const STATES = { sleeping: "sleeping", initializing: "starting", running: "running", failed: "failed", stopped: "stopped" };

export const OUTCOMES = {
  ok: "ok",
  tool_error: "tool error",
  input_required: "asks back",
  error: "error",
  denied: "denied",
  cancelled: "cancelled",
};
