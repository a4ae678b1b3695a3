// The projects by their names: everything else says only the id of the one that it belongs to.

import { get } from "./api.js";
import { clear, h } from "./dom.js";
import { session } from "./session.js";

/** Beyond a thousand a chooser helps nobody; such an admin comes with a project in mind and searches the API. */
export const PROJECTS_MAX = 1000;
const PAGE = 200;
const known = { all: null, names: new Map() };

/** All projects, newest first; only the admin may ask. They are read once, and again for those who want them anew. */
export function everyProject({ anew = false } = {}) {
  if (anew || !known.all) {
    known.names.clear();
    known.all = pages();
    // What could not be read is asked for again by whoever needs it next.
    known.all.catch(() => (known.all = null));
  }
  return known.all;
}

/** A project by its name, with its id beneath; the id alone until the name is known. @param {string} id */
export function projectName(id) {
  const element = h("span", { class: "two-lines", title: id }, h("code", {}, id));
  nameOf(id).then(
    (name) => clear(element, h("bdi", {}, name), h("small", { class: "quiet" }, h("code", {}, id))),
    // Then the id stands for itself.
    () => {},
  );
  return element;
}

function nameOf(id) {
  if (!session.isAdmin) return Promise.resolve(session.name);
  if (!known.names.has(id)) known.names.set(id, looked(id));
  return known.names.get(id);
}

async function looked(id) {
  const found = (await everyProject()).find((project) => project.project_id === id);
  // One that was made meanwhile, or that is beyond the list.
  return (found ?? (await get(`/v1/projects/${encodeURIComponent(id)}`))).name;
}

async function pages(cursor = null, found = []) {
  const page = await get("/v1/projects", { limit: PAGE, cursor });
  found.push(...page.items);
  return page.next_cursor && found.length < PROJECTS_MAX ? pages(page.next_cursor, found) : found;
}
