// Forms: labelled fields that show the API's errors beside the field.

import { clear, freshId, h, markCode } from "../dom.js";
import { t } from "../i18n.js";
import { busy, problemBox } from "./problem.js";

/**
 * A form.
 *
 * @param {Object} given
 * @param {Array<Object>} given.fields - `{name, label, kind, hint, required, options}`; kind is an input's type, or
 *   "textarea", "select" (`options` `[{value, label}]`), "checkbox", "custom" (`element`, an Element with `.value`);
 *   `attributes` go to the input
 * @param {function(Object, HTMLFormElement): Promise<*>} given.submit - gets the values by name: text as strings, a
 *   number as a number or null where empty, a checkbox as a boolean; a Problem that it throws is shown
 * @param {Object} [given.values] - values to begin with
 * @param {string} [given.action] - the text of the button
 * @param {Array<Node>} [given.extra] - buttons beside it
 * @returns {HTMLFormElement} `element.showProblem(problem)` shows a problem from elsewhere; null clears it
 */
export function form({ fields, submit, values = {}, action = t("common.save"), extra = [] }) {
  const rows = new Map(fields.map((field) => [field.name, row(field, values[field.name])]));
  const trouble = h("div", { class: "form-problem" });
  const button = h("button", { class: "primary" }, action);
  const element = h(
    "form",
    { class: "form" },
    [...rows.values()].map((each) => each.element),
    trouble,
    h("div", { class: "form-buttons" }, button, extra),
  );
  element.showProblem = (problem) => showErrors(problem, rows, trouble);
  element.addEventListener("submit", async (event) => {
    event.preventDefault();
    element.showProblem(null);
    const read = Object.fromEntries([...rows].map(([name, each]) => [name, each.read()]));
    try {
      await busy(submit(read, element), button);
    } catch (problem) {
      if (problem.name !== "Problem") console.error(problem);
      element.showProblem(problem);
    }
  });
  return element;
}

function row(field, value) {
  const [id, hintId, faultId] = [freshId("field"), freshId("hint"), freshId("fault")];
  const input = field.kind === "custom" ? field.element : control(field, value);
  input.id ||= id;
  const fault = h("small", { class: "fault", id: faultId, hidden: true });
  const hint = field.hint ? h("small", { class: "quiet", id: hintId }, field.hint) : null;
  input.setAttribute("aria-describedby", hint ? `${hintId} ${faultId}` : faultId);
  const label = h("label", { for: input.id }, field.label);
  const element = field.kind === "checkbox"
    ? h("div", { class: "field tick" }, input, label, hint, fault)
    : h("div", { class: "field" }, label, input, hint, fault);
  return { element, input, fault, read: () => read(field, input) };
}

function control(field, value) {
  const given = { name: field.name, required: field.required, autocomplete: field.autocomplete ?? "off", ...field.attributes };
  if (field.kind === "checkbox") return h("input", { type: "checkbox", name: field.name, checked: Boolean(value), ...field.attributes });
  if (field.kind === "select") {
    const options = field.options.map((option) => h("option", { value: option.value, selected: String(option.value) === String(value ?? "") }, option.label));
    return h("select", { name: field.name, required: field.required, ...field.attributes }, options);
  }
  if (field.kind === "textarea") return h("textarea", { rows: 4, spellcheck: "false", ...given, ".value": value ?? "" });
  return h("input", { type: field.kind ?? "text", ...given, ".value": value ?? "" });
}

function read(field, input) {
  if (field.kind === "checkbox") return input.checked;
  if (field.kind === "number") return input.value === "" ? null : input.valueAsNumber;
  return input.value;
}

function showErrors(problem, rows, trouble) {
  for (const { input, fault } of rows.values()) {
    input.removeAttribute("aria-invalid");
    fault.hidden = true;
  }
  trouble.replaceChildren();
  if (!problem) return;
  const rest = (problem.errors ?? []).filter((error) => !atField(error, rows));
  const first = [...rows.values()].find(({ fault }) => !fault.hidden);
  // The problem's sentence names every field; it is left out if each error is shown at its field.
  if (rest.length || !first) trouble.append(problemBox(Object.assign(Object.create(problem), { errors: rest })));
  first?.input.focus();
}

function atField(error, rows) {
  const at = error.path ?? error.field ?? error.pointer ?? "";
  const name = at.replace(/^\//, "").split(/[./[]/)[0];
  const found = rows.get(at) ?? rows.get(name);
  if (!found) return false;
  // A field may hold a whole record; then each error names the place in it.
  const inside = rows.has(at) ? "" : at.replace(/^\//, "").slice(name.length).replace(/^[./]/, "");
  const text = inside ? `${inside}: ${error.message}` : error.message;
  if (found.fault.hidden) clear(found.fault, markCode(text));
  else found.fault.append(" ", ...markCode(text));
  found.fault.hidden = false;
  found.input.setAttribute("aria-invalid", "true");
  return true;
}
