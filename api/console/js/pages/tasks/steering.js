// Cancel tasks and put them back; each has an outcome of its own, and failures are shown.

import { parse, send } from "../../api.js";
import { askFirst, say } from "../../components/index.js";
import { t } from "../../i18n.js";
import { PENDING, RUNNING, isEnded } from "./pieces.js";

/** Cancel tasks. @returns {Promise<?Array>} the outcome of each; null when nothing was done */
export async function cancelMany(tasks) {
  const open = tasks.filter((task) => !isEnded(task));
  if (!open.length) return showMessage("tasks.nothingToCancel");
  const held = open.filter((task) => task.status === RUNNING).length;
  const text = [t("tasks.cancelText", { n: open.length }), held ? t("tasks.cancelHeld", { n: held }) : "", countRest(tasks, open, "endedAlready")];
  const sure = await askFirst({ title: t("tasks.cancelTitle", { n: open.length }), text: sentence(text), action: t("tasks.cancelAction", { n: open.length }), danger: true });
  if (!sure) return null;
  return showOutcomes("cancel", await outcomes("cancel_tasks", { task_ids: open.map((task) => task.task_id) }));
}

/** Put tasks back into the queue; ended ones are created again as new tasks. */
export async function putBackMany(tasks) {
  const back = tasks.filter((task) => task.status !== PENDING);
  if (!back.length) return showMessage("tasks.nothingToPutBack");
  const ended = back.filter(isEnded).length;
  const held = back.length - ended;
  const text = [held ? t("tasks.putBackHeld", { n: held }) : "", ended ? t("tasks.putBackEnded", { n: ended }) : "", countRest(tasks, back, "waitAlready")];
  const sure = await askFirst({ title: t("tasks.putBackTitle", { n: back.length }), text: sentence(text), action: t("tasks.putBack") });
  if (!sure) return null;
  // With the lease that the page shows: a task that another worker holds by now is not taken from it.
  const list = back.map((task) => (task.status === RUNNING ? { task_id: task.task_id, lease: task.lease } : { task_id: task.task_id }));
  return showOutcomes("putBack", await outcomes("put_back_tasks", { task_list: list }));
}

/** Return the outcome of each task. The code of the envelope is the first error, which does not concern the others. */
async function outcomes(route, body) {
  const answer = await send("POST", `/v1/${route}`, { text: JSON.stringify(body) });
  return parse(await answer.text()).results;
}

function showOutcomes(verb, results) {
  const failed = results.filter((result) => result.code !== 0);
  const first = failed[0]?.msg.replace(/^FAIL_REASON::/, "") ?? "";
  say(sentence([t(`tasks.${verb}Done`, { n: results.length - failed.length }), failed.length ? t("common.notDone", { n: failed.length, why: first }) : ""]));
  return results;
}

function showMessage(key) {
  say(t(key));
  return null;
}

function countRest(tasks, chosen, word) {
  const n = tasks.length - chosen.length;
  return n ? t(`tasks.${word}`, { n }) : "";
}

const sentence = (parts) => parts.filter(Boolean).join(" ");
