// A list of the API, one page at a time, whose filters and page are in the address.

import { clear, h } from "../dom.js";
import { t } from "../i18n.js";
import { poll, latestOnly } from "../polling.js";
import { go } from "../navigation.js";
import { copyable, twinTexts, twins } from "./copying.js";
import { chosen, filterRow } from "./filters.js";
import { fold } from "./pieces.js";
import { busy, problemBox } from "./problem.js";

/**
 * A list with filters, paging, selection and an empty state.
 *
 * @param {Object} given
 * @param {Place} given.place - filters and `cursor` live in its query
 * @param {string} given.caption - the name of the table, for screen readers
 * @param {Array<Object>} [given.filters] - as of `filterRow`
 * @param {Array<{title: string, cell: function(Object): (Node|string), numeric: boolean}>} given.columns
 * @param {function(Object, ?string): Promise<{items: Array, next: ?string}>} given.load - gets the filters that are set, and the cursor of the page
 * @param {function(Object): string} [given.request] - the path and query of the API for the filters that are set; shown
 *   as a request for curl and for the command line
 * @param {function({items: Array, next: ?string}): void} [given.onLoad] - gets the result of `load` once it is drawn
 * @param {function(Object): string} given.key - the key of a row
 * @param {function(Object): ?string} [given.open] - the address of a row's own page
 * @param {{text: string, curl: string, command: string}} given.empty - shown for an empty list without filters, with
 *   the request for curl and for the command line
 * @param {boolean} [given.select] - whether rows can be ticked; once all of a page are, and where no action has `all`, all
 *   that the filters find can be, too
 * @param {Array<{label: string, danger: boolean, all: boolean, run: function(?Array, Object): Promise}>} [given.actions]
 *   - the actions on ticked rows: `run(items, filters)`; with `all` it can be done with no row ticked, to all that
 *   the filters find: then items is null. Afterwards the list is read again, unless it returns null or
 *   false because the reader cancelled
 * @param {number} [given.every] - read again after so many milliseconds
 * @returns {DataList} `element.reload()` reads the page again
 */
export function dataList(given) {
  const element = document.createElement("data-list");
  element.given = { filters: [], actions: [], key: (item) => JSON.stringify(item), ...given };
  return element;
}

/** The most rows that are chosen at a time. */
const CHOSEN_MAX = 1000;

/** `<data-list>`: made by `dataList`. */
class DataList extends HTMLElement {
  connectedCallback() {
    if (this.table) return;
    const { place, filters, every } = this.given;
    this.rows = new Map();
    this.ticked = new Set();
    this.trail = [];
    this.items = [];
    this.broken = false;
    this.loud = false;
    this.drawn = null;
    this.matching = null;
    this.gather = latestOnly(
      () => this.everyMatching(),
      (found) => this.choose(found),
      (problem) => clear(this.refusal, problemBox(problem)),
    );
    this.look = latestOnly(
      () => this.given.load(chosen(filters, place.query), this.cursor),
      (page) => this.show(page),
      (problem) => this.fail(problem),
    );
    this.build();
    if (filters.length) this.prepend(filterRow(filters, place.query, (changes) => this.filter(changes)));
    // A list that was removed, e.g. with its tab, is not read any more.
    if (every) poll(place, () => this.isConnected && (this.broken || this.reload()), every);
    this.reload({ loud: true });
  }

  build() {
    const { caption, columns, select } = this.given;
    this.everyRow = h("input", { type: "checkbox", "aria-label": t("common.selectAll"), on: { change: () => this.tickAll() } });
    const heads = columns.map((column) => h("th", { scope: "col", role: "columnheader", class: column.numeric && "numeric" }, column.title));
    this.body = h("tbody", { role: "rowgroup" });
    this.table = h(
      "table",
      // On narrow screens CSS makes blocks of them, and blocks have no roles of their own.
      { class: "list", role: "table" },
      h("caption", { class: "unseen" }, caption),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, select ? h("th", { class: "tick-cell", scope: "col", role: "columnheader" }, this.everyRow) : null, heads)),
      this.body,
    );
    [this.trouble, this.refusal] = [h("div"), h("div")];
    this.count = h("p", { role: "status", class: "quiet" });
    this.previous = pageButton(t("common.previous"), () => this.turnTo(this.trail.pop() ?? null));
    this.next = pageButton(t("common.next"), () => this.forward());
    this.bar = h("div", { class: "list-actions" });
    this.scroller = h("div", { class: "scroller", tabindex: "0", role: "region", "aria-label": caption }, this.table);
    this.pager = h("div", { class: "pager" }, this.previous, this.next);
    this.foot = h("div", { class: "list-foot" }, this.count, this.pager);
    this.same = h("div", { class: "list-request" });
    this.append(this.bar, this.refusal, this.trouble, this.scroller, this.foot, this.same);
  }

  get cursor() {
    return this.given.place.query.get("cursor");
  }

  filter(changes) {
    this.trail = [];
    this.untick();
    this.given.place.change({ ...changes, cursor: null });
    this.reload({ loud: true });
  }

  forward() {
    this.trail.push(this.cursor);
    this.turnTo(this.after);
  }

  async turnTo(cursor) {
    const pressed = document.activeElement;
    this.untick();
    this.given.place.change({ cursor }, { push: true });
    // A second click before the page has arrived would load the same page again.
    this.previous.disabled = true;
    this.next.disabled = true;
    await this.reload({ loud: true });
    if (document.activeElement === document.body) pressed.focus({ preventScroll: true });
  }

  /** Read the page again; `loud` where the reader asked for it, and waits. */
  reload({ loud = false } = {}) {
    this.loud ||= loud;
    if (this.loud) this.scroller.setAttribute("aria-busy", "true");
    return this.look();
  }

  fail(problem) {
    this.ended();
    this.previous.disabled = !this.cursor;
    this.broken = true;
    clear(this.trouble, problemBox(problem), this.again());
  }

  ended() {
    this.loud = false;
    this.scroller.removeAttribute("aria-busy");
  }

  again() {
    return h("button", { type: "button", on: { click: () => this.reload({ loud: true }) } }, t("common.retry"));
  }

  show(page) {
    const { items, next } = page;
    // The text about an empty list stays, with what the reader has unfolded there.
    if (this.loud || items.length || this.broken || this.items.length) clear(this.trouble);
    this.broken = false;
    this.items = items;
    this.after = next ?? null;
    const keys = new Set(items.map(this.given.key));
    for (const key of this.ticked) if (!keys.has(key)) this.ticked.delete(key);
    this.drawRows(items);
    this.scroller.hidden = items.length === 0;
    this.previous.disabled = !this.cursor;
    this.next.disabled = !this.after;
    this.pager.hidden = !this.cursor && !this.after;
    this.foot.hidden = items.length === 0 && !this.cursor;
    this.say(items.length ? t("common.rows", { n: items.length }) : t("common.noRows"));
    if (!items.length && !this.trouble.hasChildNodes()) clear(this.trouble, this.nothing());
    this.drawActions();
    this.drawRequest();
    this.ended();
    this.given.onLoad?.(page);
  }

  /** The request of this list for curl and for the command line, with its filters. */
  drawRequest() {
    const { request, filters, place } = this.given;
    // An empty list says the same where its rows would be.
    const path = this.items.length ? request?.(chosen(filters, place.query)) : null;
    if (path === this.requested) return;
    this.requested = path;
    clear(this.same, path ? fold(t("common.doTheSame"), () => twinTexts(path)) : null);
  }

  say(text) {
    // Setting a live region to the same text would have it read out again.
    if (this.count.textContent !== text) this.count.textContent = text;
  }

  /** Rows that have not changed stay as they are, so that neither focus nor a text selection is lost. */
  drawRows(items) {
    const before = this.rows;
    this.rows = new Map();
    const rows = items.map((item) => {
      const [key, json] = [this.given.key(item), JSON.stringify(item)];
      const known = before.get(key);
      const row = known?.json === json ? known.row : this.row(item, key);
      if (known && known.row !== row) keepFocus(known.row, row);
      this.rows.set(key, { json, row });
      return row;
    });
    if (rows.length !== this.body.children.length || rows.some((row, index) => this.body.children[index] !== row)) {
      const focused = this.body.contains(document.activeElement) ? document.activeElement : null;
      this.body.replaceChildren(...rows);
      focused?.focus({ preventScroll: true });
    }
  }

  row(item, key) {
    const { columns, open, select } = this.given;
    const href = open?.(item);
    const cells = columns.map((column, index) => {
      const content = column.cell(item);
      const inside = href && index === 0 ? h("a", { href }, content) : content;
      return h("td", { role: "cell", class: column.numeric && "numeric", data: { label: column.title } }, inside);
    });
    const row = h("tr", { role: "row", class: href && "opens" }, select ? h("td", { role: "cell", class: "tick-cell" }, this.tick(key)) : null, cells);
    if (href) row.addEventListener("click", (event) => this.openRow(event, href));
    return row;
  }

  openRow(event, href) {
    // A click on a control or a text selection does not open the row.
    if (event.target.closest("a, button, input, summary, select, label") || String(getSelection())) return;
    if (event.metaKey || event.ctrlKey) open(href, "_blank");
    else go(href);
  }

  tick(key) {
    const change = (event) => {
      if (event.target.checked) this.ticked.add(key);
      else this.ticked.delete(key);
      this.gather.take(null);
    };
    return h("input", { type: "checkbox", "aria-label": `${t("common.select")} ${key}`, data: { key }, ".checked": this.ticked.has(key), on: { change } });
  }

  tickAll() {
    const all = this.everyRow.checked;
    for (const box of this.body.querySelectorAll("input[data-key]")) {
      box.checked = all;
      if (all) this.ticked.add(box.dataset.key);
      else this.ticked.delete(box.dataset.key);
    }
    this.gather.take(null);
  }

  untick() {
    this.ticked.clear();
    for (const box of this.body.querySelectorAll("input[data-key]")) box.checked = false;
    this.gather.take(null);
  }

  /** All that the filters find, also on other pages. */
  async everyMatching() {
    const { filters, load, place } = this.given;
    const items = [];
    let next = null;
    do {
      const page = await load(chosen(filters, place.query), next);
      items.push(...page.items);
      next = page.next ?? null;
    } while (next && items.length < CHOSEN_MAX);
    return { items: items.slice(0, CHOSEN_MAX), more: Boolean(next) || items.length > CHOSEN_MAX };
  }

  /** Choose items for actions; null means those that are ticked on the page. */
  choose(matching) {
    this.matching = matching;
    this.drawActions();
  }

  drawActions() {
    const { actions } = this.given;
    const n = this.matching?.items.length ?? this.ticked.size;
    const isWhole = this.ticked.size > 0 && this.ticked.size === this.items.length;
    this.everyRow.checked = isWhole;
    this.everyRow.indeterminate = this.ticked.size > 0 && !isWhole;
    const isOffered = isWhole && !this.matching && (this.after || this.cursor) && !actions.some((action) => action.all);
    // Buttons that stay the same keep the focus while the list is read again.
    const state = JSON.stringify([n, Boolean(this.matching), this.matching?.more, Boolean(isOffered)]);
    if (state === this.drawn) return;
    this.drawn = state;
    const offered = actions.filter((action) => n > 0 || action.all);
    const words = this.matching?.more ? "selectedFirst" : this.matching ? "selectedMatching" : "selected";
    clear(
      this.bar,
      n ? h("span", { class: "quiet", role: "status" }, t(`common.${words}`, { n })) : null,
      isOffered ? h("button", { type: "button", on: { click: (event) => busy(this.gather(), event.currentTarget) } }, t("common.selectMatching")) : null,
      offered.map((action) => h("button", { type: "button", class: action.danger ? "danger" : null, on: { click: (event) => this.act(action, event.currentTarget) } }, action.label)),
    );
  }

  async act(action, button) {
    const ticked = () => (this.ticked.size ? this.items.filter((item) => this.ticked.has(this.given.key(item))) : null);
    const items = this.matching?.items ?? ticked();
    clear(this.refusal);
    try {
      const done = await busy(Promise.resolve(action.run(items, chosen(this.given.filters, this.given.place.query))), button);
      if (done === null || done === false) return;
      this.untick();
      await this.reload();
    } catch (problem) {
      if (problem.name !== "Problem") console.error(problem);
      clear(this.refusal, problemBox(problem));
    }
  }

  nothing() {
    const { empty, filters, place, request } = this.given;
    const filtered = Object.keys(chosen(filters, place.query)).length > 0;
    const same = filtered && request ? twins(request(chosen(filters, place.query))) : empty;
    const texts = [same?.curl, same?.command].filter(Boolean).map((text) => copyable(text));
    return h("div", { class: "empty" }, h("p", {}, filtered ? t("common.noMatch") : (empty?.text ?? t("common.noRows"))), texts.length ? fold(t("common.doTheSame"), texts) : null);
  }
}

customElements.define("data-list", DataList);

function pageButton(label, click) {
  return h("button", { type: "button", disabled: true, on: { click } }, label);
}

/** Where the focus was in a row that is drawn again. */
function keepFocus(old, fresh) {
  if (!old.contains(document.activeElement)) return;
  const find = (row) => [...row.querySelectorAll("a, button, input, select, summary")];
  const at = find(old).indexOf(document.activeElement);
  queueMicrotask(() => find(fresh)[at]?.focus({ preventScroll: true }));
}
