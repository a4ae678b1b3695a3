// One table of a new export: the source of its rows, the texts around it, its template and its preview.

import { fold } from "../../components/index.js";
import { h } from "../../dom.js";
import { t } from "../../i18n.js";
import { templateEditor } from "./editor.js";
import { Raw, field } from "./fields.js";
import { firstItems } from "./jsontext.js";
import { preview } from "./preview.js";
import { written } from "./request.js";

const PREVIEW_ROWS = 10;

/**
 * A table.
 *
 * @param {Object} given
 * @param {Place} given.place
 * @param {function(): Object} given.looks - what the form says for all tables, for the preview
 * @param {function(Array): void} given.onFaults - gets faults of the preview that are about all tables
 * @param {function(): void} given.remove
 */
export class TablePanel {
  constructor({ place, looks, onFaults, remove }) {
    Object.assign(this, { looks, onFaults, isExcel: false });
    const text = (name, kind, more = {}) => field({ name, kind, label: t(`downloads.new.${name}`), hint: t(`downloads.new.${name}Hint`), ...more });
    this.fields = {
      name: text("name", "text", { attributes: { maxlength: 31 } }),
      from: field({ name: "from", kind: "choice", label: t("downloads.new.from"), value: "source_url", options: ["source_url", "data"].map((value) => ({ value, label: t(`downloads.new.from_${value}`) })) }),
      source_url: text("source_url", "text", { attributes: { type: "url", inputmode: "url", placeholder: "https://…" } }),
      data: text("data", "json", { attributes: { rows: 6, placeholder: '[{"id": 1, "name": "…"}]' } }),
      title: text("title", "text"),
      summary: text("summary", "area"),
      header: text("header", "json", { attributes: { rows: 3, placeholder: '{"Date": "2026-01-31"}' } }),
      footer: text("footer", "area"),
    };
    this.editor = templateEditor({ changed: () => this.changed(), rows: () => this.rows() });
    this.preview = preview(place, (errors) => this.previewed(errors));
    this.heading = h("h3", {});
    this.removeButton = h("button", { type: "button", class: "plain", on: { click: remove } }, t("downloads.new.removeTable"));
    const f = this.fields;
    this.around = fold(t("downloads.new.around"), f.summary.element, f.header.element, f.footer.element);
    this.excel = h("div", { class: "excel-part" }, f.title.element, this.around, h("h3", {}, t("downloads.editor.title")), this.editor.element, this.preview);
    this.element = h("section", { class: "card table-panel" }, h("div", { class: "panel-head" }, this.heading, this.removeButton), f.name.element, f.from.element, f.source_url.element, f.data.element, this.excel);
    this.element.addEventListener("input", () => this.changed());
    this.element.addEventListener("change", () => this.changed());
    this.show({ isExcel: false, mode: "one", index: 0, count: 1 });
  }

  /** Show what counts for this type of file and number of tables. */
  show({ isExcel, mode, index, count }) {
    this.isExcel = isExcel;
    this.heading.textContent = count > 1 ? t("downloads.new.table", { n: index + 1 }) : t("downloads.new.rows");
    this.element.setAttribute("aria-label", this.heading.textContent);
    this.removeButton.hidden = count === 1;
    this.fields.name.element.hidden = mode !== "sheets";
    this.excel.hidden = !isExcel;
    this.changed();
  }

  changed() {
    const isData = this.fields.from.read() === "data";
    this.fields.source_url.element.hidden = isData;
    this.fields.data.element.hidden = !isData;
    if (this.isExcel) this.preview.ask(() => this.previewBody());
  }

  /** The part of the request for this table; faults that are known already are shown at their fields, and counted. */
  read() {
    this.unsound = false;
    const f = this.fields;
    const isData = f.from.read() === "data";
    const said = { source_url: isData ? undefined : f.source_url.read(), data: isData ? this.tried("data") : undefined };
    if (!this.isExcel) return said;
    const name = f.name.element.hidden ? undefined : f.name.read();
    return { name, ...said, title: f.title.read(), summary: f.summary.read(), header: this.tried("header"), footer: this.footer(), template: this.template() };
  }

  /** Whether everything that is JSON is JSON. */
  get isSound() {
    return !this.unsound;
  }

  showFault(errors) {
    for (const each of Object.values(this.fields)) each.showFault(null);
    const templates = errors.filter(({ field: name }) => name === "template");
    this.editor.showFault(templates.map(({ path, message }) => ({ path, message })));
    for (const { field: name, path, message } of errors) {
      if (name !== "template" && this.fields[name]) this.fields[name].showFault(path === name ? message : `${path}: ${message}`);
      if (["summary", "header", "footer"].includes(name)) this.around.open = true;
    }
  }

  /** The first field with a fault, to go to. */
  firstFault() {
    return this.element.querySelector('[aria-invalid="true"]');
  }

  tried(name) {
    try {
      return this.fields[name].read();
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
      this.unsound = true;
      this.fields[name].showFault(t("downloads.new.noJson", { why: error.message }));
      return undefined;
    }
  }

  /** A footer is a text, or names and values as JSON. */
  footer() {
    const text = this.fields.footer.read();
    if (text === undefined || !/^\s*[[{]/.test(text)) return text;
    try {
      JSON.parse(text);
      return new Raw(text.trim());
    } catch {
      return text;
    }
  }

  template() {
    try {
      return this.editor.value() ?? undefined;
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
      this.unsound = true;
      this.editor.showFault([]);
      return undefined;
    }
  }

  /** The rows that were typed in, parsed. */
  rows() {
    try {
      const data = this.fields.from.read() === "data" && this.fields.data.read();
      const value = data ? JSON.parse(data.text) : null;
      return Array.isArray(value) ? value : value && Object.values(value).flat();
    } catch {
      return null;
    }
  }

  previewBody() {
    for (const name of ["data", "header"]) this.fields[name].showFault(null);
    const { name: _, source_url: __, data, ...regions } = this.read();
    this.editor.offer();
    if (this.unsound || (regions.template === undefined && data === undefined)) return null;
    return written({ ...this.looks(), ...regions, data: data && firstRows(data.text) });
  }

  previewed(errors) {
    const own = errors.map((error) => ({ ...error, field: /^[^.[]*/.exec(error.path)[0] }));
    this.showFault(own.filter(({ field: name }) => name === "template" || this.fields[name]));
    this.onFaults(own.filter(({ field: name }) => name !== "template" && !this.fields[name]));
  }
}

/** The first rows as they were typed, so that no number loses a digit on its way to the preview. */
function firstRows(text) {
  return new Raw(text.startsWith("[") ? `[${firstItems(text, PREVIEW_ROWS).join(", ")}]` : text);
}
