// The filters of a list; they are in the address, so that a link shows the same rows.

import { freshId, h } from "../dom.js";
import { t } from "../i18n.js";

const TYPED_MS = 350;

/**
 * A row of filters.
 *
 * @param {Array<{name: string, label: string, kind: "text"|"select"|"date"|"moment", options: Array, hint: string}>} filters - options
 *   `[{value, label}]`, to which "any" is added; a hint stands in an empty text
 * @param {URLSearchParams} query - what is chosen
 * @param {function(Object): void} changed - gets the changes, as `place.change` takes them
 */
export function filterRow(filters, query, changed) {
  let timer = 0;
  const inputs = filters.map((filter) => {
    const input = control(filter, query.get(filter.name) ?? "");
    input.id = freshId("filter");
    const apply = () => {
      clearTimeout(timer);
      // A text is applied once the typing pauses.
      timer = setTimeout(() => changed({ [filter.name]: input.value.trim() || null }), filter.kind === "text" ? TYPED_MS : 0);
    };
    input.addEventListener(filter.kind === "text" ? "input" : "change", apply);
    return input;
  });
  const reset = () => {
    clearTimeout(timer);
    for (const input of inputs) input.value = "";
    changed(Object.fromEntries(filters.map(({ name }) => [name, null])));
  };
  const fields = filters.map((filter, index) => h("div", { class: "field" }, h("label", { for: inputs[index].id }, filter.label), inputs[index]));
  return h(
    "form",
    { class: "filters", role: "search", on: { submit: (event) => event.preventDefault() } },
    fields,
    h("button", { type: "button", class: "plain", on: { click: reset } }, t("common.reset")),
  );
}

/** Return the filters that are set. */
export function chosen(filters, query) {
  const entries = filters.map(({ name }) => [name, query.get(name)]);
  return Object.fromEntries(entries.filter(([, value]) => value));
}

function control(filter, value) {
  if (filter.kind === "select") {
    const options = [{ value: "", label: t("common.any") }, ...filter.options];
    return h("select", { name: filter.name }, options.map((option) => h("option", { value: option.value, selected: option.value === value }, option.label)));
  }
  const type = { date: "date", moment: "datetime-local" }[filter.kind] ?? "search";
  return h("input", { type, name: filter.name, placeholder: filter.hint ?? "", autocomplete: "off", spellcheck: "false", ".value": value });
}
