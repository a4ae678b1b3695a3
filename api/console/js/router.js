// The router: draws the page of the address, loads sections on first use, and sets the focus.

import { problemBox } from "./components/index.js";
import { clear, h } from "./dom.js";
import { t } from "./i18n.js";
import { HOME, SECTIONS, drawWith, go, link } from "./navigation.js";

/**
 * The modules of the sections. Each exports
 * `routes = [{path: "/console/transfers/:id", title: (place) => string, page: async (place) => Element}]`.
 */
const LOADERS = {
  overview: () => import("./pages/overview.js"),
  downloads: () => import("./pages/downloads.js"),
  transfers: () => import("./pages/transfers.js"),
  orders: () => import("./pages/orders.js"),
  addresses: () => import("./pages/addresses.js"),
  tasks: () => import("./pages/tasks.js"),
  audit: () => import("./pages/audit.js"),
};

const UNAVAILABLE = 503;
const DRAW_AGAIN_MS = 5000;

let outlet = null;
let leaving = [];
let turn = 0;
let shown = "";
const listeners = new Set();

/**
 * The page that is shown.
 *
 * `params`: the variables of the path, decoded. `query`: URLSearchParams of the address.
 * `change(changes, {push})`: put changes into the query (null takes one out); the page is not drawn again. With
 * `push` the browser's Back button undoes it. `onLeave(f)`: call `f` when the page is left: stop streams and
 * timers there. `setTitle(text)`: to replace the title of its route. `actions(...nodes)`: buttons beside the
 * heading. `refresh()`: draw the page again from its address.
 *
 * @typedef {Object} Place
 */

/** Start to load the section of the address while the session is loaded. */
export function prepare() {
  // A failure is reported when the page is drawn.
  const section = findSection(location.pathname);
  if (section) LOADERS[section.name]().catch(() => {});
}

/** Draw the current page again, without moving the focus. */
export function refresh() {
  return show({ moves: false });
}

/** Call `f(section, place)` after each page. */
export function onPage(f) {
  listeners.add(f);
}

/** Start: draw pages into `element`, and handle links and the Back button. */
export function start(element) {
  outlet = element;
  drawWith(show);
  // A link within the page creates a history entry, too.
  addEventListener("popstate", () => location.pathname + location.search === shown || show());
  document.addEventListener("click", follow);
  return show({ moves: false });
}

/** Leave the page, e.g. because the session has ended. */
export function leave() {
  turn += 1;
  for (const f of leaving.splice(0)) f();
}

function follow(event) {
  const anchor = event.target.closest?.("a[href]");
  const elsewhere = event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey;
  if (!anchor || elsewhere || anchor.target || anchor.hasAttribute("download")) return;
  const url = new URL(anchor.href);
  if (url.origin !== location.origin || !/^\/console(\/|$)/.test(url.pathname) || url.pathname.startsWith(`${HOME}/assets/`)) return;
  if (url.hash && url.pathname === location.pathname) return;
  event.preventDefault();
  go(url.pathname + url.search + url.hash);
}

async function show({ moves = true } = {}) {
  leave();
  const mine = turn;
  const place = createPlace();
  shown = location.pathname + location.search;
  outlet.setAttribute("aria-busy", "true");
  const [title, content] = await draw(place);
  // The reader has opened another page meanwhile.
  if (mine !== turn) return;
  outlet.removeAttribute("aria-busy");
  const heading = h("h1", { tabindex: "-1" });
  place.setTitle = (text) => {
    heading.textContent = text;
    document.title = `${text} · Haulage`;
  };
  place.setTitle(place.title ?? title);
  const head = h("header", { class: "page-head" }, heading, h("div", { class: "page-actions" }, place.buttons));
  place.actions = (...buttons) => clear(head.lastChild, buttons);
  clear(outlet, head, content);
  for (const f of listeners) f(place.section, place);
  if (!moves) return;
  scrollTo(0, 0);
  heading.focus({ preventScroll: true });
}

async function draw(place) {
  try {
    const route = await find(place);
    if (!route) return [t("common.noPage"), h("p", {}, t("common.noPageText"), " ", link(HOME, t("common.backHome")))];
    const content = await route.page(place);
    return [route.title(place), content];
  } catch (problem) {
    // An error of the console itself is logged as well.
    if (problem.name !== "Problem") console.error(problem);
    if (problem.status === UNAVAILABLE) {
      const timer = setTimeout(refresh, DRAW_AGAIN_MS);
      place.onLeave(() => clearTimeout(timer));
    }
    return [t("common.failed"), problemBox(problem)];
  }
}

async function find(place) {
  place.section = findSection(place.path);
  if (!place.section) return null;
  const { routes } = await LOADERS[place.section.name]();
  for (const route of routes) {
    const params = match(route.path, place.path);
    if (params) return Object.assign(place, { params }) && route;
  }
  return null;
}

function findSection(path) {
  const first = path.split("/")[2] ?? "";
  return SECTIONS.find((section) => section.href === (first ? `${HOME}/${first}` : HOME)) ?? null;
}

/** Return the variables of a path that matches a pattern, or null. The last variable `:name*` may hold slashes. */
export function match(pattern, path) {
  const names = [];
  const source = pattern.replace(/:(\w+)(\*?)/g, (_, name, rest) => {
    names.push(name);
    return rest ? "(.+)" : "([^/]+)";
  });
  const found = new RegExp(`^${source}/?$`).exec(path);
  return found && Object.fromEntries(names.map((name, index) => [name, decodeURIComponent(found[index + 1])]));
}

function createPlace() {
  const mine = turn;
  const place = {
    path: location.pathname,
    params: {},
    query: new URLSearchParams(location.search),
    section: null,
    title: null,
    buttons: [],
    change(changes, { push = false } = {}) {
      for (const [name, value] of Object.entries(changes)) {
        if (value === null || value === undefined || value === "") place.query.delete(name);
        else place.query.set(name, value);
      }
      if (mine !== turn) return;
      const text = place.query.toString();
      history[push ? "pushState" : "replaceState"](null, "", text ? `${place.path}?${text}` : place.path);
      shown = location.pathname + location.search;
    },
    onLeave: (f) => (mine === turn ? leaving.push(f) : f()),
    // Before the page is drawn these are stored; afterwards they apply at once.
    setTitle: (text) => (place.title = text),
    actions: (...buttons) => (place.buttons = buttons),
    refresh,
  };
  return place;
}
