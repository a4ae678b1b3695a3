// A tree of heads as a table: a row for each node, its fields to type into, and what is wrong with it below.

import { clear, freshId, h, markCode } from "../../dom.js";
import { has, t } from "../../i18n.js";
import { moreOf } from "./more.js";
import { control, read } from "./nodefields.js";
import { COLUMN_FIELDS, ROW_FIELDS, flat, within } from "./template.js";

const SHOWN_AT_FIRST = 100;
const SHOWN_MORE = 200;

const REGIONS = {
  col: { fields: ["title", "name", "type", "format", "width", "bg_color"], known: COLUMN_FIELDS },
  row: { fields: ["title", "name", "bg_color", "row_count"], known: ROW_FIELDS },
};

/**
 * The table of one tree.
 *
 * @param {"col"|"row"} region
 * @param {Array<Object>} list - the nodes of the first level; they are changed in place
 * @param {{typed: function(): void, changing: function(): void, changed: function(): void, open: Set<Object>}} owner - `typed`
 *   after a field changed, `changing` before and `changed` after nodes came, went or moved; `open` are the unfolded nodes
 * @returns {Element} `element.showFault(at, field, rest, message)` shows a fault, `element.quiet()` takes all away,
 *   `element.focusOn(at, field)`
 */
export function treeTable(region, list, owner) {
  const tree = new Tree(region, list, owner);
  return Object.assign(tree.element, {
    showFault: (...fault) => tree.showFault(...fault),
    quiet: () => tree.quiet(),
    focusOn: (...where) => tree.focusOn(...where),
  });
}

class Tree {
  constructor(region, list, owner) {
    Object.assign(this, { region, list, owner, ...REGIONS[region], rows: new Map(), limit: SHOWN_AT_FIRST });
    this.body = h("tbody");
    this.rest = h("div");
    const heads = this.fields.map((name) => h("th", { scope: "col", class: `of-${name}` }, t(`downloads.node.${name}`)));
    this.element = h(
      "div",
      { class: "tree" },
      h("div", { class: "scroller" }, h("table", {}, h("caption", { class: "unseen" }, t(`downloads.tree.${region}`)), h("thead", {}, h("tr", {}, heads, h("th", { scope: "col" }, h("span", { class: "unseen" }, t("downloads.tree.acts"))))), this.body)),
      this.rest,
    );
    this.element.addEventListener("keydown", (event) => this.key(event));
    this.draw();
  }

  draw() {
    const all = flat(this.list);
    this.rows.clear();
    clear(this.body, all.slice(0, this.limit).map(({ node, at }) => this.row(node, at)));
    const hidden = all.length - this.limit;
    const more = () => {
      this.limit += SHOWN_MORE;
      this.draw();
      this.owner.changed();
    };
    clear(this.rest, hidden > 0 ? h("button", { type: "button", on: { click: more } }, t("downloads.tree.hidden", { n: hidden })) : null);
  }

  row(node, at) {
    const key = at.join(".");
    const faultId = freshId("fault");
    const inputs = new Map();
    const change = (name, input) => {
      const value = read(name, input);
      if (value === undefined) delete node[name];
      else node[name] = value;
      this.owner.typed();
    };
    const cells = this.fields.map((name, index) => {
      const { element, input } = control(name, node, `${t(`downloads.node.${name}`)}, ${this.named(node, at)}`, (changed) => change(name, changed));
      inputs.set(name, input);
      if (index) return h("td", { class: `of-${name}`, data: { label: t(`downloads.node.${name}`) } }, element);
      const cell = h("th", { scope: "row", class: `of-${name}` }, h("span", { class: "unseen" }, t("downloads.tree.level", { n: at.length })), element);
      cell.style.paddingInlineStart = `${0.4 + (at.length - 1) * 1.4}rem`;
      return cell;
    });
    const main = h("tr", { class: ["node", node.children?.length && "group"], data: { at: key } }, cells, h("td", { class: "acts" }, this.acts(node, at)));
    const faults = h("tr", { class: "faults", hidden: true }, h("td", { colspan: this.fields.length + 1 }, h("ul", { id: faultId })));
    const more = h("tr", { class: "more", hidden: true }, h("td", { colspan: this.fields.length + 1 }));
    this.rows.set(key, { main, faults, faultId, more, inputs, node, at });
    if (this.owner.open.has(node)) this.unfold(key);
    return [main, faults, more];
  }

  named(node, at) {
    return String(node.title ?? node.name ?? at.map((place) => place + 1).join("."));
  }

  acts(node, at) {
    const name = this.named(node, at);
    const button = (word, sign, act) => h("button", { type: "button", class: "plain", title: t(`downloads.tree.${word}`), "aria-label": `${t(`downloads.tree.${word}`)}: ${name}`, on: { click: act } }, sign);
    return [
      button("below", "＋", () => this.addBelow(at)),
      button("inside", "⤷", () => this.addInside(at)),
      button("more", "⋯", () => this.toggle(at.join("."))),
      button("remove", "×", () => this.remove(at)),
    ];
  }

  toggle(key) {
    const { more, node } = this.rows.get(key);
    if (!more.hidden) {
      more.hidden = true;
      this.owner.open.delete(node);
    } else this.unfold(key);
  }

  unfold(key) {
    const row = this.rows.get(key);
    this.owner.open.add(row.node);
    if (!row.more.hidden) return;
    const { element, inputs } = moreOf(this.region, row.node, this.known, {
      typed: this.owner.typed,
      move: (by) => this.move(row.at, by),
      nest: (by) => (by > 0 ? this.indent(row.at) : this.outdent(row.at)),
    });
    for (const [name, input] of inputs) row.inputs.set(name, input);
    clear(row.more.firstChild, element);
    row.more.hidden = false;
  }

  key(event) {
    const place = event.target.closest("tr.node")?.dataset.at;
    if (place === undefined || event.isComposing) return;
    const at = place.split(".").map(Number);
    const acts = event.altKey
      ? { ArrowUp: () => this.move(at, -1), ArrowDown: () => this.move(at, 1), ArrowRight: () => this.indent(at), ArrowLeft: () => this.outdent(at) }
      : { Enter: () => this.addBelow(at) };
    if (!acts[event.key] || (event.key === "Enter" && !event.target.matches("input"))) return;
    event.preventDefault();
    acts[event.key]();
  }

  addBelow(at) {
    this.restructure(() => {
      within(this.list, at).holder.splice(at.at(-1) + 1, 0, { title: "" });
      return [...at.slice(0, -1), at.at(-1) + 1];
    });
  }

  addInside(at) {
    this.restructure(() => {
      const { node } = within(this.list, at);
      node.children = [...(node.children ?? []), { title: "" }];
      return [...at, node.children.length - 1];
    });
  }

  remove(at) {
    this.restructure(() => {
      const { holder } = within(this.list, at);
      holder.splice(at.at(-1), 1);
      this.dropEmpty(at.slice(0, -1));
      if (holder.length) return [...at.slice(0, -1), Math.min(at.at(-1), holder.length - 1)];
      return at.length > 1 ? at.slice(0, -1) : null;
    });
  }

  move(at, by) {
    const { holder, node } = within(this.list, at);
    const to = at.at(-1) + by;
    if (to < 0 || to >= holder.length) return;
    this.restructure(() => {
      holder.splice(at.at(-1), 1);
      holder.splice(to, 0, node);
      return [...at.slice(0, -1), to];
    });
  }

  /** Into the group of the node before it. */
  indent(at) {
    if (at.at(-1) === 0) return;
    this.restructure(() => {
      const { holder, node } = within(this.list, at);
      const group = holder[at.at(-1) - 1];
      holder.splice(at.at(-1), 1);
      group.children = [...(group.children ?? []), node];
      return [...at.slice(0, -1), at.at(-1) - 1, group.children.length - 1];
    });
  }

  /** Out of its group, behind it. */
  outdent(at) {
    if (at.length < 2) return;
    this.restructure(() => {
      const { holder, node } = within(this.list, at);
      const group = at.slice(0, -1);
      holder.splice(at.at(-1), 1);
      within(this.list, group).holder.splice(group.at(-1) + 1, 0, node);
      this.dropEmpty(group);
      return [...group.slice(0, -1), group.at(-1) + 1];
    });
  }

  dropEmpty(at) {
    if (!at.length) return;
    const { node } = within(this.list, at);
    if (!node.children.length) delete node.children;
  }

  restructure(act) {
    const field = this.focused();
    this.owner.changing();
    const at = act();
    this.draw();
    this.owner.changed();
    if (at) this.focusOn(at, field);
  }

  focused() {
    const row = this.rows.get(document.activeElement?.closest?.("tr.node")?.dataset.at);
    return row ? [...row.inputs].find(([, input]) => input === document.activeElement)?.[0] : null;
  }

  focusOn(at, field = null) {
    const row = this.rows.get(at.join("."));
    (row?.inputs.get(field) ?? row?.inputs.get("title"))?.focus();
  }

  quiet() {
    for (const { main, faults, inputs } of this.rows.values()) {
      main.classList.remove("faulty");
      faults.hidden = true;
      clear(faults.querySelector("ul"));
      for (const input of inputs.values()) input.removeAttribute("aria-invalid");
    }
  }

  showFault(at, field, rest, message) {
    const row = this.rows.get(at.join("."));
    if (!row) return false;
    if (field && !this.fields.includes(field)) this.unfold(at.join("."));
    const input = row.inputs.get([field, ...rest].join(".")) ?? row.inputs.get(field);
    input?.setAttribute("aria-invalid", "true");
    input?.setAttribute("aria-describedby", row.faultId);
    row.main.classList.add("faulty");
    row.faults.hidden = false;
    const name = field && has(`downloads.node.${field}`) ? t(`downloads.node.${field}`) : field;
    row.faults.querySelector("ul").append(h("li", {}, name ? h("b", {}, `${name}: `) : null, markCode(message)));
    return true;
  }
}
