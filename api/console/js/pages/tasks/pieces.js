// Shared by the pages of tasks: states, addresses of pages, and short texts.

import { ago, badge } from "../../components/index.js";
import { h } from "../../dom.js";
import { t } from "../../i18n.js";
import { link } from "../../navigation.js";

export const BASE_PATH = "/console/tasks";
export const PENDING = 1;
export const RUNNING = 2;
export const SUCCESS = 3;
export const FAILED = 4;
export const CANCELLED = 5;
export const STATUSES = [PENDING, RUNNING, SUCCESS, FAILED, CANCELLED];

const WORDS = { [PENDING]: "pending", [RUNNING]: "running", [SUCCESS]: "success", [FAILED]: "failed", [CANCELLED]: "cancelled" };
const TONES = { [PENDING]: "wait", [RUNNING]: "run", [SUCCESS]: "ok", [FAILED]: "bad", [CANCELLED]: "off" };
const ID = /^[0-9a-f]{32}_[A-Za-z0-9_.-]{1,100}_[1-9][0-9]{0,8}$/;

export const href = {
  task: (id) => `${BASE_PATH}/tasks/${encodeURIComponent(id)}`,
  // An admin's page of a type names the project, because several projects may have a type of that name.
  type: (type, part = "", project = null) =>
    `${BASE_PATH}/types/${encodeURIComponent(type)}${part}${project ? `?project=${encodeURIComponent(project)}` : ""}`,
  named: (name) => `${BASE_PATH}/named/${encodeURIComponent(name)}`,
};

/** Return whether a text has the form of a task id. */
export const isId = (text) => ID.test(text);

export const statusWord = (status) => t(`tasks.status.${WORDS[status]}`);

export const isEnded = (task) => task.status >= SUCCESS;

/** Return a badge with the state of a task; a pending one that failed before has a state of its own. */
export function statusBadge(task) {
  const again = task.status === PENDING && task.crt_retry_num > 0;
  return badge(again ? t("tasks.status.again") : statusWord(task.status), TONES[task.status]);
}

/** Convert seconds since 1970 to a date. */
export const moment = (seconds) => new Date(seconds * 1000);

/** Describe what happens next to a task. */
export function nextStep(task) {
  if (task.status === RUNNING) return h("span", {}, t("tasks.leaseEnds"), " ", ago(moment(task.lease_end)));
  if (task.status === PENDING) return h("span", {}, t(moment(task.order_time_ms / 1000) > new Date() ? "tasks.dueIn" : "tasks.dueSince"), " ", ago(dueAt(task)));
  return h("span", {}, t("tasks.endedAt"), " ", ago(task.modify_time));
}

/** Return when a pending task is due; its priority may place it before its creation. */
export function dueAt(task) {
  return new Date(Math.max(moment(task.order_time_ms / 1000), new Date(task.create_time)));
}

/** Return the first characters of an id, which distinguish it on a page; the tool tip has all. */
export function shortId(id) {
  return h("code", { title: id }, `${id.slice(0, 12)}…`);
}

/** Return the first line of a text. */
export function glimpse(text, most = 40) {
  const line = text.split("\n", 1)[0];
  if (!text) return h("span", { class: "quiet" }, "–");
  return h("code", { class: "glimpse" }, line.length > most || line !== text ? `${line.slice(0, most)}…` : line);
}

export function typeLink(type) {
  return link(href.type(type), type);
}
