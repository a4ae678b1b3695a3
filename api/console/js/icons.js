// The icons of the sections, in the colour of the text.

import { svg } from "./dom.js";

const PATHS = {
  overview: "M3 12h4l3-8 4 16 3-8h4",
  downloads: "M12 3v12m0 0 5-5m-5 5-5-5M4 20h16",
  transfers: "M4 8h14m0 0-4-4m4 4-4 4M20 16H6m0 0 4 4m-4-4 4-4",
  orders: "M6 3h12v18l-3-2-3 2-3-2-3 2zM9 8h6M9 12h6",
  addresses: "M12 21s7-6.2 7-11.5A7 7 0 0 0 5 9.5C5 14.8 12 21 12 21zM12 12a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5z",
  audit: "M7 3h8l4 4v14H5V3zM14 3v5h5M9 13h6M9 17h4",
  tasks: "M4 6h2m4 0h10M4 12h2m4 0h10M4 18h2m4 0h10",
};

/** Create the icon of a section. @param {string} section */
export function icon(section) {
  return svg("svg", { viewBox: "0 0 24 24", "aria-hidden": "true", class: "icon" }, svg("path", { d: PATHS[section] }));
}
