// The fields of a node: how each is typed, and what the text means.

import { freshId, h } from "../../dom.js";
import { t } from "../../i18n.js";
import { COLORS, FORMATS, TYPES } from "./template.js";

const NUMBERS = ["width", "height", "row_count"];
const PLAIN_NUMBER = /^-?\d+(\.\d+)?$/;
const CHOICES = { type: TYPES, align: ["left", "center", "right"], "v-align": ["top", "middle", "bottom"], bold: ["true", "false"], wrap: ["true", "false"] };
const LISTS = { format: FORMATS, color: COLORS, bg_color: COLORS };
const HEX = { black: "#000000", white: "#ffffff", red: "#ff0000", green: "#008000", blue: "#0000ff", yellow: "#ffff00", cyan: "#00ffff", true: "#dfdfdf" };

/**
 * What a field of a node is typed into.
 *
 * @param {string} name
 * @param {Object} node
 * @param {string} label - for screen readers
 * @param {function(Element): void} change - gets the input whenever it says something else
 * @returns {{element: Element, input: Element}}
 */
export function control(name, node, label, change) {
  const text = shown(node[name]);
  if (CHOICES[name]) {
    const words = CHOICES[name].includes(text) || !text ? CHOICES[name] : [...CHOICES[name], text];
    const options = [h("option", { value: "" }, t("downloads.node.unsaid")), words.map((word) => h("option", { value: word, selected: word === text }, word))];
    const select = h("select", { "aria-label": label, on: { change: () => change(select) } }, options);
    return { element: select, input: select };
  }
  const list = LISTS[name] ? h("datalist", { id: freshId("list") }, LISTS[name].map((word) => h("option", { value: word }))) : null;
  const input = h("input", {
    type: "text",
    "aria-label": label,
    autocomplete: "off",
    spellcheck: "false",
    dir: "auto",
    inputmode: NUMBERS.includes(name) ? "decimal" : null,
    list: list?.id,
    ".value": text,
    on: { input: () => change(input) },
  });
  if (!name.endsWith("color")) return { element: [input, list], input };
  return { element: h("span", { class: "color-field" }, swatch(input, label, change), input, list), input };
}

/** What an input says of a field; undefined where it says nothing. */
export function read(name, input) {
  const text = input.value;
  if (!text.trim()) return undefined;
  if (NUMBERS.includes(name) && PLAIN_NUMBER.test(text.trim())) return Number(text);
  if (["bold", "wrap", "bg_color"].includes(name) && (text === "true" || text === "false")) return text === "true";
  return text;
}

function shown(value) {
  if (value === null || value === undefined) return "";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** A patch of the colour that is typed, to choose another one by eye. */
function swatch(input, label, change) {
  const picker = h("input", { type: "color", "aria-label": `${label}: ${t("downloads.node.pick")}`, tabindex: "-1" });
  const paint = () => {
    const word = input.value.trim().toLowerCase();
    const digits = /^#?([0-9a-f]{6})$/.exec(word)?.[1] ?? /^#?([0-9a-f]{3})$/.exec(word)?.[1].replace(/./g, "$&$&");
    const color = HEX[word] ?? (digits ? `#${digits}` : null);
    picker.classList.toggle("unset", !color);
    picker.value = color ?? "#ffffff";
  };
  picker.addEventListener("input", () => {
    input.value = picker.value.slice(1).toUpperCase();
    paint();
    change(input);
  });
  input.addEventListener("input", paint);
  paint();
  return picker;
}
