// Fields of the form for a new export: each knows how it is read, and shows what is wrong with it beside itself.

import { clear, freshId, h, markCode } from "../../dom.js";
import { t } from "../../i18n.js";

const UNITS = [["seconds", 1], ["minutes", 60], ["hours", 3600], ["days", 86400]];

/**
 * A labelled field.
 *
 * @param {Object} given - `{name, label, hint, kind, options, value, attributes, read}`; kind is "text", "number",
 *   "select", "choice" (radio buttons in a row), "check", "area", "json", "headers", "span" (a length of time in seconds)
 * @returns {{name: string, element: Element, read: function(): *, showFault: function(?string): void, focus: function(): void}}
 *   `read` gives undefined where nothing is said, and throws a SyntaxError for text that is no JSON
 */
export function field(given) {
  const [id, hintId, faultId] = [freshId("field"), freshId("hint"), freshId("fault")];
  const made = (KINDS[given.kind ?? "text"])({ ...given, id });
  const fault = h("small", { class: "fault", id: faultId, hidden: true });
  const hint = given.hint ? h("small", { class: "quiet", id: hintId }, given.hint) : null;
  for (const input of made.inputs) input.setAttribute("aria-describedby", hint ? `${hintId} ${faultId}` : faultId);
  const label = made.group ? h("span", { id: `${id}-label` }, given.label) : h("label", { for: id }, given.label);
  if (made.group) made.control.setAttribute("aria-labelledby", `${id}-label`);
  const parts = given.kind === "check" ? [made.control, label] : [label, made.control];
  return {
    name: given.name,
    element: h("div", { class: ["field", given.kind === "check" && "tick", `of-${given.name}`] }, parts, hint, fault),
    read: made.read,
    focus: () => made.inputs[0].focus(),
    showFault(message) {
      clear(fault, markCode(message));
      fault.hidden = !message;
      for (const input of made.inputs) {
        if (message) input.setAttribute("aria-invalid", "true");
        else input.removeAttribute("aria-invalid");
      }
    },
  };
}

/** JSON as it was typed: its text where it is JSON, undefined where there is none. @throws {SyntaxError} */
export function jsonText(text) {
  if (!text.trim()) return undefined;
  JSON.parse(text);
  return text.trim();
}

/** Text that is put into a JSON text unchanged. */
export class Raw {
  constructor(text) {
    this.text = text;
  }
}

const KINDS = {
  text: ({ id, name, value = "", attributes }) => simple(h("input", { id, name, type: "text", autocomplete: "off", spellcheck: "false", ...attributes, ".value": value }), (input) => input.value.trim() || undefined),
  number: ({ id, name, value = "", attributes }) => simple(h("input", { id, name, type: "number", step: "any", ...attributes, ".value": value }), (input) => (input.value === "" ? undefined : input.valueAsNumber)),
  area: ({ id, name, value = "", attributes }) => simple(h("textarea", { id, name, rows: 3, ...attributes, ".value": value }), (input) => input.value.trim() ? input.value : undefined),
  json: ({ id, name, value = "", attributes }) => simple(h("textarea", { id, name, rows: 4, spellcheck: "false", ...attributes, ".value": value }), (input) => {
    const text = jsonText(input.value);
    return text === undefined ? undefined : new Raw(text);
  }),
  headers: ({ id, name }) => simple(h("textarea", { id, name, rows: 3, spellcheck: "false", placeholder: "Authorization: Bearer …" }), readHeaders),
  check: ({ id, name, value }) => simple(h("input", { id, name, type: "checkbox", ".checked": Boolean(value) }), (input) => (input.checked === Boolean(value) ? undefined : input.checked)),
  select: ({ id, name, options, value = "" }) => simple(h("select", { id, name }, options.map((option) => h("option", { value: option.value, selected: option.value === value }, option.label))), (input) => (input.value === value ? undefined : input.value)),
  choice: ({ id, name, options, value }) => {
    const inputs = options.map((option) => h("input", { type: "radio", name: `${name}-${id}`, value: option.value, ".checked": option.value === value }));
    const control = h("div", { class: "choice", role: "radiogroup" }, options.map((option, index) => h("label", {}, inputs[index], h("span", {}, option.label))));
    return { control, inputs, group: true, read: () => inputs.find((input) => input.checked).value };
  },
  span: ({ id, name, unit }) => {
    const count = h("input", { id, name, type: "number", min: 0, step: "any" });
    const units = h("select", { "aria-label": t("downloads.new.unit") }, UNITS.map(([word, size]) => h("option", { value: size, selected: word === unit }, t(`downloads.new.${word}`))));
    return { control: h("div", { class: "span-field" }, count, units), inputs: [count], read: () => (count.value === "" ? undefined : Math.round(count.valueAsNumber * Number(units.value))) };
  },
};

function simple(input, read) {
  return { control: input, inputs: [input], read: () => read(input) };
}

function readHeaders(input) {
  const lines = input.value.split("\n").filter((line) => line.trim());
  if (!lines.length) return undefined;
  return Object.fromEntries(lines.map((line) => {
    const colon = line.indexOf(":");
    // Without a colon it is no header: the API says so about the whole line.
    return colon < 0 ? [line.trim(), ""] : [line.slice(0, colon).trim(), line.slice(colon + 1).trim()];
  }));
}
