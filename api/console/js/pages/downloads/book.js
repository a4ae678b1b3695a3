// Reads an Excel book into plain values: what a sheet shows, and how each cell looks.

import { unzip } from "./zip.js";

const PIXELS_A_CHARACTER = 7;
const PIXELS_A_POINT = 4 / 3;
const WIDTH_CHARACTERS = 9.14;
const HEIGHT_POINTS = 15;
const BUILT_IN = {
  1: "0", 2: "0.00", 3: "#,##0", 4: "#,##0.00", 9: "0%", 10: "0.00%", 11: "0.00E+00", 14: "yyyy/m/d", 20: "h:mm", 21: "h:mm:ss",
  22: "yyyy/m/d h:mm", 37: "#,##0;(#,##0)", 38: "#,##0;[Red](#,##0)", 39: "#,##0.00;(#,##0.00)", 40: "#,##0.00;[Red](#,##0.00)", 45: "mm:ss", 49: "@",
};

/**
 * The sheets of a book.
 *
 * A sheet is `{name, widths, rows, covered, frozen: {rows, columns}, filter, charts}`; `covered` names the cells that lie
 * under a merged one; a row `{number, height, cells}`; a cell
 * `{column, value, formula, runs, style, across, down}`: `value` is a number, text, boolean or null, `runs` its pieces
 * `[{text, bold, italic, underline, color}]` where it is a text, `across` and `down` how many columns and rows it takes.
 *
 * @param {ArrayBuffer} buffer - the file
 */
export async function readBook(buffer) {
  const files = unzip(buffer);
  const xml = async (name) => (files.has(name) ? parsed(await files.get(name)()) : null);
  const workbook = await xml("xl/workbook.xml");
  const styles = styleSheet(await xml("xl/styles.xml"));
  const strings = all(await xml("xl/sharedStrings.xml"), "si").map(runsOf);
  const names = all(workbook, "sheet").map((sheet) => sheet.getAttribute("name"));
  const charts = [];
  for (const name of [...files.keys()].filter((each) => /^xl\/charts\/chart\d+\.xml$/.test(each)).sort()) charts.push(chart(await xml(name)));
  return Promise.all(names.map(async (name, index) => ({ name, charts: index ? [] : charts, ...sheet(await xml(`xl/worksheets/sheet${index + 1}.xml`), styles, strings) })));
}

function sheet(document, styles, strings) {
  const widths = [];
  for (const column of all(document, "col")) {
    const [from, to] = [number(column, "min"), Math.min(number(column, "max"), 16384)];
    for (let at = from; at <= to; at += 1) widths[at - 1] = column.getAttribute("hidden") === "1" ? 0 : Math.round(number(column, "width") * PIXELS_A_CHARACTER);
  }
  const merges = mergesOf(document);
  const count = Math.max(widths.length, 0);
  const rows = all(document, "row").map((row) => ({
    number: number(row, "r"),
    height: Math.round(number(row, "ht", HEIGHT_POINTS) * PIXELS_A_POINT),
    cells: all(row, "c").map((cell) => cellOf(cell, styles, strings, merges)).filter(Boolean),
  }));
  const last = Math.max(count, ...rows.map((row) => row.cells.reduce((most, cell) => Math.max(most, cell.column + cell.across - 1), 0)));
  const pane = all(document, "pane")[0];
  return {
    widths: Array.from({ length: last }, (_, at) => widths[at] ?? Math.round(WIDTH_CHARACTERS * PIXELS_A_CHARACTER)),
    rows,
    covered: merges.covered,
    frozen: { rows: pane ? number(pane, "ySplit", 0) : 0, columns: pane ? number(pane, "xSplit", 0) : 0 },
    filter: areaOf(all(document, "autoFilter")[0]?.getAttribute("ref")),
  };
}

function cellOf(element, styles, strings, merges) {
  const reference = element.getAttribute("r");
  if (merges.covered.has(reference)) return null;
  const [across, down] = merges.spans.get(reference) ?? [1, 1];
  const type = element.getAttribute("t");
  const raw = all(element, "v")[0]?.textContent ?? null;
  const cell = { column: columnOf(reference), value: null, runs: null, formula: all(element, "f")[0]?.textContent ?? null, style: styles[number(element, "s", 0)] ?? {}, across, down };
  if (type === "inlineStr") cell.runs = runsOf(all(element, "is")[0]);
  else if (type === "s") cell.runs = strings[Number(raw)] ?? [];
  else if (type === "str" || type === "e") cell.runs = [{ text: raw ?? "" }];
  else if (raw !== null) cell.value = type === "b" ? raw === "1" : Number(raw);
  if (cell.runs) cell.value = cell.runs.map((run) => run.text).join("");
  return cell;
}

function mergesOf(document) {
  const [spans, covered] = [new Map(), new Set()];
  for (const element of all(document, "mergeCell")) {
    const area = areaOf(element.getAttribute("ref"));
    spans.set(`${letters(area.left)}${area.top}`, [area.right - area.left + 1, area.bottom - area.top + 1]);
    for (let row = area.top; row <= area.bottom; row += 1) {
      for (let column = area.left; column <= area.right; column += 1) {
        if (row !== area.top || column !== area.left) covered.add(`${letters(column)}${row}`);
      }
    }
  }
  return { spans, covered };
}

function styleSheet(document) {
  const formats = { ...BUILT_IN };
  for (const each of all(document, "numFmt")) formats[each.getAttribute("numFmtId")] = each.getAttribute("formatCode");
  const fonts = all(document, "font").map(fontOf);
  const fills = all(document, "fill").map((fill) => (/solid/.test(fill.firstElementChild?.getAttribute("patternType")) ? colorOf(all(fill, "fgColor")[0]) : null));
  const borders = all(document, "border").map((border) => [...border.children].some((side) => side.getAttribute("style")));
  return [...(all(document, "cellXfs")[0]?.children ?? [])].map((xf) => {
    const alignment = all(xf, "alignment")[0];
    return {
      ...fonts[number(xf, "fontId", 0)],
      format: formats[number(xf, "numFmtId", 0)] ?? "General",
      fill: fills[number(xf, "fillId", 0)] ?? null,
      border: borders[number(xf, "borderId", 0)] ?? false,
      align: alignment?.getAttribute("horizontal") ?? null,
      vertical: alignment?.getAttribute("vertical") ?? null,
      wrap: alignment?.getAttribute("wrapText") === "1",
    };
  });
}

function fontOf(font) {
  const has = (name) => all(font, name).length > 0;
  return { bold: has("b"), italic: has("i"), underline: has("u"), color: colorOf(all(font, "color")[0]), size: number(all(font, "sz")[0], "val", 11) };
}

function runsOf(element) {
  const runs = all(element, "r");
  if (!runs.length) return [{ text: all(element, "t").map((t) => t.textContent).join("") }];
  return runs.map((run) => ({ text: all(run, "t").map((t) => t.textContent).join(""), ...(all(run, "rPr")[0] ? fontOf(all(run, "rPr")[0]) : {}) }));
}

function chart(document) {
  const kinds = { lineChart: "line", barChart: "column", pieChart: "pie" };
  const plot = Object.keys(kinds).map((name) => all(document, name)[0]).find(Boolean);
  const kind = plot ? kinds[plot.localName] : "line";
  const lies = plot && all(plot, "barDir")[0]?.getAttribute("val") === "bar";
  return { kind: lies ? "bar" : kind, title: all(all(document, "title")[0], "t").map((t) => t.textContent).join("") };
}

/** The letters of a column, from 1: A, B, … */
export function letters(column) {
  let text = "";
  for (let rest = column; rest > 0; rest = Math.floor((rest - 1) / 26)) text = String.fromCharCode(65 + ((rest - 1) % 26)) + text;
  return text;
}

function columnOf(reference) {
  return [...reference.replace(/\d+/, "")].reduce((sum, letter) => sum * 26 + letter.charCodeAt(0) - 64, 0);
}

function areaOf(reference) {
  if (!reference) return null;
  const [first, last = first] = reference.split(":");
  const row = (text) => Number(text.replace(/\D+/, ""));
  return { left: columnOf(first), top: row(first), right: columnOf(last), bottom: row(last) };
}

function colorOf(element) {
  const rgb = element?.getAttribute("rgb");
  return rgb ? `#${rgb.slice(-6)}` : null;
}

function parsed(text) {
  return new DOMParser().parseFromString(text, "application/xml");
}

function all(element, name) {
  return element ? [...element.getElementsByTagNameNS("*", name)] : [];
}

function number(element, name, otherwise = 0) {
  const text = element?.getAttribute(name);
  return text === null || text === undefined ? otherwise : Number(text);
}
