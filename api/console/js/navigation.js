// The sections of the console, links, and navigation to another page, which the router draws.

import { h } from "./dom.js";

export const HOME = "/console";

/** The sections in the order of the navigation. `admin`: only for the admin key. `operates`: only with the right to operate. */
export const SECTIONS = [
  { name: "overview", href: HOME },
  { name: "downloads", href: `${HOME}/downloads` },
  { name: "transfers", href: `${HOME}/transfers` },
  { name: "orders", href: `${HOME}/orders` },
  { name: "addresses", href: `${HOME}/addresses`, admin: true },
  { name: "tasks", href: `${HOME}/tasks` },
  { name: "audit", href: `${HOME}/audit`, operates: true },
];

let drawPage = null;

/** Set the function that draws the page of the address after each `go`. */
export function drawWith(f) {
  drawPage = f;
}

/** Create a link inside the console. @returns {HTMLAnchorElement} */
export function link(href, ...children) {
  return h("a", { href }, ...children);
}

/** Go to a page of the console. @returns {Promise<void>} when it is drawn */
export function go(href) {
  history.pushState(null, "", href);
  return drawPage();
}
