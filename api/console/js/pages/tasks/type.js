// One type: its queue, tasks, lanes and archive; pause and resume it, cancel tasks and put them back.

import { address, get, post } from "../../api.js";
import { ago, badge, dataList, duration, facts, fold, number, problemBox, say, signFirst, stackBar, twins } from "../../components/index.js";
import { sections } from "../../components/sections.js";
import { clear, h } from "../../dom.js";
import { t } from "../../i18n.js";
import { drawIfChanged, poll, latestOnly } from "../../polling.js";
import { go } from "../../navigation.js";
import { projectName } from "../../projects.js";
import { workflowLink } from "../../session.js";
import { CANCELLED, FAILED, PENDING, RUNNING, STATUSES, SUCCESS, glimpse, href, moment, nextStep, shortId, statusBadge, statusWord } from "./pieces.js";
import { cancelMany, putBackMany } from "./steering.js";
import { depthBar, oldest } from "./types.js";

const EVERY_MS = 2000;
const LIST_MS = 4000;
const SECTIONS = [
  ["", "queueTab"],
  ["/lanes", "lanes"],
  ["/archive", "archive"],
];

/** List live tasks, followed by those in the archive. @param {Place} place */
export async function queuePage(place) {
  const list = tasks(place, STATUSES, { every: LIST_MS, actions: actions() });
  return typePage(place, "", list);
}

/** List archived tasks. @param {Place} place */
export async function archivePage(place) {
  const list = tasks(place, [SUCCESS, FAILED, CANCELLED], { always: { archived: true }, actions: actions().slice(1) });
  return typePage(place, "/archive", h("p", { class: "quiet" }, t("tasks.archiveIntro")), list);
}

/** @param {Place} place */
export async function lanesPage(place) {
  const { type } = place.params;
  const list = dataList({
    place,
    caption: t("tasks.lanes"),
    columns: [
      { title: t("tasks.lane"), cell: (lane) => workflowLink(lane.workflow_id, String(lane.pos)) },
      { title: t("tasks.state"), cell: (lane) => badge(t(lane.full ? "tasks.laneFull" : "tasks.laneOpen"), lane.full ? "off" : "ok") },
      { title: t("tasks.queue"), cell: laneBar },
      { title: t("tasks.nextDue"), cell: (lane) => (lane.next_order_time ? ago(moment(lane.next_order_time)) : "–") },
      { title: t("tasks.nextLeaseEnd"), cell: (lane) => (lane.next_lease_end ? ago(moment(lane.next_lease_end)) : "–") },
      { title: t("tasks.givenOut"), cell: (lane) => number(lane.held), numeric: true },
      { title: t("tasks.retries"), cell: (lane) => number(lane.retries), numeric: true },
      { title: t("tasks.timeouts"), cell: (lane) => number(lane.timeouts), numeric: true },
    ],
    load: async (_, cursor) => {
      const page = await get("/v1/get_task_lanes", { task_type: type, cursor });
      return { items: page.lane_list, next: page.next_cursor };
    },
    key: (lane) => String(lane.pos),
    empty: { text: t("tasks.lanesEmpty"), ...twins(address("/v1/get_task_lanes", { task_type: type })) },
    every: EVERY_MS,
  });
  return typePage(place, "/lanes", h("p", { class: "quiet" }, t("tasks.lanesIntro")), list);
}

function laneBar(lane) {
  const parts = [
    { label: statusWord(PENDING), n: lane.pending, tone: "wait" },
    { label: statusWord(RUNNING), n: lane.running, tone: "run" },
    { label: statusWord(SUCCESS), n: lane.success, tone: "ok" },
    { label: statusWord(FAILED), n: lane.failed, tone: "bad" },
    { label: statusWord(CANCELLED), n: lane.cancelled, tone: "off" },
  ];
  return h("div", { class: "queue-cell" }, stackBar(parts));
}

function tasks(place, statuses, { always = {}, ...given }) {
  const { type } = place.params;
  return dataList({
    place,
    caption: t("tasks.tasks"),
    filters: [
      { name: "status", label: t("tasks.state"), kind: "select", options: statuses.map((value) => ({ value: String(value), label: statusWord(value) })) },
      { name: "stage", label: t("tasks.stage"), kind: "text" },
      { name: "user_id", label: t("tasks.user"), kind: "text" },
    ],
    columns: [
      { title: t("tasks.task"), cell: (task) => shortId(task.task_id) },
      { title: t("tasks.state"), cell: statusBadge },
      { title: t("tasks.next"), cell: nextStep },
      { title: t("tasks.stage"), cell: (task) => task.stage || "–" },
      { title: t("tasks.user"), cell: (task) => task.user_id || "–" },
      { title: t("tasks.failures"), cell: (task) => t("tasks.ofRetries", { n: String(task.crt_retry_num), most: String(task.max_retry_num) }), numeric: true },
      { title: t("tasks.content"), cell: (task) => glimpse(task.task_content) },
      { title: t("tasks.created"), cell: (task) => ago(task.create_time) },
    ],
    request: (filters) => address("/v1/browse_tasks", { ...filters, ...always, task_type: type }),
    load: async (filters, cursor) => {
      const page = await get("/v1/browse_tasks", { ...filters, ...always, task_type: type, cursor });
      return { items: page.task_list, next: page.next_cursor };
    },
    key: (task) => task.task_id,
    open: (task) => href.task(task.task_id),
    empty: { text: t("tasks.tasksEmpty"), ...twins(`/v1/browse_tasks?task_type=${type}${always.archived ? "&archived=true" : ""}`) },
    select: true,
    ...given,
  });
}

function actions() {
  return [
    { label: t("tasks.cancelSelected"), danger: true, run: (items) => cancelMany(items) },
    { label: t("tasks.putBackSelected"), run: (items) => putBackMany(items) },
  ];
}

/** Build the page of a type around one of its parts. */
async function typePage(place, current, ...content) {
  const card = h("section", { class: "card standing", "aria-label": t("tasks.queue") });
  const draw = drawIfChanged((known) => {
    const open = card.querySelector("details")?.open;
    clear(card, queueFigures(known));
    if (open) card.querySelector("details").open = true;
    showActions(place, known, look);
  });
  const { type } = place.params;
  const look = latestOnly(() => read(type), draw);
  await look();
  poll(place, look, EVERY_MS);
  const project = place.query.get("project");
  const parts = SECTIONS.map(([path, word]) => [href.type(type, path, project), t(`tasks.${word}`)]);
  return h("div", { class: "tasks" }, card, sections(type, parts, href.type(type, current, project)), content);
}

/** Read the figures of a type. The route lists types by prefix: the first is the exact match, if there is one. */
async function read(type) {
  const { type_list: [first] } = await get("/v1/get_task_figures", { prefix: type, limit: 1 });
  if (first?.task_type === type) return first;
  // The API's own error says that there is no such type.
  await get("/v1/get_task_lanes", { task_type: type, limit: 1 });
  return first;
}

function queueFigures(type) {
  const big = (word, value) => h("div", {}, h("dt", {}, t(`tasks.${word}`)), h("dd", {}, value));
  return [
    h(
      "dl",
      { class: "figures" },
      big("status.pending", number(type.pending)),
      big("oldest", oldest(type)),
      big("heldNow", number(type.running)),
      big("status.failed", number(type.failed)),
      big("status.cancelled", number(type.cancelled)),
      big("status.success", number(type.success)),
    ),
    type.pending + type.running ? depthBar(type) : h("p", { class: "quiet" }, t("tasks.queueEmpty")),
    fold(t("tasks.howScheduled"), facts(rules(type))),
  ];
}

function rules(type) {
  const pause = type.max_retry_interval;
  const pauses = pause === 0 ? "retryAtOnce" : pause < 0 ? "retryEven" : "retryDoubling";
  return [
    [t("tasks.scheduleLimit"), number(type.schedule_limit)],
    [t("tasks.scheduleInterval"), duration(type.schedule_interval)],
    [t("tasks.lease"), duration(type.max_processing_time)],
    [t("tasks.maxRetries"), number(type.max_retry_num)],
    [t("tasks.retryPause"), t(`tasks.${pauses}`, { time: duration(Math.abs(pause)) })],
    [t("tasks.lanesSpan"), `${type.schedule_begin_pos} – ${type.schedule_end_pos}`],
    [t("tasks.inOpenLanes"), t("tasks.laneEvents", { held: type.held, retries: type.retries, timeouts: type.timeouts })],
    [t("common.project"), projectName(type.project_id)],
  ];
}

function showActions(place, type, look) {
  const verb = type.paused ? "resume" : "pause";
  const click = async () => {
    const question = { title: t(`tasks.${verb}Title`, { type: type.task_type }), text: t(`tasks.${verb}Text`, { n: type.pending }), action: t(`tasks.${verb}`) };
    const signed = await signFirst(question);
    if (!signed) return;
    try {
      await post(`/v1/${verb}_task_type`, { task_type: type.task_type, ...signed });
      say(t(`tasks.${verb}Done`, { type: type.task_type }));
      await look();
    } catch (problem) {
      document.querySelector(".tasks")?.prepend(problemBox(problem));
    }
  };
  const remove = async () => {
    const question = { title: t("tasks.removeTitle", { type: type.task_type }), text: t("tasks.removeText"), action: t("tasks.remove"), danger: true };
    const signed = await signFirst(question);
    if (!signed) return;
    try {
      await post("/v1/remove_task_type", { task_type: type.task_type, ...signed });
      say(t("tasks.removeDone", { type: type.task_type }));
      go("/console/tasks");
    } catch (problem) {
      document.querySelector(".tasks")?.prepend(problemBox(problem));
    }
  };
  const isEmpty = !type.pending && !type.running;
  place.actions(
    type.paused ? badge(t("tasks.paused"), "wait") : null,
    h("button", { type: "button", on: { click } }, t(`tasks.${verb}`)),
    isEmpty ? h("button", { type: "button", class: "danger", on: { click: remove } }, t("tasks.remove")) : null,
  );
}
