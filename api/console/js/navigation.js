// The rooms by name and address, links, and the way to another page; the router draws what is gone to.

import { h } from "./dom.js";

export const HOME = "/console";

/** The rooms, in the order of the navigation. `admin`: only the admin key opens what it shows. */
export const ROOMS = [
  { name: "overview", href: HOME },
  { name: "downloads", href: `${HOME}/downloads` },
  { name: "transfers", href: `${HOME}/transfers` },
  { name: "orders", href: `${HOME}/orders` },
  { name: "addresses", href: `${HOME}/addresses`, admin: true },
  { name: "tasks", href: `${HOME}/tasks` },
];

let drawPage = null;

/** Have `f` draw the page of the new address after each `go`. */
export function drawWith(f) {
  drawPage = f;
}

/** A link inside the console. @returns {HTMLAnchorElement} */
export function link(href, ...children) {
  return h("a", { href }, ...children);
}

/** Go to a page of the console. @returns {Promise<void>} when it is drawn */
export function go(href) {
  history.pushState(null, "", href);
  return drawPage();
}
