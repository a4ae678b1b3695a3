// The pages of a section, as a row of links.

import { h } from "../dom.js";

/**
 * @param {string} label - the name of the section
 * @param {Array<[string, string]>} parts - address and title of each page
 * @param {string} current - the address of the shown page
 */
export function sections(label, parts, current) {
  const entries = parts.map(([href, word]) => h("a", { href, "aria-current": href === current ? "page" : null }, word));
  return h("nav", { class: "sections", "aria-label": label }, entries);
}
