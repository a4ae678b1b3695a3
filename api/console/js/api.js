// The public API: one wrapper around fetch and EventSource, and problems as the API tells them.

import { t } from "./i18n.js";

const SEND_AGAIN_MS = 3000;
const ENVELOPE_OK = 0;
const TOKENS = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

const acting = { project: null, signedOut: () => {} };

/** What a call answered instead of a result: the API's own sentence, its code and the request id. */
export class Problem extends Error {
  constructor({ status = 0, code = "", title = "", detail = "", hint = "", requestId = "", errors = [] }) {
    super(detail || title);
    Object.assign(this, { name: "Problem", status, code, title, detail, hint, requestId, errors });
  }
}

/** From now on calls are for this project (the admin's choice); null is for all. The session calls it. */
export function actFor(project) {
  acting.project = project;
}

/** What to do when the API does not know us any more. The session sets it. */
export function onSignedOut(f) {
  acting.signedOut = f;
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

/** Make or start something. `body` is sent as JSON. */
export const post = (path, body, query) => call("POST", path, body ?? null, query);

/** Set something whole. */
export const put = (path, body, query) => call("PUT", path, body ?? null, query);

/** Change a part of something. */
export const patch = (path, body, query) => call("PATCH", path, body ?? null, query);

/** End something. */
export const del = (path, query) => call("DELETE", path, undefined, query);

/**
 * Listen to a stream of the API for as long as the page is looked at; it is opened again when it breaks.
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
    // EventSource sends no headers of ours.
    source = new EventSource(address(path, { ...plain(query), project: acting.project }));
    for (const [name, f] of Object.entries(events)) {
      source.addEventListener(name, (event) => f(event.data ? parse(event.data) : null, event));
    }
    source.addEventListener("error", () => {
      // The browser tries again by itself, except after an answer that is no stream.
      if (source?.readyState !== EventSource.CLOSED) return;
      close();
      stillKnown();
      timer = setTimeout(open, SEND_AGAIN_MS);
    });
  };
  const close = () => {
    clearTimeout(timer);
    source?.close();
    source = null;
  };
  // A browser holds six connections a host: tabs that nobody looks at give theirs back.
  const look = () => (document.hidden ? close() : open());
  document.addEventListener("visibilitychange", look);
  open();
  return () => {
    document.removeEventListener("visibilitychange", look);
    close();
  };
}

/** A stream does not say why it was refused: ask whether it is because the session is over. */
async function stillKnown() {
  try {
    await get("/v1/session");
  } catch (problem) {
    if (problem.status === 401) acting.signedOut();
  }
}

/** JSON with every digit: integers that a double cannot hold become strings. */
export function parse(text) {
  const safe = text.replace(TOKENS, (token) =>
    /^-?\d{16,}$/.test(token) && !Number.isSafeInteger(Number(token)) ? `"${token}"` : token,
  );
  return JSON.parse(safe);
}

/** A path with its query. */
export function address(path, query) {
  const text = new URLSearchParams(plain(query)).toString();
  return text ? `${path}?${text}` : path;
}

async function call(method, path, body, query) {
  const text = body === undefined || body === null ? undefined : JSON.stringify(body);
  const response = await send(method, path, { text, query });
  const answer = await answerOf(response);
  if (isEnvelope(answer) && answer.code !== ENVELOPE_OK) throw ofEnvelope(response, answer);
  return answer;
}

/**
 * Send what the short ways cannot: JSON as it was written, headers; and get the answer as it came.
 *
 * @param {string} method
 * @param {string} path
 * @param {{text: ?string, query: ?Object, headers: ?Object}} [given] - `text` is the JSON of the body
 * @returns {Promise<Response>} of a good answer
 * @throws {Problem}
 */
export async function send(method, path, { text, query, headers = {} } = {}) {
  const all = { "Haulage-Console": "1", ...headers };
  if (acting.project) all["Haulage-Project"] = acting.project;
  if (text !== undefined) all["Content-Type"] = "application/json";
  const response = await reached(fetch(address(path, query), { method, headers: all, body: text, cache: "no-store" }));
  if (response.ok) return response;
  if (response.status === 401 && path !== "/v1/session") acting.signedOut();
  throw problemOf(response, await answerOf(response));
}

async function answerOf(response) {
  const text = await reached(response.text());
  return text && /json/.test(response.headers.get("Content-Type") ?? "") ? parse(text) : text || null;
}

async function reached(promise) {
  try {
    return await promise;
  } catch {
    throw new Problem({ code: "unreachable", title: t("common.unreachable"), detail: t("common.unreachableText") });
  }
}

function problemOf(response, answer) {
  const told = answer && typeof answer === "object" ? answer : {};
  return new Problem({
    status: response.status,
    code: told.code,
    title: told.title || t("common.failed"),
    detail: told.detail || t("common.statusText", { status: String(response.status) }),
    hint: told.hint,
    requestId: told.request_id ?? response.headers.get("X-Request-Id") ?? "",
    errors: told.errors,
  });
}

function isEnvelope(answer) {
  return answer !== null && typeof answer === "object" && typeof answer.code === "number" && typeof answer.msg === "string";
}

function ofEnvelope(response, answer) {
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
