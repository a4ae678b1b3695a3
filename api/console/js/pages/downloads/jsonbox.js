// A text box for JSON with numbered lines, of which those with a fault are marked.

import { clear, h, markCode } from "../../dom.js";
import { t } from "../../i18n.js";
import { find, lineOf } from "./jsontext.js";
import { steps } from "./template.js";

/**
 * The box; `element.value` is its text.
 *
 * `element.showFault(faults)` marks `[{path, message}]` at their lines and returns those that it shows; `element.broken()` is what
 * is wrong with the text as JSON, null where nothing is.
 *
 * @param {function(): void} typed - called after each change
 */
export function jsonBox(typed) {
  const gutter = h("div", { class: "gutter", "aria-hidden": "true" });
  const area = h("textarea", { rows: 14, spellcheck: "false", "aria-label": t("downloads.editor.json"), wrap: "off" });
  const list = h("ul", { class: "json-faults" });
  const element = h("div", { class: "json-box" }, h("div", { class: "json-lines" }, gutter, area), list);
  let marked = new Set();

  let waits = false;
  // Once a frame: a browser may report a long text line by line while it is inserted.
  const number = () => {
    if (waits) return;
    waits = true;
    requestAnimationFrame(() => {
      waits = false;
      const count = area.value.split("\n").length;
      while (gutter.children.length > count) gutter.lastChild.remove();
      while (gutter.children.length < count) gutter.append(h("span", {}, gutter.children.length + 1));
      [...gutter.children].forEach((line, index) => line.classList.toggle("faulty", marked.has(index)));
      gutter.scrollTop = area.scrollTop;
    });
  };
  area.addEventListener("scroll", () => (gutter.scrollTop = area.scrollTop));
  area.addEventListener("input", () => {
    number();
    typed();
  });

  Object.defineProperty(element, "value", {
    get: () => area.value,
    set(text) {
      area.value = text;
      number();
    },
  });
  element.broken = () => {
    try {
      if (area.value.trim()) JSON.parse(area.value);
      return null;
    } catch (error) {
      return error.message;
    }
  };
  element.showFault = (faults) => {
    const broken = element.broken();
    const placed = broken || !area.value.trim() ? [] : faults.map((fault) => ({ ...fault, ...find(area.value, steps(fault.path)) }));
    marked = new Set(placed.map(({ start }) => lineOf(area.value, start)));
    number();
    area.setAttribute("aria-invalid", String(Boolean(broken) || faults.length > 0));
    clear(list, broken ? h("li", {}, t("downloads.editor.broken", { why: broken })) : null, placed.map((fault) => item(fault, area)));
  };
  number();
  return element;
}

function item({ path, message, start, end }, area) {
  const show = () => {
    area.focus();
    area.setSelectionRange(start, end);
    const height = area.scrollHeight / area.value.split("\n").length;
    area.scrollTop = Math.max(0, (lineOf(area.value, start) - 3) * height);
  };
  const line = lineOf(area.value, start) + 1;
  return h("li", {}, h("button", { type: "button", class: "plain", on: { click: show } }, t("downloads.editor.line", { n: line })), h("code", {}, path), " ", markCode(message));
}
