// All types: what is in each queue and since when, held and failed tasks.

import { address, get } from "../../api.js";
import { badge, dataList, duration, number, stackBar, twins } from "../../components/index.js";
import { h } from "../../dom.js";
import { t } from "../../i18n.js";
import { projectName } from "../../projects.js";
import { session } from "../../session.js";
import { finder } from "./finding.js";
import { href } from "./pieces.js";

const EVERY_MS = 2000;
const LATE_SECONDS = 60;

/** @param {Place} place */
export async function typesPage(place) {
  const everybody = session.isAdmin && !session.project;
  const list = dataList({
    place,
    caption: t("tasks.types"),
    filters: [{ name: "prefix", label: t("tasks.typePrefix"), kind: "text" }],
    columns: [
      { title: t("tasks.type"), cell: (type) => type.task_type },
      ...(everybody ? [{ title: t("common.project"), cell: (type) => projectName(type.project_id) }] : []),
      { title: t("tasks.queue"), cell: queue },
      { title: t("tasks.oldest"), cell: oldest, numeric: true },
      { title: t("tasks.heldNow"), cell: (type) => number(type.running), numeric: true },
      { title: t("tasks.status.failed"), cell: (type) => (type.failed ? badge(number(type.failed), "bad") : "0"), numeric: true },
      { title: t("tasks.status.success"), cell: (type) => number(type.success), numeric: true },
      { title: t("tasks.lanes"), cell: (type) => number(type.lanes), numeric: true },
    ],
    request: (filters) => address("/v1/get_task_figures", filters),
    load: async (filters, cursor) => {
      const page = await get("/v1/get_task_figures", { ...filters, cursor });
      return { items: page.type_list, next: page.next_cursor };
    },
    key: (type) => `${type.project_id}/${type.task_type}`,
    open: (type) => href.type(type.task_type, "", everybody ? type.project_id : null),
    empty: { text: t("tasks.typesEmpty"), ...twins("/v1/get_task_figures") },
    every: EVERY_MS,
  });
  return h("div", { class: "tasks" }, h("p", { class: "quiet" }, t("tasks.intro")), finder(), list);
}

function queue(type) {
  if (type.paused) return h("span", {}, badge(t("tasks.paused"), "wait"), " ", number(type.pending));
  if (!type.pending && !type.running) return h("span", { class: "quiet" }, t("tasks.queueEmpty"));
  return h("div", { class: "queue-cell" }, depthBar(type));
}

/** Return a bar of pending and held tasks. */
export function depthBar(type) {
  return stackBar([
    { label: t("tasks.status.pending"), n: type.pending, tone: "wait" },
    { label: t("tasks.status.running"), n: type.running, tone: "run" },
  ]);
}

/** Return how long the first task has been due; if that grows, the queue has too few workers. */
export function oldest(type) {
  if (!type.oldest_due_seconds) return "–";
  const text = duration(Math.round(type.oldest_due_seconds));
  return type.oldest_due_seconds > LATE_SECONDS && !type.paused ? badge(text, "bad") : text;
}
