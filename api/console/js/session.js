// The session: who is signed in, for which project, and links to the engine's pages.

import * as api from "./api.js";
import { h } from "./dom.js";

const CHOSEN = "haulage.project";
const listeners = new Set();
const known = { who: null, project: null };

/**
 * The session.
 *
 * `isAdmin`: whether the admin key signed in. `operates`: whether the key has the right to operate. `projectId`: the project of the key, null for the admin.
 * `project`: the project that calls are for, its own or the admin's choice; null is all of them.
 * `uiUrl`: the address of Temporal's pages, "" if there are none. `namespace`: Temporal's namespace.
 */
export const session = {
  get signedIn() {
    return known.who !== null;
  },
  get isAdmin() {
    return Boolean(known.who?.is_admin);
  },
  get operates() {
    return known.who?.right === "operate";
  },
  get projectId() {
    return known.who?.project_id ?? null;
  },
  get project() {
    return known.project;
  },
  get name() {
    return known.who?.project_name ?? "";
  },
  get uiUrl() {
    return known.who?.ui_url ?? "";
  },
  get namespace() {
    return known.who?.namespace ?? "";
  },
  /** Call `f` whenever the session or the project changes. Returns a function that stops it. */
  onChange(f) {
    listeners.add(f);
    return () => listeners.delete(f);
  },
};

/** Load the session. Returns whether it is signed in. */
export async function load() {
  try {
    const who = await api.get("/v1/session");
    enter(who, who.is_admin ? readChoice() : who.project_id);
  } catch (problem) {
    if (problem.status !== 401) throw problem;
    enter(null, null);
  }
  return session.signedIn;
}

/** Sign in with a project's key or the admin key. */
export async function signIn(key) {
  const who = await api.post("/v1/session", { api_key: key });
  enter(who, who.is_admin ? readChoice() : who.project_id);
}

/** Sign out and delete the cookie. */
export async function signOut() {
  await api.del("/v1/session");
  storeChoice(null);
  enter(null, null);
}

/** Choose a project by its id, or all (null). Only for the admin. */
export function choose(project) {
  storeChoice(project);
  enter(known.who, project);
}

/**
 * Create a link to a workflow in Temporal's Web UI; only text if there is none.
 *
 * @param {string} workflowId
 * @param {string} [text] - the text of the link, by default the id
 * @returns {Node}
 */
export function workflowLink(workflowId, text = workflowId) {
  if (!session.uiUrl) return document.createTextNode(text);
  const path = `/namespaces/${encodeURIComponent(session.namespace)}/workflows/${encodeURIComponent(workflowId)}`;
  return h("a", { href: session.uiUrl.replace(/\/$/, "") + path, class: "outside", rel: "noreferrer", target: "_blank" }, text);
}

function enter(who, project) {
  Object.assign(known, { who, project });
  // A project's key needs no header.
  api.setProject(who?.is_admin ? project : null);
  for (const f of [...listeners]) f(session);
}

function readChoice() {
  try {
    return sessionStorage.getItem(CHOSEN);
  } catch {
    return null;
  }
}

function storeChoice(project) {
  try {
    if (project) sessionStorage.setItem(CHOSEN, project);
    else sessionStorage.removeItem(CHOSEN);
  } catch {
    // Without storage the choice lasts until the page is loaded again.
    return;
  }
}

api.onSignedOut(() => session.signedIn && enter(null, null));
