// Templates as trees: what callers write in many forms becomes lists of nodes, and back; and where a path leads in it.

const ROOTS = ["col", "ceil", "row", "charts"];
const TREES = ["children", "condition_style"];
const STEP = /\.([^.[“]+)|\[(\d+)\]|\[“(.*?)”\]/gsu;

/** Fields of a column head that the table shows, and those behind its fold. */
export const COLUMN_FIELDS = ["name", "title", "type", "format", "width", "height", "wrap", "align", "v-align", "v_align", "valign", "color", "bold", "bg_color", "condition_style", "children"];
export const ROW_FIELDS = ["name", "title", "bg_color", "row_count", "children"];
export const TYPES = ["auto", "text", "number", "date", "datetime", "boolean", "rich", "link", "formula"];
export const COLORS = ["black", "white", "red", "green", "blue", "yellow", "cyan"];
export const FORMATS = ["0", "0.00", "#,##0", "#,##0.00", "0%", "0.0%", "yyyy-mm-dd", "yyyy-mm-dd hh:mm:ss", "@"];

/** What cannot be shown as a tree; `path` says where. */
export class NotATree extends Error {
  constructor(path) {
    super(path);
    this.path = path;
  }
}

/**
 * A template as lists of nodes, by the rules of the API.
 *
 * @param {*} value - a map of keys to titles, a list of nodes, or an object of col (ceil), row and charts
 * @returns {{col: Array, row: Array, charts: Array}}
 * @throws {NotATree}
 */
export function toTree(value) {
  if (value === null || value === undefined || value === "") return { col: [], row: [], charts: [] };
  const isRegions = isObject(value) && ROOTS.some((root) => typeof value[root] === "object" && value[root] !== null);
  if (!isRegions) return { col: nodes(value, COLUMN_FIELDS, "template", true), row: [], charts: [] };
  const stranger = Object.keys(value).find((key) => !ROOTS.includes(key));
  if (stranger !== undefined) throw new NotATree(`template.${stranger}`);
  if (value.col && value.ceil) throw new NotATree("template.ceil");
  return {
    col: nodes(value.col ?? value.ceil, COLUMN_FIELDS, "template.col", false),
    row: nodes(value.row, ROW_FIELDS, "template.row", false),
    charts: charts(value.charts),
  };
}

/** The template that a tree is: null where it has nothing, a list of nodes where it has columns alone. */
export function fromTree({ col, row, charts: drawn }) {
  if (!row.length && !drawn.length) return col.length ? col : null;
  return { col, ...(row.length ? { row } : {}), ...(drawn.length ? { charts: drawn } : {}) };
}

/** The steps of a path as the API writes it: `template.col[0].children[1].width` → `["col", 0, "children", 1, "width"]`. */
export function steps(path) {
  return [...path.replace(/^[^.[]+/, "").matchAll(STEP)].map(([, name, index, quoted]) => (index === undefined ? name ?? quoted : Number(index)));
}

/**
 * The place of a fault in a tree.
 *
 * @returns {{region: string, at: Array<number>, field: ?string, rest: Array}|null} the node by its places from the root, its
 *   field, and what is within that; null where no node is meant
 */
export function locate(path, tree) {
  const found = steps(path);
  const region = typeof found[0] === "string" && ROOTS.includes(found[0]) ? found.shift() : "col";
  const root = region === "ceil" ? "col" : region;
  if (typeof found[0] !== "number" || !tree[root][found[0]]) return null;
  const at = [found.shift()];
  let node = tree[root][at[0]];
  while (found[0] === "children" && typeof found[1] === "number" && node.children?.[found[1]]) {
    node = node.children[found[1]];
    at.push(found[1]);
    found.splice(0, 2);
  }
  return { region: root, at, field: found[0] === undefined ? null : String(found[0]), rest: found.slice(1) };
}

/** The list that holds the node at these places, and the node. */
export function within(list, at) {
  const holder = at.slice(0, -1).reduce((inside, place) => inside[place].children, list);
  return { holder, node: holder[at.at(-1)] };
}

/** All nodes in the order in which they are drawn, with their places. */
export function flat(list, before = []) {
  return list.flatMap((node, place) => {
    const at = [...before, place];
    return [{ node, at }, ...flat(node.children ?? [], at)];
  });
}

/** Columns for the keys of given rows. */
export function columnsOf(rows) {
  const keys = new Set();
  for (const row of rows.slice(0, 10)) if (isObject(row)) for (const key of Object.keys(row)) keys.add(key);
  return [...keys].map((name) => ({ name, title: name }));
}

function nodes(value, fields, path, top) {
  if (value === null || value === undefined || value === "") return [];
  if (Array.isArray(value)) return value.map((item, place) => node(item, fields, `${path}[${place}]`));
  if (!isObject(value)) throw new NotATree(path);
  if (isNode(value, fields, top)) return [node(value, fields, path)];
  return Object.entries(value).map(([key, item]) => node(named(key, item), fields, `${path}.${key}`));
}

function node(item, fields, path) {
  if (!isObject(item)) throw new NotATree(path);
  const inside = nodes(item.children, fields, `${path}.children`, false);
  const { children: _, ...own } = item;
  return inside.length ? { ...own, children: inside } : own;
}

function charts(value) {
  if (value === null || value === undefined || value === "") return [];
  const list = Array.isArray(value) ? value : [value];
  list.forEach((item, place) => {
    if (!isObject(item)) throw new NotATree(`template.charts[${place}]`);
  });
  return list;
}

function isNode(value, fields, top) {
  if (!("name" in value) && !("title" in value)) return false;
  if (!Object.entries(value).every(([key, item]) => mayBeMapped(key, item))) return true;
  return !top && Object.keys(value).every((key) => fields.includes(key));
}

function mayBeMapped(key, item) {
  if (item === null || typeof item === "string") return true;
  if (Array.isArray(item)) return item.length === 0;
  return typeof item === "object" && !TREES.includes(key);
}

function named(key, item) {
  if (item === null || typeof item === "string") return item ? { name: key, title: item } : { name: key };
  if (Array.isArray(item) && !item.length) return { name: key };
  return isObject(item) && (item.name ?? "") === "" ? { ...item, name: key } : item;
}

function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
