// The status of a download: its state, phase, rows, rate and what remains, in words and as a bar.

import { badge, bytes, duration, number, progress } from "../../components/index.js";
import { h, markCode } from "../../dom.js";
import { has, t } from "../../i18n.js";

export const STATES = ["pending", "running", "succeeded", "failed", "cancelled", "expired"];
export const TYPES = ["csv", "excel", "parquet"];

const TONES = { pending: "wait", running: "run", succeeded: "ok", failed: "bad", cancelled: "off", expired: "off" };
// A bar that is full while the file is still being made would promise too much.
const NEARLY = 0.99;

/** Whether it is over. */
export const isFinal = (download) => !["pending", "running"].includes(download.state);

/** The state as a badge. */
export const stateBadge = (state) => badge(has(`downloads.state.${state}`) ? t(`downloads.state.${state}`) : state, TONES[state]);

/** A phase in words. */
export const phaseWords = (phase) => (has(`downloads.phase.${phase}`) ? t(`downloads.phase.${phase}`) : phase);

/** A type of file in words. */
export const typeWords = (type) => t(`downloads.type.${type}`);

/** A file name, whose direction is its own affair. */
export const fileName = (name) => h("bdi", { class: "file-name" }, name);

/** How far it is, from 0 to 1; null where the source did not say how many rows there are. */
export function fraction({ rows, total }) {
  if (total === null || total === undefined) return null;
  return total === 0 ? NEARLY : Math.min(NEARLY, rows / total);
}

/** Seconds until the remaining rows are fetched; null if that is unknown. */
export function remainingSeconds({ rows, total, rows_per_second: rate, phase }) {
  if (phase !== "fetching" || !rate || !total || total <= rows) return null;
  return (total - rows) / rate;
}

/** The rows in words: “1,200 of 5,000 rows”. */
export function rowsWords({ rows, total }) {
  if (total === null || total === undefined) return t("downloads.rowsSoFar", { n: rows });
  return t("downloads.rowsOf", { n: total, rows: number(rows) });
}

/** A bar and its words for one that waits or runs. */
export function bar(download) {
  if (download.state === "pending") return h("span", { class: "quiet" }, t("downloads.phase.waiting"));
  if (!download.phase) return progress(null, t("downloads.state.running"));
  const left = remainingSeconds(download);
  const words = [phaseWords(download.phase)];
  if (download.rows || download.total !== null) words.push(rowsWords(download));
  if (left !== null) words.push(t("downloads.left", { time: duration(left) }));
  return progress(fraction(download), words.join(" · "));
}

/** What came of it, or how far it is, in a line. */
export function resultLine(download) {
  if (!isFinal(download)) return bar(download);
  if (download.fault) return h("span", { class: "why", dir: "auto" }, markCode(download.fault.message));
  if (download.bytes === null) return h("span", { class: "quiet" }, "–");
  return h("span", {}, `${t("downloads.rowsSoFar", { n: download.rows })} · ${bytes(download.bytes)}`);
}
