// Pages by their address: the History API, rooms loaded when they are first asked for, focus where the reader needs it.

import { problemBox } from "./components/index.js";
import { clear, h } from "./dom.js";
import { t } from "./i18n.js";
import { HOME, ROOMS, drawWith, go, link } from "./navigation.js";

/**
 * What loads each room. A room's module exports
 * `routes = [{path: "/console/transfers/:id", title: (place) => string, page: async (place) => Element}]`.
 */
const LOADERS = {
  overview: () => import("./rooms/overview.js"),
  downloads: () => import("./rooms/downloads.js"),
  transfers: () => import("./rooms/transfers.js"),
  orders: () => import("./rooms/orders.js"),
  addresses: () => import("./rooms/addresses.js"),
  tasks: () => import("./rooms/tasks.js"),
};

let outlet = null;
let leaving = [];
let turn = 0;
let shown = "";
const listeners = new Set();

/**
 * Where the reader is.
 *
 * `params`: the variables of the path, decoded. `query`: URLSearchParams of the address.
 * `change(changes, {push})`: put changes into the query (null takes one out); the page is not drawn again. With
 * `push` the reader's Back comes back to what was before. `onLeave(f)`: call `f` when the page is left: stop streams and
 * timers there. `setTitle(text)`: once the page knows better than its route. `actions(...nodes)`: buttons beside the
 * heading. `refresh()`: draw the page again from its address.
 *
 * @typedef {Object} Place
 */

/** Begin to load the room that the address names, while the session is asked for. */
export function prepare() {
  // What goes wrong with it is told when the page is drawn.
  const room = roomAt(location.pathname);
  if (room) LOADERS[room.name]().catch(() => {});
}

/** Draw the current page again, without moving the focus. */
export function refresh() {
  return show({ moves: false });
}

/** Call `f(room, place)` after each page. */
export function onPage(f) {
  listeners.add(f);
}

/** Begin: pages are drawn into `element`; links and Back lead through here. */
export function start(element) {
  outlet = element;
  drawWith(show);
  // A link to a place within the page makes an entry of the history, too.
  addEventListener("popstate", () => location.pathname + location.search === shown || show());
  document.addEventListener("click", follow);
  return show({ moves: false });
}

/** Leave the page that is shown, e.g. because nobody is signed in any more. */
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
  const place = placeHere();
  shown = location.pathname + location.search;
  outlet.setAttribute("aria-busy", "true");
  const [title, content] = await draw(place);
  // While this page was on its way the reader went elsewhere.
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
  for (const f of listeners) f(place.room, place);
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
    // A fault of ours belongs into the browser's console, too.
    if (problem.name !== "Problem") console.error(problem);
    return [t("common.failed"), problemBox(problem)];
  }
}

async function find(place) {
  place.room = roomAt(place.path);
  if (!place.room) return null;
  const { routes } = await LOADERS[place.room.name]();
  for (const route of routes) {
    const params = match(route.path, place.path);
    if (params) return Object.assign(place, { params }) && route;
  }
  return null;
}

function roomAt(path) {
  const first = path.split("/")[2] ?? "";
  return ROOMS.find((room) => room.href === (first ? `${HOME}/${first}` : HOME)) ?? null;
}

/** The variables of a path that a pattern matches, or null. The last variable `:name*` may hold slashes. */
export function match(pattern, path) {
  const names = [];
  const source = pattern.replace(/:(\w+)(\*?)/g, (_, name, rest) => {
    names.push(name);
    return rest ? "(.+)" : "([^/]+)";
  });
  const found = new RegExp(`^${source}/?$`).exec(path);
  return found && Object.fromEntries(names.map((name, index) => [name, decodeURIComponent(found[index + 1])]));
}

function placeHere() {
  const mine = turn;
  const place = {
    path: location.pathname,
    params: {},
    query: new URLSearchParams(location.search),
    room: null,
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
    // Before the page is drawn these are remembered, afterwards they act at once.
    setTitle: (text) => (place.title = text),
    actions: (...buttons) => (place.buttons = buttons),
    refresh,
  };
  return place;
}
