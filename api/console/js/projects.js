// The projects and their names; other responses hold only a project's id.

import { get } from "./api.js";
import { clear, h } from "./dom.js";
import { session } from "./session.js";

/** A list of more than a thousand projects is of no use; an admin with more searches by the API. */
export const PROJECTS_MAX = 1000;
const PAGE_SIZE = 200;
const known = { all: null, names: new Map() };

/** Return all projects, newest first; only for the admin. They are read once, and again with `reload`. */
export function listProjects({ reload = false } = {}) {
  if (reload || !known.all) {
    known.names.clear();
    known.all = readPages();
    // After a failure the next caller reads again.
    known.all.catch(() => (known.all = null));
  }
  return known.all;
}

/** Create an element with a project's name and id; the id alone until the name is known. @param {string} id */
export function projectName(id) {
  const element = h("span", { class: "two-lines", title: id }, h("code", {}, id));
  nameOf(id).then(
    (name) => clear(element, h("bdi", {}, name), h("small", { class: "quiet" }, h("code", {}, id))),
    // Without its name the id alone is shown.
    () => {},
  );
  return element;
}

function nameOf(id) {
  if (!session.isAdmin) return Promise.resolve(session.name);
  if (!known.names.has(id)) known.names.set(id, findName(id));
  return known.names.get(id);
}

async function findName(id) {
  const found = (await listProjects()).find((project) => project.project_id === id);
  // A project that was created since, or that is beyond the list.
  return (found ?? (await get(`/v1/projects/${encodeURIComponent(id)}`))).name;
}

async function readPages(cursor = null, found = []) {
  const page = await get("/v1/projects", { limit: PAGE_SIZE, cursor });
  found.push(...page.items);
  return page.next_cursor && found.length < PROJECTS_MAX ? readPages(page.next_cursor, found) : found;
}
