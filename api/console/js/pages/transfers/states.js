// Labels of the states of jobs and targets, and the meaning of GSE's codes.

import { badge, stackBar } from "../../components/index.js";
import { h } from "../../dom.js";
import { has, language, t } from "../../i18n.js";

/** All states, in the order in which bars show them. */
export const STATES = ["Success", "Running", "Pending", "Timeout", "Failed"];
export const REASONS = ["gse_code", "gse_refused", "agent_offline", "upload_failed", "never_reported", "file_unavailable", "cancelled", "deadline"];

const TONES = { Success: "ok", Running: "run", Pending: "wait", Failed: "bad", Timeout: "late" };
const FINAL = new Set(["Success", "Failed", "Timeout"]);

// The same groups of codes as in domain/transfers/gse.py.
const CODES = {
  reached: [0],
  running: [115, 1000115],
  down: [117],
  large: [119],
  slow: [120],
  noUser: [122],
  password: [1326],
  terminated: [126, 1000126],
  unreadable: [104, 123, 127, 705, 706, 708, 709],
  broken: [701, 702, 703, 704, 707, 710],
};
const MEANINGS = new Map(Object.entries(CODES).flatMap(([name, codes]) => codes.map((code) => [code, name])));

export const href = {
  job: (id) => `/console/transfers/jobs/${encodeURIComponent(id)}`,
  task: (id) => `/console/transfers/tasks/${encodeURIComponent(id)}`,
  host: (id) => `/console/transfers/hosts/${encodeURIComponent(id)}`,
};

/** Paths of the API. */
export const address = {
  job: (id) => `/v1/transfers/jobs/${encodeURIComponent(id)}`,
  task: (id) => `/v1/transfers/${encodeURIComponent(id)}`,
};

/** A state as a badge. */
export function stateBadge(state, partial = false) {
  const word = t(`transfers.state.${state}`);
  return badge(partial ? `${word} (${t("transfers.partial")})` : word, TONES[state]);
}

/** Whether a state is final. */
export const isFinal = (state) => FINAL.has(state);

/** How many targets a job has. */
export const total = (counts) => Object.values(counts).reduce((sum, n) => sum + n, 0);

/** How many of them have ended. */
export const ended = (counts) => STATES.filter(isFinal).reduce((sum, state) => sum + (counts[state] ?? 0), 0);

/** One bar of target states. */
export function statesBar(counts) {
  return stackBar(STATES.map((state) => ({ label: t(`transfers.state.${state}`), n: counts[state] ?? 0, tone: TONES[state] })));
}

/** The class of a state's colour. */
export const tone = (state) => `tone-${TONES[state]}`;

/**
 * Explains why targets did not get the file.
 *
 * @param {{reason: ?string, code: ?number, message: string}} failure
 */
export function meaning({ reason, code, message }) {
  if (reason === "gse_code") return meaningOfCode(code);
  // The API's message also says what to do, but only in English.
  if (language() === "en" && message) return message;
  const key = has(`transfers.meaning.${reason}`) ? `transfers.meaning.${reason}` : `transfers.reason.${reason}`;
  return has(key) ? t(key) : message;
}

/** Explains a code of GSE. */
export function meaningOfCode(code) {
  const name = MEANINGS.get(code);
  return name ? t(`transfers.meaning.${name}`) : t("transfers.meaning.unknown", { code: String(code) });
}

/** A file, with its business and app. */
export function fileCell(job) {
  return h(
    "span",
    { class: "file-cell" },
    h("span", { class: "path" }, job.file_path),
    h("small", { class: "quiet" }, t("transfers.ofApp", { biz: String(job.biz_id), app: String(job.app_id) })),
  );
}
