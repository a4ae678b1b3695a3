// The template editor: the same template as trees to type into and as JSON, with every fault at its node or line.

import { clear, h, markCode } from "../../dom.js";
import { t } from "../../i18n.js";
import { chartList } from "./chartlist.js";
import { field } from "./fields.js";
import { jsonBox } from "./jsonbox.js";
import { NotATree, columnsOf, flat, fromTree, locate, toTree } from "./template.js";
import { treeTable } from "./tree.js";

const UNDO_MAX = 50;
const EXAMPLE = [
  { name: "order_no", title: "Order", width: 18 },
  { title: "Amount", children: [{ name: "paid", title: "Paid", type: "number", format: "#,##0.00" }, { name: "open", title: "Open", type: "number", format: "#,##0.00", condition_style: [{ condition: "> 0", color: "C00000", bold: true }] }] },
  { name: "city", title: "City", bg_color: "FFF4D6" },
];

/**
 * The editor.
 *
 * @param {{changed: function(): void, rows: function(): ?Array}} owner - `changed` after each change; `rows` are those that
 *   were given with the form, if any
 * @returns {{element: Element, value: function(): *, showFault: function(Array): void}} `value()` is the template, null for none,
 *   and throws a SyntaxError while the JSON is broken; `showFault` takes faults whose paths begin with `template`
 */
export function templateEditor(owner) {
  return new Editor(owner);
}

class Editor {
  constructor(owner) {
    Object.assign(this, { owner, tree: { col: [], row: [], charts: [] }, mode: "tree", past: [], tables: {}, open: new Set() });
    const options = ["tree", "json"].map((value) => ({ value, label: t(`downloads.editor.${value}`) }));
    this.switch = field({ name: "view", label: t("downloads.editor.view"), kind: "choice", options, value: "tree" });
    this.switch.element.addEventListener("change", (event) => {
      event.stopPropagation();
      this.turnTo(this.switch.read());
    });
    this.undoButton = h("button", { type: "button", disabled: true, on: { click: () => this.undo() } }, t("downloads.editor.undo"));
    this.summary = h("div", { class: "editor-faults", role: "status" });
    this.json = jsonBox(() => this.owner.changed());
    this.forest = h("div", { class: "forest" });
    this.element = h("div", { class: "editor" }, h("div", { class: "editor-bar" }, this.switch.element, this.undoButton), this.summary, this.forest, this.json);
    this.json.hidden = true;
    this.draw();
  }

  value() {
    if (this.mode === "tree") return fromTree(this.tree);
    return this.json.value.trim() ? JSON.parse(this.json.value) : null;
  }

  /** Show faults; each at its node, its line, or above where it is about the whole. */
  showFault(faults) {
    clear(this.summary, faults.length ? t("downloads.editor.faults", { n: faults.length }) : null);
    if (this.mode === "json") {
      this.json.showFault(faults);
      return;
    }
    for (const table of Object.values(this.tables)) table.quiet();
    const left = faults.filter(({ path, message }) => {
      const place = locate(path, this.tree);
      return !(place && this.tables[place.region]?.showFault(place.at, place.field, place.rest, message));
    });
    if (left.length) this.summary.append(h("ul", {}, left.map(({ path, message }) => h("li", {}, h("code", {}, path), " ", markCode(message)))));
  }

  turnTo(mode) {
    if (mode === "json") {
      const value = fromTree(this.tree);
      this.json.value = value === null ? "" : JSON.stringify(value, null, 2);
    } else if (!this.readJson()) {
      this.switch.element.querySelector("[value=json]").checked = true;
      return;
    }
    this.mode = mode;
    this.json.hidden = mode !== "json";
    this.forest.hidden = this.undoButton.hidden = mode === "json";
    this.draw();
    this.json.showFault([]);
    this.owner.changed();
  }

  readJson() {
    try {
      this.tree = toTree(this.value());
      this.past = [];
      return true;
    } catch (error) {
      if (error instanceof NotATree) this.json.showFault([{ path: error.path, message: t("downloads.editor.noTree") }]);
      else if (error instanceof SyntaxError) this.json.showFault([]);
      else throw error;
      return false;
    }
  }

  draw() {
    const owner = { typed: () => this.owner.changed(), changing: () => this.remember(), changed: () => this.redraw(), open: this.open };
    const { col, row, charts } = this.tree;
    const isEmpty = !col.length && !row.length && !charts.length;
    this.tables = {
      ...(col.length ? { col: treeTable("col", col, owner) } : {}),
      ...(row.length ? { row: treeTable("row", row, owner) } : {}),
      ...(charts.length ? { charts: chartList(charts, owner, () => this.keys()) } : {}),
    };
    this.undoButton.disabled = !this.past.length;
    clear(
      this.forest,
      isEmpty ? h("p", { class: "quiet" }, t("downloads.editor.empty")) : null,
      Object.entries(this.tables).map(([region, table]) => [h("h4", {}, t(`downloads.tree.${region}`)), table]),
      h("div", { class: "editor-adds" }, this.adds(isEmpty)),
      col.length ? h("p", { class: "quiet keys" }, t("downloads.tree.keys")) : null,
    );
  }

  adds(isEmpty) {
    const button = (word, act) => h("button", { type: "button", on: { click: act } }, t(`downloads.editor.${word}`));
    this.fromRows = button("fromRows", () => this.set(columnsOf(this.owner.rows() ?? [])));
    this.offer();
    return [
      button("addColumn", () => this.grow("col", { title: "" })),
      button("addRowHead", () => this.grow("row", { title: "" })),
      button("addChart", () => this.grow("charts", { type: "line", values: this.keys().slice(0, 1) })),
      isEmpty ? this.fromRows : null,
      isEmpty ? button("example", () => this.set(structuredClone(EXAMPLE))) : null,
    ];
  }

  /** Offer columns made from the rows of the form, if there are any. */
  offer() {
    this.fromRows.hidden = !this.owner.rows()?.length;
  }

  grow(region, node) {
    this.remember();
    this.tree[region].push(node);
    this.redraw(true);
    this.tables[region].focusOn([this.tree[region].length - 1]);
  }

  set(columns) {
    this.remember();
    this.tree.col = columns;
    this.redraw(true);
    this.tables.col?.focusOn([0]);
  }

  keys() {
    return flat(this.tree.col).filter(({ node }) => node.name && !node.children?.length).map(({ node }) => String(node.name));
  }

  remember() {
    this.past.push(JSON.stringify(this.tree));
    if (this.past.length > UNDO_MAX) this.past.shift();
  }

  undo() {
    this.tree = JSON.parse(this.past.pop());
    this.redraw(true);
  }

  /** A tree draws itself; when regions come or go all is drawn anew. */
  redraw(all = false) {
    this.undoButton.disabled = !this.past.length;
    if (all || Object.keys(this.tables).some((region) => !this.tree[region].length)) this.draw();
    this.owner.changed();
  }
}
