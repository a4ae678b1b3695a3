// Who is signed in, for which project, and how to reach the engine's own pages.

import * as api from "./api.js";
import { h } from "./dom.js";

const CHOSEN = "haulage.project";
const listeners = new Set();
const known = { who: null, project: null };

/**
 * The session.
 *
 * `isAdmin`: whether the admin key signed in. `projectId`: the project of the key, null for the admin.
 * `project`: the project that calls are for, its own or the admin's choice; null is all of them.
 * `uiUrl`: the address of Temporal's pages, "" where there are none. `namespace`: Temporal's namespace.
 */
export const session = {
  get signedIn() {
    return known.who !== null;
  },
  get isAdmin() {
    return Boolean(known.who?.is_admin);
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
  /** Call `f` whenever who is signed in, or for which project, changes. Returns what stops that. */
  onChange(f) {
    listeners.add(f);
    return () => listeners.delete(f);
  },
};

/** Ask the API who we are. Returns whether somebody is signed in. */
export async function load() {
  try {
    const who = await api.get("/v1/session");
    enter(who, who.is_admin ? kept() : who.project_id);
  } catch (problem) {
    if (problem.status !== 401) throw problem;
    enter(null, null);
  }
  return session.signedIn;
}

/** Sign in with a project's key or the admin key. */
export async function signIn(key) {
  const who = await api.post("/v1/session", { api_key: key });
  enter(who, who.is_admin ? kept() : who.project_id);
}

/** Sign out: the cookie is gone. */
export async function signOut() {
  await api.del("/v1/session");
  keep(null);
  enter(null, null);
}

/** Act for one project (its id), or for all (null). Only the admin may choose. */
export function choose(project) {
  keep(project);
  enter(known.who, project);
}

/**
 * A link to a workflow's page in Temporal's Web UI; only text where there is no such UI.
 *
 * @param {string} workflowId
 * @param {string} [text] - what the link says, by default the id
 * @returns {Node}
 */
export function workflowLink(workflowId, text = workflowId) {
  if (!session.uiUrl) return document.createTextNode(text);
  const path = `/namespaces/${encodeURIComponent(session.namespace)}/workflows/${encodeURIComponent(workflowId)}`;
  return h("a", { href: session.uiUrl.replace(/\/$/, "") + path, class: "outside", rel: "noreferrer", target: "_blank" }, text);
}

function enter(who, project) {
  Object.assign(known, { who, project });
  // A project's key needs no header: it has no choice.
  api.actFor(who?.is_admin ? project : null);
  for (const f of [...listeners]) f(session);
}

function kept() {
  try {
    return sessionStorage.getItem(CHOSEN);
  } catch {
    return null;
  }
}

function keep(project) {
  try {
    if (project) sessionStorage.setItem(CHOSEN, project);
    else sessionStorage.removeItem(CHOSEN);
  } catch {
    // Then the choice lasts until the page is loaded again.
    return;
  }
}

api.onSignedOut(() => session.signedIn && enter(null, null));
