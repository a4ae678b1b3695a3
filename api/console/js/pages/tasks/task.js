// One task: its state, history, content and log; cancel it or put it back.

import { get } from "../../api.js";
import { ago, copyable, duration, facts, number, problemBox, when } from "../../components/index.js";
import { clear, h } from "../../dom.js";
import { t } from "../../i18n.js";
import { indented } from "../../indented.js";
import { drawIfChanged, poll, latestOnly } from "../../polling.js";
import { go } from "../../navigation.js";
import { workflowLink } from "../../session.js";
import { CANCELLED, FAILED, PENDING, RUNNING, SUCCESS, dueAt, href, isEnded, moment, nextStep, statusBadge, typeLink } from "./pieces.js";
import { cancelMany, putBackMany } from "./steering.js";

const EVERY_MS = 2000;

/** @param {Place} place */
export async function taskPage(place) {
  const trouble = h("div", { role: "alert" });
  const body = h("div");
  const draw = drawIfChanged(({ task_data: task }) => {
    place.actions(...buttons(task, look, trouble));
    clear(body, parts(task));
    return !task.archived;
  });
  const look = latestOnly(() => get("/v1/get_task", { task_id: place.params.id }), draw);
  if (await look()) poll(place, look, EVERY_MS);
  return h("div", { class: "tasks" }, trouble, body);
}

function buttons(task, look, trouble) {
  const button = (word, danger, order) => {
    const click = async () => {
      clear(trouble);
      try {
        await order();
      } catch (problem) {
        if (problem.name !== "Problem") console.error(problem);
        clear(trouble, problemBox(problem));
      }
    };
    return h("button", { type: "button", class: danger ? "danger" : null, on: { click } }, t(`tasks.${word}`));
  };
  const cancel = async () => (await cancelMany([task])) && look();
  const putBack = async () => {
    const [outcome] = (await putBackMany([task])) ?? [];
    if (!outcome) return;
    // An ended task does not change; the page goes on to the new one.
    await (outcome.task_id && outcome.task_id !== task.task_id ? go(href.task(outcome.task_id)) : look());
  };
  return [
    task.status === PENDING ? null : button(isEnded(task) ? "createAgain" : "putBack", false, putBack),
    isEnded(task) ? null : button("cancel", true, cancel),
  ].filter(Boolean);
}

function parts(task) {
  return [
    h("section", { class: "card lead" }, h("p", {}, statusBadge(task), " ", typeLink(task.task_type), task.stage ? [" · ", t("tasks.inStage", { stage: task.stage })] : null), h("p", {}, nextStep(task))),
    h("h2", {}, t("tasks.history")),
    h("ol", { class: "card history" }, history(task)),
    h("h2", {}, t("tasks.content")),
    text(task.task_content, "noContent"),
    h("h2", {}, t("tasks.log")),
    text(task.schedule_log, "noLog"),
    h("h2", {}, t("common.details")),
    h("section", { class: "card" }, facts(pairs(task))),
  ];
}

const TRIED = { failed: "bad", timed_out: "bad", next_stage: "ok", put_back: "wait" };

/** Return the item of an attempt that did not end the task: its outcome and duration. */
function attempt({ outcome, held_time: held, end_time: end }) {
  const lasted = t("tasks.attempt.heldFor", { time: duration((new Date(end) - new Date(held)) / 1000) });
  return h("li", { class: `tone-${TRIED[outcome]}` }, h("b", {}, t(`tasks.attempt.${outcome}`)), " ", ago(end), h("small", { class: "quiet" }, when(held), " · ", lasted));
}

const ENDS = { [SUCCESS]: ["ok", "success"], [FAILED]: ["bad", "failed"], [CANCELLED]: ["off", "cancelled"] };

/** Return whether a pending task is due, waits for its retry, or for its start time. */
function waiting(task) {
  if (moment(task.order_time_ms / 1000) <= new Date()) return "due";
  return task.crt_retry_num ? "waits" : "starts";
}

/** Return the history in order: creation, attempts that did not end the task, and its state. */
function history(task) {
  const step = (tone, word, at, values = {}) => h("li", { class: `tone-${tone}` }, h("b", {}, t(`tasks.step.${word}`, values)), " ", at ? ago(at) : null, at ? h("small", { class: "quiet" }, when(at)) : null);
  // For a task that is older than the record of attempts, only the number of failures is known.
  const failures = task.attempts.length || task.attempts_left_out ? 0 : task.crt_retry_num;
  return [
    step("off", task.user_id ? "createdBy" : "created", task.create_time, { user: task.user_id }),
    failures ? step("bad", "failures", task.status === PENDING ? task.modify_time : null, { n: failures }) : null,
    task.attempts_left_out ? step("off", "leftOut", null, { n: task.attempts_left_out }) : null,
    ...task.attempts.map(attempt),
    task.status === PENDING ? step("wait", waiting(task), dueAt(task)) : null,
    task.status === RUNNING ? step("run", "held", task.modify_time) : null,
    task.status === RUNNING ? step("wait", "lease", moment(task.lease_end)) : null,
    isEnded(task) ? step(...ENDS[task.status], task.modify_time) : null,
    task.archived ? step("off", "archived", null) : null,
  ];
}

function text(value, none) {
  return value ? h("pre", { class: "json", tabindex: "0" }, indented(value)) : h("p", { class: "quiet" }, t(`tasks.${none}`));
}

function pairs(task) {
  const pos = task.task_id.slice(task.task_id.lastIndexOf("_") + 1);
  return [
    [t("tasks.id"), copyable(task.task_id)],
    [t("tasks.lane"), task.archived ? `${pos} (${t("tasks.archived")})` : workflowLink(task.workflow_id, pos)],
    [t("tasks.user"), task.user_id || null],
    [t("tasks.stage"), task.stage || null],
    [t("tasks.priority"), task.task_priority ? t("tasks.seconds", { n: task.task_priority }) : null],
    [t("tasks.failures"), t("tasks.ofRetries", { n: String(task.crt_retry_num), most: String(task.max_retry_num) })],
    [t("tasks.created"), when(task.create_time)],
    [t("tasks.changed"), when(task.modify_time)],
    [t("tasks.place"), isEnded(task) ? null : when(moment(task.order_time_ms / 1000))],
    [t("tasks.leaseNumber"), task.lease ? number(task.lease) : null],
  ];
}
