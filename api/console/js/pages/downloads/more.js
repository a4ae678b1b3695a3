// What a node of a template says besides the common fields: behind the fold of its row.

import { clear, h } from "../../dom.js";
import { has, t } from "../../i18n.js";
import { control, read } from "./nodefields.js";

const V_ALIGNS = ["v-align", "v_align", "valign"];
const RULE_FIELDS = ["condition", "color", "bold", "bg_color"];

/**
 * The rest of a node.
 *
 * @param {"col"|"row"} region
 * @param {Object} node - changed in place
 * @param {Array<string>} known - all fields that such a node may have
 * @param {{typed: function(): void, move: function(number): void, nest: function(number): void}} owner
 * @returns {{element: Element, inputs: Map<string, Element>}} inputs by field, and by `condition_style.0.color`
 */
export function moreOf(region, node, known, owner) {
  const inputs = new Map();
  const vertical = V_ALIGNS.find((name) => name in node) ?? "v-align";
  const plain = region === "col" ? ["height", "wrap", "align", vertical, "color", "bold"] : [];
  const strangers = Object.keys(node).filter((name) => !known.includes(name));
  const fields = [...plain, ...strangers].map((name) => one(name, node, inputs, owner));
  const button = (word, act) => h("button", { type: "button", on: { click: act } }, t(`downloads.tree.${word}`));
  const element = h(
    "div",
    { class: "more-fields" },
    fields.length ? h("div", { class: "more-row" }, fields) : null,
    region === "col" ? rules(node, inputs, owner) : null,
    h("div", { class: "more-row" }, button("up", () => owner.move(-1)), button("down", () => owner.move(1)), button("in", () => owner.nest(1)), button("out", () => owner.nest(-1))),
  );
  return { element, inputs };
}

function one(name, node, inputs, owner) {
  const kind = V_ALIGNS.includes(name) ? "v-align" : name;
  const label = has(`downloads.node.${kind}`) ? t(`downloads.node.${kind}`) : name;
  const made = control(kind, { [kind]: node[name] }, label, (input) => {
    const value = read(kind, input);
    if (value === undefined) delete node[name];
    else node[name] = value;
    owner.typed();
  });
  inputs.set(name, made.input);
  return h("label", { class: "small-field" }, h("span", {}, label), made.element);
}

/** Conditional styles: the first whose condition holds wins. */
function rules(node, inputs, owner) {
  const holder = h("div", { class: "rules" });
  const draw = () => {
    const list = Array.isArray(node.condition_style) ? node.condition_style : [];
    for (const key of [...inputs.keys()]) if (key.startsWith("condition_style")) inputs.delete(key);
    const rows = list.map((rule, index) => (rule && typeof rule === "object" ? ruleRow(rule, index) : null));
    clear(holder, h("span", { class: "small-label" }, t("downloads.node.condition_style")), rows, h("button", { type: "button", on: { click: add } }, t("downloads.tree.addRule")));
  };
  const add = () => {
    node.condition_style = [...(Array.isArray(node.condition_style) ? node.condition_style : []), { condition: "< 0", color: "red" }];
    owner.typed();
    draw();
  };
  const drop = (index) => {
    node.condition_style.splice(index, 1);
    if (!node.condition_style.length) delete node.condition_style;
    owner.typed();
    draw();
  };
  const ruleRow = (rule, index) => {
    const fields = RULE_FIELDS.map((name) => {
      const made = control(name, rule, `${t(`downloads.node.${name}`)} ${index + 1}`, (input) => {
        const value = read(name, input);
        if (value === undefined) delete rule[name];
        else rule[name] = value;
        owner.typed();
      });
      inputs.set(`condition_style.${index}.${name}`, made.input);
      return h("label", { class: "small-field" }, h("span", {}, t(`downloads.node.${name}`)), made.element);
    });
    return h("div", { class: "more-row" }, fields, h("button", { type: "button", class: "plain", "aria-label": `${t("downloads.tree.removeRule")} ${index + 1}`, on: { click: () => drop(index) } }, "×"));
  };
  draw();
  return holder;
}
