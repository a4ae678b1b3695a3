// JSON as text: the position of each value, so that a fault can be shown at its line.

const SPACE = /[\s]*/y;
const TEXT = /"(?:[^"\\]|\\.)*"/y;
const WORD = /[^\s,\]}"[{:]+/y;

/**
 * Where a path leads in a JSON text.
 *
 * @param {string} text - well-formed JSON
 * @param {Array<string|number>} steps - as `steps` of template.js returns them
 * @returns {{start: number, end: number}} the innermost value on the way that is there
 */
export function find(text, steps) {
  let best = { start: 0, end: text.length, depth: 0 };
  const note = (path, start, end) => {
    const fits = path.length <= steps.length && path.every((step, index) => String(step) === String(steps[index]));
    if (fits && path.length >= best.depth) best = { start, end, depth: path.length };
  };
  value(text, skip(text, 0), [], note, steps.length);
  return { start: best.start, end: best.end };
}

/** The line, from 0, of a place in a text. */
export function lineOf(text, place) {
  return text.slice(0, place).split("\n").length - 1;
}

/** The texts of the first items of a JSON array, each exactly as it is written. */
export function firstItems(text, limit) {
  const found = [];
  let at = skip(text, skip(text, 0) + 1);
  while (found.length < limit && text[at] !== "]") {
    const end = value(text, at, [], () => {}, -1);
    found.push(text.slice(at, end));
    at = skip(text, end);
    if (text[at] === ",") at = skip(text, at + 1);
  }
  return found;
}

function value(text, at, path, note, depth) {
  let end;
  if (text[at] === "{" || text[at] === "[") end = inside(text, at, path, note, depth);
  else end = at + match(text[at] === '"' ? TEXT : WORD, text, at).length;
  if (path.length <= depth) note(path, at, end);
  return end;
}

function inside(text, at, path, note, depth) {
  const isObject = text[at] === "{";
  let place = skip(text, at + 1);
  for (let index = 0; text[place] !== "}" && text[place] !== "]"; index += 1) {
    let step = index;
    if (isObject) {
      const key = match(TEXT, text, place);
      step = JSON.parse(key);
      place = skip(text, skip(text, place + key.length) + 1);
    }
    place = skip(text, value(text, place, [...path, step], note, depth));
    if (text[place] === ",") place = skip(text, place + 1);
  }
  return place + 1;
}

function skip(text, at) {
  return at + match(SPACE, text, at).length;
}

function match(pattern, text, at) {
  pattern.lastIndex = at;
  const found = pattern.exec(text);
  if (!found) throw new SyntaxError(`no JSON at ${at}`);
  return found[0];
}
