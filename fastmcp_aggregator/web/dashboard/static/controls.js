// Small controls: a button that copies, a question before something is done, a dialog, and a line of the last hour.

import { element, setText } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
const MINUTES = 60;
const WIDTH = 120;
const HEIGHT = 22;

/** A button that copies what `text()` gives. */
export function copyButton(text, label = "Copy") {
  const button = element("button", { type: "button", class: "quiet copy", onclick: copy }, label);
  async function copy() {
    try {
      await navigator.clipboard.writeText(text());
      setText(button, "Copied");
    } catch {
      setText(button, "Not copied");
    }
    setTimeout(() => setText(button, label), 1500);
  }
  return button;
}

/** Ask before something is done that cannot be undone; whether it may be. */
export function asked(question, yes) {
  return new Promise((resolve) => {
    const node = element("dialog", { class: "question", onclose: () => { node.remove(); resolve(node.returnValue === "yes"); } },
      element("form", { method: "dialog" }, element("p", {}, question),
        element("p", { class: "actions" }, element("button", { value: "no", autofocus: true }, "Cancel"), element("button", { value: "yes", class: "danger" }, yes))));
    document.body.append(node);
    node.showModal();
  });
}

/** A dialog with a title; what it contains is given. It is gone when it is closed. */
export function dialog(title, ...content) {
  const close = element("button", { type: "button", class: "quiet", onclick: () => node.close() }, "Close");
  const node = element("dialog", { class: "wide", onclose: () => node.remove(), "aria-label": title },
    element("div", { class: "heading" }, element("h2", {}, title), close), ...content);
  document.body.append(node);
  node.showModal();
  return node;
}

/** The calls of each minute as bars, the failed ones at their foot. `minutes` are `[age, calls, failed, p99]`. */
export function sparkline(minutes) {
  const most = Math.max(1, ...minutes.map(([, calls]) => calls));
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  svg.setAttribute("class", "spark");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", wordsOf(minutes));
  const step = WIDTH / MINUTES;
  for (const [age, calls, failed] of minutes) {
    const x = WIDTH - (age + 1) * step;
    svg.append(bar(x, step, (calls / most) * HEIGHT, "calls"));
    if (failed) svg.append(bar(x, step, Math.max(2, (failed / most) * HEIGHT), "failed"));
  }
  return svg;
}

function bar(x, width, height, kind) {
  const rect = document.createElementNS(SVG, "rect");
  for (const [name, value] of Object.entries({ x, y: HEIGHT - height, width: width * 0.8, height, class: kind })) rect.setAttribute(name, value);
  return rect;
}

/** The same in words. */
export function wordsOf(minutes) {
  const calls = minutes.reduce((sum, one) => sum + one[1], 0);
  const failed = minutes.reduce((sum, one) => sum + one[2], 0);
  return `${calls} calls in the last hour, ${failed} failed`;
}

/** Of the last five minutes: calls a minute, the share of failed ones, and the longest p99 in seconds. */
export function lately(minutes) {
  const recent = minutes.filter(([age]) => age < 5);
  const calls = recent.reduce((sum, one) => sum + one[1], 0);
  const failed = recent.reduce((sum, one) => sum + one[2], 0);
  return { rate: calls / 5, failed: calls ? failed / calls : 0, p99: Math.max(0, ...recent.map((one) => one[3])) };
}
