// Creates elements from a name, properties and children; text becomes text nodes, never markup.

const SVG = "http://www.w3.org/2000/svg";

/**
 * Create an HTML element.
 *
 * @param {string} name - the tag, e.g. "button" or a custom element's name
 * @param {?Object} props - attributes; besides: `class` (a string, or an array whose falsy entries are left out),
 *   `on: {click: f}` (listeners), `data: {name: value}`, and `".value": v` (a property instead of an attribute).
 *   null, undefined and false leave an attribute out, true writes it empty.
 * @param {...(Node|string|number|null|false|Array)} children - arrays are flattened, null and false left out
 * @returns {HTMLElement}
 */
export function h(name, props, ...children) {
  return setUp(document.createElement(name), props, children);
}

/**
 * Create an SVG element, as `h` does for HTML.
 *
 * @returns {SVGElement}
 */
export function svg(name, props, ...children) {
  return setUp(document.createElementNS(SVG, name), props, children);
}

/** Replace the children of an element. Returns the element.
 *
 *  A link or button that has the focus passes it to the new one with the same text. */
export function clear(element, ...children) {
  const focused = element.contains(document.activeElement) ? document.activeElement : null;
  element.replaceChildren(...nodes(children));
  if (focused && !focused.isConnected) findSame(element, focused)?.focus({ preventScroll: true });
  return element;
}

function findSame(element, focused) {
  const label = (each) => each.getAttribute("aria-label") ?? each.textContent;
  if (!["a", "button", "summary"].includes(focused.localName)) return undefined;
  return [...element.querySelectorAll(focused.localName)].find((each) => label(each) === label(focused));
}

/** Return children, as `h` takes them, as a flat list of nodes. */
export function nodes(children) {
  return children
    .flat(Infinity)
    .filter((child) => child !== null && child !== undefined && child !== false && child !== "")
    .map((child) => (child instanceof Node ? child : document.createTextNode(String(child))));
}

const CODE = /`([^`\n]+)`/;

/**
 * Return a sentence, such as those of the API, as nodes: what is between back-ticks is code. All else stays the text that it
 * is, as a sentence may quote anything.
 *
 * @param {?string} sentence
 * @returns {Node[]}
 */
export function markCode(sentence) {
  return nodes((sentence ?? "").split(CODE).map((piece, index) => (index % 2 ? h("code", {}, piece) : piece)));
}

let counted = 0;

/** Return an unused id, for `for`, `aria-labelledby` and the like. */
export function freshId(prefix = "x") {
  counted += 1;
  return `${prefix}-${counted}`;
}

function setUp(element, props, children) {
  for (const [key, value] of Object.entries(props ?? {})) {
    if (key.startsWith(".")) element[key.slice(1)] = value;
    else if (value === null || value === undefined || value === false) continue;
    else if (key === "on") for (const [event, f] of Object.entries(value)) element.addEventListener(event, f);
    else if (key === "data") Object.assign(element.dataset, value);
    else if (key === "class") element.setAttribute("class", [value].flat().filter(Boolean).join(" "));
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...nodes(children));
  return element;
}
