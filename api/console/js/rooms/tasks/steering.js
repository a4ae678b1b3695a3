// Cancelling and putting back, one task or many: each has an outcome of its own, and those that failed are told.

import { parse, send } from "../../api.js";
import { askFirst, say } from "../../components/index.js";
import { t } from "../../i18n.js";
import { PENDING, RUNNING, isEnded } from "./pieces.js";

/** End tasks as failed. @returns {Promise<?Array>} what became of each; null when nothing was done */
export async function cancelMany(tasks) {
  const open = tasks.filter((task) => !isEnded(task));
  if (!open.length) return nothing("tasks.nothingToCancel");
  const held = open.filter((task) => task.status === RUNNING).length;
  const text = [t("tasks.cancelText", { n: open.length }), held ? t("tasks.cancelHeld", { n: held }) : "", rest(tasks, open, "endedAlready")];
  const sure = await askFirst({ title: t("tasks.cancelTitle", { n: open.length }), text: sentence(text), action: t("tasks.cancelAction", { n: open.length }), danger: true });
  if (!sure) return null;
  return told("cancel", await outcomes("cancel_tasks", { task_ids: open.map((task) => task.task_id) }));
}

/** Have tasks wait for a worker again: held ones at once, ended ones as new tasks. */
export async function putBackMany(tasks) {
  const back = tasks.filter((task) => task.status !== PENDING);
  if (!back.length) return nothing("tasks.nothingToPutBack");
  const ended = back.filter(isEnded).length;
  const held = back.length - ended;
  const text = [held ? t("tasks.putBackHeld", { n: held }) : "", ended ? t("tasks.putBackEnded", { n: ended }) : "", rest(tasks, back, "waitAlready")];
  const sure = await askFirst({ title: t("tasks.putBackTitle", { n: back.length }), text: sentence(text), action: t("tasks.putBack") });
  if (!sure) return null;
  // The lease says whose hold was seen: if another worker has the task by now, it is left to them.
  const list = back.map((task) => (task.status === RUNNING ? { task_id: task.task_id, lease: task.lease } : { task_id: task.task_id }));
  return told("putBack", await outcomes("put_back_tasks", { task_list: list }));
}

/** What became of each. The envelope's own code is that of the first that failed, which is no problem of the rest. */
async function outcomes(route, body) {
  const answer = await send("POST", `/v1/${route}`, { text: JSON.stringify(body) });
  return parse(await answer.text()).results;
}

function told(verb, results) {
  const failed = results.filter((result) => result.code !== 0);
  const first = failed[0]?.msg.replace(/^FAIL_REASON::/, "") ?? "";
  say(sentence([t(`tasks.${verb}Done`, { n: results.length - failed.length }), failed.length ? t("common.notDone", { n: failed.length, why: first }) : ""]));
  return results;
}

function nothing(key) {
  say(t(key));
  return null;
}

function rest(tasks, chosen, word) {
  const n = tasks.length - chosen.length;
  return n ? t(`tasks.${word}`, { n }) : "";
}

const sentence = (parts) => parts.filter(Boolean).join(" ");
