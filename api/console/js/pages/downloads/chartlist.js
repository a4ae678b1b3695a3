// The charts of a template: one row each, by the keys of the columns that they show.

import { clear, freshId, h, markCode } from "../../dom.js";
import { has, t } from "../../i18n.js";

const KINDS = ["line", "column", "bar", "pie"];

/**
 * The list; it has `showFault`, `quiet` and `focusOn` as a tree has.
 *
 * @param {Array<Object>} list - changed in place
 * @param {{typed: function(): void, changing: function(): void, changed: function(): void}} owner
 * @param {function(): Array<string>} keys - of the columns there are
 */
export function chartList(list, owner, keys) {
  const rows = [];
  const element = h("div", { class: "charts" });
  const draw = () => {
    rows.length = 0;
    clear(element, list.map((chart, index) => row(chart, index)));
  };
  const row = (chart, index) => {
    const options = h("datalist", { id: freshId("keys") }, keys().map((key) => h("option", { value: key })));
    const inputs = {
      type: h("select", {}, h("option", { value: "" }, t("downloads.node.unsaid")), KINDS.map((kind) => h("option", { value: kind, selected: kind === chart.type }, t(`downloads.chart.${kind}`)))),
      title: h("input", { type: "text", ".value": text(chart.title) }),
      categories: h("input", { type: "text", list: options.id, ".value": text(chart.categories) }),
      values: h("input", { type: "text", ".value": [chart.values ?? []].flat().join(", ") }),
    };
    for (const [name, input] of Object.entries(inputs)) {
      input.addEventListener("input", () => {
        const said = name === "values" ? input.value.split(",").map((key) => key.trim()).filter(Boolean) : input.value;
        if (said.length) chart[name] = said;
        else delete chart[name];
        owner.typed();
      });
    }
    const faults = h("ul", { class: "chart-faults", id: freshId("fault"), hidden: true });
    const remove = h("button", { type: "button", class: "plain", "aria-label": `${t("downloads.tree.remove")}: ${t("downloads.editor.chart", { n: index + 1 })}`, on: { click: () => drop(index) } }, "×");
    rows.push({ inputs, faults });
    const fields = Object.entries(inputs).map(([name, input]) => h("label", { class: "small-field" }, h("span", {}, t(`downloads.chartField.${name}`)), input));
    return h("div", { class: "more-row", role: "group", "aria-label": t("downloads.editor.chart", { n: index + 1 }) }, fields, remove, options, faults);
  };
  const drop = (index) => {
    owner.changing();
    list.splice(index, 1);
    draw();
    owner.changed();
  };
  draw();
  return Object.assign(element, {
    showFault(at, field, rest, message) {
      const found = rows[at[0]];
      if (!found) return false;
      found.inputs[field]?.setAttribute("aria-invalid", "true");
      found.inputs[field]?.setAttribute("aria-describedby", found.faults.id);
      found.faults.hidden = false;
      const name = field && has(`downloads.chartField.${field}`) ? t(`downloads.chartField.${field}`) : field;
      found.faults.append(h("li", {}, name ? h("b", {}, `${name}: `) : null, markCode(message)));
      return true;
    },
    quiet() {
      for (const { inputs, faults } of rows) {
        faults.hidden = true;
        clear(faults);
        for (const input of Object.values(inputs)) input.removeAttribute("aria-invalid");
      }
    },
    focusOn: (at, field) => rows[at[0]]?.inputs[field ?? "type"]?.focus(),
  });
}

function text(value) {
  return value === null || value === undefined ? "" : String(value);
}
