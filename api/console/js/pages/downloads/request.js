// The request of a form for a new export, and the field that each fault of the API belongs to.

import { Raw } from "./fields.js";

/** What a table says besides where its rows come from. */
export const REGIONS = ["title", "summary", "header", "footer", "template"];
export const TABLE_FIELDS = ["source_url", "data", ...REGIONS];

/**
 * The body of `POST /v1/downloads` as JSON text.
 *
 * @param {Object} common - the fields that hold for the whole file
 * @param {"one"|"sheets"|"page"|"tab"} mode - how many tables there are and how they are arranged
 * @param {Array<Object>} tables - the fields of each table, and its `name`
 */
export function bodyOf(common, mode, tables) {
  return written({ ...common, ...tablesOf(mode, tables) });
}

/** A value as JSON text; what is `Raw` is kept as it was typed, with every digit. */
export function written(value) {
  if (value instanceof Raw) return value.text;
  if (Array.isArray(value)) return `[${value.map((item) => written(item ?? null)).join(", ")}]`;
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const members = Object.entries(value).filter(([, item]) => item !== undefined);
  return `{${members.map(([key, item]) => `${JSON.stringify(key)}: ${written(item)}`).join(", ")}}`;
}

/**
 * Where a fault belongs.
 *
 * @param {string} path - as the API returns it
 * @returns {{table: ?number, field: string, path: string}} the table, if it is about one; its field, "" for the whole;
 *   and the path as it would be if there were that table alone
 */
export function placeOf(path, mode) {
  const sheet = /^sheets\[(\d+)\]\.?/.exec(path);
  if (sheet) return placed(path.slice(sheet[0].length), Number(sheet[1]));
  const [field] = /^[^.[]*/.exec(path);
  if (!TABLE_FIELDS.includes(field)) return { table: null, field, path };
  const listed = mode === "page" || mode === "tab" ? /^[^.[]*\[(\d+)\]/.exec(path) : null;
  if (listed) return placed(field + path.slice(listed[0].length), Number(listed[1]));
  return placed(path, 0);
}

function placed(path, table) {
  return { table, field: /^[^.[]*/.exec(path)[0], path };
}

function tablesOf(mode, tables) {
  if (mode === "one") {
    const { name: _, ...only } = tables[0];
    return only;
  }
  if (mode === "sheets") return { sheets: tables };
  const lists = TABLE_FIELDS.filter((name) => tables.some((table) => table[name] !== undefined));
  return { multi: mode, ...Object.fromEntries(lists.map((name) => [name, tables.map((table) => table[name] ?? null)])) };
}
