// JSON as it was written: found and indented by its tokens, because reading numbers would round them.

const TOKEN = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;
const ITEM_DEPTH = 3;

/**
 * What each item of a page of orders holds under `order`, character by character.
 *
 * @param {string} text - `{"items": [{…, "order": …}, …], …}`
 * @returns {Array<string>}
 */
export function itemsAsWritten(text) {
  const found = [];
  let depth = 0;
  let key = "";
  let start = -1;
  for (const token of text.matchAll(TOKEN)) {
    const [word] = token;
    const closes = word === "}" || word === "]";
    if (closes) depth -= 1;
    const ends = depth < ITEM_DEPTH || (depth === ITEM_DEPTH && word === ",");
    if (start >= 0 && ends) {
      found.push(text.slice(start, token.index).trim());
      start = -1;
    }
    if (word === "{" || word === "[") depth += 1;
    if (start >= 0) continue;
    if (word === ":" && depth === ITEM_DEPTH && key === '"order"') start = token.index + 1;
    key = word;
  }
  return found;
}

/** JSON text with a line for each member, and every token as it was. */
export function indented(text) {
  let depth = 0;
  let line = "";
  let before = "";
  for (const [word] of text.matchAll(TOKEN)) {
    const closes = word === "}" || word === "]";
    if (closes) depth -= 1;
    const opened = before === "{" || before === "[";
    if ((opened && !closes) || before === "," || (closes && !opened)) line += `\n${"  ".repeat(depth)}`;
    line += word === ":" ? ": " : word;
    if (word === "{" || word === "[") depth += 1;
    before = word;
  }
  return line;
}
