// What all pages of tasks show alike: states, addresses of pages, and looking again.

import { ago, badge } from "../../components/index.js";
import { h } from "../../dom.js";
import { t } from "../../i18n.js";
import { link } from "../../navigation.js";

export const ROOM = "/console/tasks";
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
  task: (id) => `${ROOM}/tasks/${encodeURIComponent(id)}`,
  // The admin's page of a type says whose it is: projects name their types without regard to each other.
  type: (type, part = "", project = null) =>
    `${ROOM}/types/${encodeURIComponent(type)}${part}${project ? `?project=${encodeURIComponent(project)}` : ""}`,
  named: (name) => `${ROOM}/named/${encodeURIComponent(name)}`,
};

/** Whether a text has the form of an id that `create_task` answers. */
export const isId = (text) => ID.test(text);

export const statusWord = (status) => t(`tasks.status.${WORDS[status]}`);

export const isEnded = (task) => task.status >= SUCCESS;

/** How a task stands, in a word; one that failed before and waits says so. */
export function statusBadge(task) {
  const again = task.status === PENDING && task.crt_retry_num > 0;
  return badge(again ? t("tasks.status.again") : statusWord(task.status), TONES[task.status]);
}

/** A moment of the API, which is seconds since 1970. */
export const moment = (seconds) => new Date(seconds * 1000);

/** What happens next to a task, in few words. */
export function nextStep(task) {
  if (task.status === RUNNING) return h("span", {}, t("tasks.leaseEnds"), " ", ago(moment(task.lease_end)));
  if (task.status === PENDING) return h("span", {}, t(moment(task.order_time_ms / 1000) > new Date() ? "tasks.dueIn" : "tasks.dueSince"), " ", ago(dueAt(task)));
  return h("span", {}, t("tasks.endedAt"), " ", ago(task.modify_time));
}

/** Since when, or when, a pending task is due: priority puts its place in the queue before its creation. */
export function dueAt(task) {
  return new Date(Math.max(moment(task.order_time_ms / 1000), new Date(task.create_time)));
}

/** The first characters of an id, which tell it from others of a page; the whole as its tool tip. */
export function shortId(id) {
  return h("code", { title: id }, `${id.slice(0, 12)}…`);
}

/** The first line of a text. */
export function glimpse(text, most = 40) {
  const line = text.split("\n", 1)[0];
  if (!text) return h("span", { class: "quiet" }, "–");
  return h("code", { class: "glimpse" }, line.length > most || line !== text ? `${line.slice(0, most)}…` : line);
}

export function typeLink(type) {
  return link(href.type(type), type);
}
