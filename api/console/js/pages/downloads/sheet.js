// Draws a sheet as Excel will show it: an HTML table with the book's own widths, heights, colours and merged cells.

import { badge } from "../../components/index.js";
import { h } from "../../dom.js";
import { t } from "../../i18n.js";
import { letters } from "./book.js";
import { general, written } from "./numbers.js";

const ROWS_MAX = 200;
const COLUMNS_MAX = 100;

/**
 * A sheet, drawn.
 *
 * @param {Object} sheet - as `readBook` reads it
 * @returns {Element}
 */
export function drawSheet(sheet) {
  const columns = Math.min(sheet.widths.length, COLUMNS_MAX);
  const rows = sheet.rows.slice(0, ROWS_MAX);
  const heads = sheet.widths.slice(0, columns).map((_, at) => h("th", { scope: "col" }, letters(at + 1)));
  const table = h(
    "table",
    { class: "sheet" },
    h("caption", { class: "unseen" }, t("downloads.preview.caption", { name: sheet.name })),
    h("colgroup", {}, sized(h("col"), 40), sheet.widths.slice(0, columns).map((width) => sized(h("col"), width))),
    h("thead", {}, h("tr", {}, h("td", { class: "corner" }), heads)),
    h("tbody", {}, rows.map((row) => drawRow(row, sheet, columns))),
  );
  const width = 40 + sheet.widths.slice(0, columns).reduce((sum, each) => sum + each, 0);
  table.style.width = `${width}px`;
  const left = [
    sheet.rows.length > rows.length ? t("downloads.preview.moreRows", { n: sheet.rows.length - rows.length }) : null,
    sheet.widths.length > columns ? t("downloads.preview.moreColumns", { n: sheet.widths.length - columns }) : null,
  ].filter(Boolean);
  return h(
    "div",
    { class: "drawn-sheet" },
    h("div", { class: "sheet-scroller", tabindex: "0", role: "region", "aria-label": t("downloads.preview.caption", { name: sheet.name }) }, table),
    sheet.charts.length ? h("p", { class: "sheet-charts" }, sheet.charts.map(chartNote)) : null,
    left.length ? h("p", { class: "quiet" }, left.join(" ")) : null,
  );
}

function drawRow(row, sheet, columns) {
  const element = h("tr", { class: row.number === sheet.frozen.rows && "frozen-edge" }, h("th", { scope: "row" }, row.number));
  element.style.height = `${row.height}px`;
  let at = 1;
  for (const cell of row.cells.filter((each) => each.column <= columns)) {
    // What the book does not speak of stays blank.
    for (; at < cell.column; at += 1) if (!sheet.covered.has(`${letters(at)}${row.number}`)) element.append(h("td"));
    element.append(drawCell(cell, row, sheet));
    at = cell.column + cell.across;
  }
  return element;
}

function drawCell(cell, row, sheet) {
  const { style } = cell;
  const shown = content(cell);
  const filters = sheet.filter && row.number + cell.down - 1 === sheet.filter.top && cell.column >= sheet.filter.left && cell.column <= sheet.filter.right;
  const element = h(
    "td",
    {
      colspan: cell.across > 1 ? cell.across : null,
      rowspan: cell.down > 1 ? cell.down : null,
      class: [style.border && "bordered", style.wrap && "wraps", cell.column + cell.across - 1 === sheet.frozen.columns && "frozen-side"],
      title: cell.formula === null ? null : `=${cell.formula}`,
      dir: typeof cell.value === "string" ? "auto" : null,
    },
    shown.nodes,
    filters ? h("i", { class: "sheet-filter", "aria-hidden": "true" }) : null,
  );
  element.style.textAlign = style.align ?? (typeof cell.value === "number" ? "right" : typeof cell.value === "boolean" ? "center" : "left");
  element.style.verticalAlign = { center: "middle", top: "top" }[style.vertical] ?? "bottom";
  if (style.fill) element.style.backgroundColor = style.fill;
  dress(element, { ...style, color: shown.color ?? style.color });
  return element;
}

function content({ value, formula, runs, style }) {
  // A formula is worked out by Excel when the book is opened.
  if (formula !== null) return { nodes: h("code", {}, `=${formula}`) };
  if (runs) return { nodes: runs.length === 1 ? runs[0].text : runs.map((run) => dress(h("span", {}, run.text), run)) };
  if (typeof value === "boolean") return { nodes: value ? "TRUE" : "FALSE" };
  if (typeof value !== "number") return { nodes: "" };
  const { text, color } = Number.isFinite(value) ? written(value, style.format ?? "General") : { text: general(0), color: null };
  return { nodes: text, color };
}

function dress(element, { bold, italic, underline, color, size }) {
  if (bold) element.style.fontWeight = "bold";
  if (italic) element.style.fontStyle = "italic";
  if (underline) element.style.textDecoration = "underline";
  if (color) element.style.color = color;
  if (size && size !== 11) element.style.fontSize = `${size}pt`;
  return element;
}

function chartNote({ kind, title }) {
  return badge(title ? t("downloads.preview.chartTitled", { kind: t(`downloads.chart.${kind}`), title }) : t("downloads.preview.chart", { kind: t(`downloads.chart.${kind}`) }), "off");
}

function sized(element, width) {
  element.style.width = `${width}px`;
  return element;
}
