// The client of the public API: one wrapper around fetch and EventSource, and problems as the API sends them.

import { t } from "./i18n.js";

const SEND_AGAIN_MS = 3000;
const ENVELOPE_OK = 0;
const TOKENS = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

const settings = { project: null, onSignedOut: () => {} };

/** An error response of the API: its sentence, its code and the request id. */
export class Problem extends Error {
  constructor({ status = 0, code = "", title = "", detail = "", hint = "", requestId = "", errors = [] }) {
    super(detail || title);
    Object.assign(this, { name: "Problem", status, code, title, detail, hint, requestId, errors });
  }
}

/** Make calls for this project (the admin's choice), or for all projects (null). */
export function setProject(project) {
  settings.project = project;
}

/** Set what happens when the session has ended. */
export function onSignedOut(f) {
  settings.onSignedOut = f;
}

/**
 * Read something.
 *
 * @param {string} path - e.g. "/v1/downloads"
 * @param {Object|URLSearchParams} [query] - null, undefined and "" are left out
 * @returns {Promise<*>} the parsed answer; integers beyond 2^53 are strings, so that no digit is lost
 * @throws {Problem}
 */
export const get = (path, query) => call("GET", path, undefined, query);

/** Create or start something. `body` is sent as JSON. */
export const post = (path, body, query) => call("POST", path, body ?? null, query);

/** Replace something. */
export const put = (path, body, query) => call("PUT", path, body ?? null, query);

/** Change some fields of something. */
export const patch = (path, body, query) => call("PATCH", path, body ?? null, query);

/** Delete or end something. */
export const del = (path, query) => call("DELETE", path, undefined, query);

/**
 * Listen to a stream of the API while the page is visible; it is opened again when it breaks.
 *
 * @param {string} path
 * @param {Object|URLSearchParams} query
 * @param {Object<string, function(*, MessageEvent): void>} events - what to do by event name, with the parsed data;
 *   `message` is the nameless event
 * @returns {function(): void} stops listening
 */
export function watch(path, query, events) {
  let source = null;
  let timer = 0;
  const open = () => {
    clearTimeout(timer);
    if (source || document.hidden) return;
    // EventSource cannot set headers, so the project goes into the query.
    source = new EventSource(address(path, { ...plain(query), project: settings.project }));
    for (const [name, f] of Object.entries(events)) {
      source.addEventListener(name, (event) => f(event.data ? parse(event.data) : null, event));
    }
    source.addEventListener("error", () => {
      // The browser reconnects by itself, except after a response that is no stream.
      if (source?.readyState !== EventSource.CLOSED) return;
      close();
      checkSession();
      timer = setTimeout(open, SEND_AGAIN_MS);
    });
  };
  const close = () => {
    clearTimeout(timer);
    source?.close();
    source = null;
  };
  // A browser opens six connections to a host: hidden tabs close theirs.
  const update = () => (document.hidden ? close() : open());
  document.addEventListener("visibilitychange", update);
  open();
  return () => {
    document.removeEventListener("visibilitychange", update);
    close();
  };
}

/** Find out whether a stream was refused because the session has ended; the stream does not say why. */
async function checkSession() {
  try {
    await get("/v1/session");
  } catch (problem) {
    if (problem.status === 401) settings.onSignedOut();
  }
}

/** Parse JSON; integers that a double cannot hold become strings. */
export function parse(text) {
  const safe = text.replace(TOKENS, (token) =>
    /^-?\d{16,}$/.test(token) && !Number.isSafeInteger(Number(token)) ? `"${token}"` : token,
  );
  return JSON.parse(safe);
}

/** Return a path with its query. */
export function address(path, query) {
  const text = new URLSearchParams(plain(query)).toString();
  return text ? `${path}?${text}` : path;
}

async function call(method, path, body, query) {
  const text = body === undefined || body === null ? undefined : JSON.stringify(body);
  const response = await send(method, path, { text, query });
  const answer = await readBody(response);
  if (isEnvelope(answer) && answer.code !== ENVELOPE_OK) throw buildEnvelopeProblem(response, answer);
  return answer;
}

/**
 * Send a request with its own JSON text and headers, and return the raw response.
 *
 * @param {string} method
 * @param {string} path
 * @param {{text: ?string, query: ?Object, headers: ?Object}} [given] - `text` is the JSON of the body
 * @returns {Promise<Response>} a successful response
 * @throws {Problem}
 */
export async function send(method, path, { text, query, headers = {} } = {}) {
  const all = { "Haulage-Console": "1", ...headers };
  if (settings.project) all["Haulage-Project"] = settings.project;
  if (text !== undefined) all["Content-Type"] = "application/json";
  const response = await orUnreachable(fetch(address(path, query), { method, headers: all, body: text, cache: "no-store" }));
  if (response.ok) return response;
  if (response.status === 401 && path !== "/v1/session") settings.onSignedOut();
  throw buildProblem(response, await readBody(response));
}

async function readBody(response) {
  const text = await orUnreachable(response.text());
  return text && /json/.test(response.headers.get("Content-Type") ?? "") ? parse(text) : text || null;
}

async function orUnreachable(promise) {
  try {
    return await promise;
  } catch {
    throw new Problem({ code: "unreachable", title: t("common.unreachable"), detail: t("common.unreachableText") });
  }
}

function buildProblem(response, answer) {
  const fields = answer && typeof answer === "object" ? answer : {};
  return new Problem({
    status: response.status,
    code: fields.code,
    title: fields.title || t("common.failed"),
    detail: fields.detail || t("common.statusText", { status: String(response.status) }),
    hint: fields.hint,
    requestId: fields.request_id ?? response.headers.get("X-Request-Id") ?? "",
    errors: fields.errors,
  });
}

function isEnvelope(answer) {
  return answer !== null && typeof answer === "object" && typeof answer.code === "number" && typeof answer.msg === "string";
}

function buildEnvelopeProblem(response, answer) {
  return new Problem({
    status: response.status,
    code: String(answer.code),
    title: t("common.failed"),
    detail: answer.msg.replace(/^FAIL_REASON::/, ""),
    requestId: response.headers.get("X-Request-Id") ?? "",
    errors: answer.errors,
  });
}

function plain(query) {
  const entries = query instanceof URLSearchParams ? [...query] : Object.entries(query ?? {});
  return Object.fromEntries(entries.filter(([, value]) => value !== null && value !== undefined && value !== ""));
}
