// The form for a new export: what most people need at once, everything else that the API takes behind folds.

import { send } from "../../api.js";
import { busy, fold, problemBox, twinTexts } from "../../components/index.js";
import { clear, h } from "../../dom.js";
import { has, t } from "../../i18n.js";
import { go } from "../../navigation.js";
import "../../words/downloads-new.js";
import { field } from "./fields.js";
import { quotaStrip } from "./quotas.js";
import { bodyOf, placeOf } from "./request.js";
import { projectQuery } from "./scope.js";
import { TablePanel } from "./tablepanel.js";

const TABLES_MAX = 20;
const LOOKS = ["default_width", "default_height", "col_align", "freeze", "filter", "time_zone"];
const OF_CSV = ["encoding", "formula_guard"];

/** The page. @param {Place} place @param {string} project */
export async function newPage(place, project) {
  return new NewExport(place, project).element;
}

class NewExport {
  constructor(place, project) {
    Object.assign(this, { place, project, panels: [], key: freshKey(), sent: null });
    this.fields = fields();
    const f = (name) => this.fields[name].element;
    this.quotas = quotaStrip(place);
    this.holder = h("div", { class: "panels" });
    this.addButton = h("button", { type: "button", on: { click: () => this.add() } }, t("downloads.new.addTable"));
    this.csv = fold(t("downloads.new.ofCsv"), OF_CSV.map(f));
    this.looks = fold(t("downloads.new.ofExcel"), h("div", { class: "field-grid" }, LOOKS.map(f)));
    this.source = fold(t("downloads.new.ofSource"), h("div", { class: "field-grid" }, ["page_size", "first_page", "columns", "force_continue", "allow_repeats"].map(f)), f("headers"));
    this.end = fold(t("downloads.new.ofEnd"), h("div", { class: "field-grid" }, ["callback", "operator_id", "expires_in", "max_exec_time"].map(f)));
    this.trouble = h("div", { class: "form-problem" });
    this.button = h("button", { class: "primary" }, t("downloads.new.action"));
    this.curl = h("div", {});
    const same = fold(t("common.doTheSame"), this.curl);
    same.addEventListener("toggle", () => this.showCurl());
    this.element = h(
      "form",
      { class: "new-export", novalidate: true, on: { submit: (event) => this.submit(event), input: () => this.changed(), change: () => this.changed() } },
      this.quotas,
      h("section", { class: "card head-card" }, f("type"), f("file_name"), f("tables")),
      this.holder,
      h("div", {}, this.addButton),
      h("section", { class: "card folds" }, this.source, this.csv, this.looks, this.end),
      this.trouble,
      h("div", { class: "form-buttons" }, this.button),
      same,
    );
    this.same = same;
    this.add();
  }

  get mode() {
    return this.isExcel ? this.fields.tables.read() : "one";
  }

  get isExcel() {
    return this.fields.type.read() === "excel";
  }

  /** The tables that count: of those that were added, the first alone where there can be only one. */
  get counted() {
    return this.mode === "one" ? this.panels.slice(0, 1) : this.panels;
  }

  add() {
    const panel = new TablePanel({
      place: this.place,
      looks: () => this.read(LOOKS),
      onFaults: (errors) => this.showFaultsOf(errors, LOOKS),
      remove: () => this.remove(panel),
    });
    this.panels.push(panel);
    this.holder.append(panel.element);
    this.arrange();
    if (this.panels.length > 1) panel.element.querySelector("input").focus();
  }

  remove(panel) {
    this.panels.splice(this.panels.indexOf(panel), 1);
    panel.element.remove();
    this.arrange();
    this.addButton.focus();
  }

  arrange() {
    const { mode, isExcel, counted } = this;
    this.fields.tables.element.hidden = !isExcel;
    this.looks.hidden = !isExcel;
    this.csv.hidden = this.fields.type.read() !== "csv";
    this.addButton.hidden = mode === "one" || this.panels.length >= TABLES_MAX;
    this.panels.forEach((panel, index) => {
      panel.element.hidden = !counted.includes(panel);
      if (!panel.element.hidden) panel.show({ isExcel, mode, index, count: counted.length });
    });
    this.arranged = `${mode} ${this.fields.type.read()}`;
  }

  changed() {
    if (this.arranged !== `${this.mode} ${this.fields.type.read()}`) this.arrange();
    else if (this.looks.contains(document.activeElement)) for (const panel of this.counted) panel.changed();
    if (this.same.open) this.showCurl();
    const operator = this.fields.operator_id.read() ?? "";
    if (operator !== this.operator) this.quotas.reload(operator);
    this.operator = operator;
  }

  read(names) {
    return Object.fromEntries(names.map((name) => [name, this.fields[name].read()]));
  }

  body() {
    const names = Object.keys(this.fields).filter((name) => name !== "tables" && (this.isExcel || !LOOKS.includes(name)) && (!this.csv.hidden || !OF_CSV.includes(name)));
    return bodyOf(this.read(names), this.mode, this.counted.map((panel) => panel.read()));
  }

  async submit(event) {
    event.preventDefault();
    clear(this.trouble);
    const text = this.body();
    if (!this.counted.every((panel) => panel.isSound)) {
      this.goToFault();
      return;
    }
    // The same request sent twice, e.g. because its answer was lost, is one download; a changed one is another.
    if (this.sent !== null && this.sent !== text) this.key = freshKey();
    this.sent = text;
    try {
      const response = await busy(send("POST", "/v1/downloads", { text, headers: { "Idempotency-Key": this.key } }), this.button);
      const { task_id: id } = await response.json();
      await go(`/console/downloads/${id}${projectQuery(this.project)}`);
    } catch (problem) {
      this.refused(problem);
    }
  }

  refused(problem) {
    if (problem.name !== "Problem") console.error(problem);
    const placed = (problem.errors ?? []).map((error) => ({ ...placeOf(error.path, this.mode), message: error.message }));
    this.counted.forEach((panel, index) => panel.showFault(placed.filter(({ table }) => table === index)));
    const common = placed.filter(({ table }) => table === null);
    const left = this.showFaultsOf(common, Object.keys(this.fields));
    if (left.length || !placed.length) clear(this.trouble, problemBox(Object.assign(Object.create(problem), { errors: left })));
    this.quotas.reload();
    this.goToFault();
  }

  /** Show faults at these fields; return those of other fields. */
  showFaultsOf(errors, names) {
    for (const name of names) this.fields[name].showFault(null);
    return errors.filter(({ field: name, path, message }) => {
      if (!names.includes(name)) return true;
      this.fields[name].showFault(path === name ? message : `${path}: ${message}`);
      const holder = this.fields[name].element.closest("details");
      if (holder) holder.open = true;
      return false;
    });
  }

  goToFault() {
    const first = [...this.element.querySelectorAll('[aria-invalid="true"]')].find((input) => input.checkVisibility());
    if (first) first.focus();
    else this.trouble.firstElementChild?.scrollIntoView({ block: "center" });
  }

  showCurl() {
    clear(this.curl, twinTexts("/v1/downloads", { method: "POST", body: this.body() }));
  }
}

function freshKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function fields() {
  const words = (name) => ({ name, label: t(`downloads.new.${name}`), hint: has(`downloads.new.${name}Hint`) ? t(`downloads.new.${name}Hint`) : null });
  const options = (name, values, first = null) => [...(first ? [{ value: "", label: first }] : []), ...values.map((value) => ({ value, label: t(`downloads.new.${name}_${value.replaceAll("-", "_")}`) }))];
  const zones = (Intl.supportedValuesOf?.("timeZone") ?? []).map((zone) => ({ value: zone, label: zone }));
  const made = [
    field({ ...words("type"), kind: "choice", value: "csv", options: options("type", ["csv", "excel", "parquet"]) }),
    field({ ...words("file_name") }),
    field({ ...words("tables"), kind: "choice", value: "one", options: options("tables", ["one", "sheets", "page", "tab"]) }),
    field({ ...words("page_size"), kind: "number", attributes: { placeholder: "500" } }),
    field({ ...words("columns"), kind: "select", options: options("columns", ["closed", "open"]), value: "closed" }),
    field({ ...words("first_page"), kind: "number", attributes: { placeholder: "0" } }),
    field({ ...words("force_continue"), kind: "check", value: false }),
    field({ ...words("allow_repeats"), kind: "check", value: false }),
    field({ ...words("headers"), kind: "headers" }),
    field({ ...words("encoding"), kind: "select", options: options("encoding", ["utf-8-bom", "utf-8", "gb18030"]), value: "utf-8-bom" }),
    field({ ...words("formula_guard"), kind: "check", value: true }),
    field({ ...words("default_width"), kind: "number" }),
    field({ ...words("default_height"), kind: "number" }),
    field({ ...words("col_align"), kind: "select", options: options("col_align", ["left", "center", "right"], t("downloads.node.unsaid")) }),
    field({ ...words("freeze"), kind: "check", value: true }),
    field({ ...words("filter"), kind: "check", value: true }),
    field({ ...words("time_zone"), kind: "select", options: [{ value: "", label: "UTC" }, ...zones] }),
    field({ ...words("callback"), attributes: { type: "url", placeholder: "https://…" } }),
    field({ ...words("operator_id") }),
    field({ ...words("expires_in"), kind: "span", unit: "days" }),
    field({ ...words("max_exec_time"), kind: "span", unit: "minutes" }),
  ];
  return Object.fromEntries(made.map((each) => [each.name, each]));
}
