// A task: the state of its target; cancel it.

import { get, post } from "../../api.js";
import { askFirst, busy, copyable, facts, number, problemBox, progress, say } from "../../components/index.js";
import { clear, h, markCode } from "../../dom.js";
import { t } from "../../i18n.js";
import { drawIfChanged, poll, latestOnly } from "../../polling.js";
import { link } from "../../navigation.js";
import { address, href, isFinal, meaning, meaningOfCode, stateBadge } from "./states.js";
import { targetHistory } from "./targets.js";

const EVERY_MS = 2000;

/** @param {Place} place */
export async function taskPage(place) {
  const path = address.task(place.params.id);
  const card = h("section", { class: "card job-card" });
  const [trouble, history] = [h("div"), h("section")];
  const cancel = h("button", { class: "danger", on: { click: () => confirmCancel() } }, t("transfers.cancelTask"));
  const draw = drawIfChanged((task) => {
    place.actions(isFinal(task.status) ? null : cancel);
    const says = task.reason ? meaning(task) : task.code === null ? "" : meaningOfCode(task.code);
    clear(
      card,
      h("p", { class: "job-says" }, stateBadge(task.status), " ", markCode(says)),
      task.status === "Running" ? progress(task.progress / 100, `${number(task.progress)} % · ${number(task.speed)} KB/s`) : null,
      task.message && task.message !== says ? h("p", { class: "quiet said" }, markCode(task.message)) : null,
      facts([
        [t("transfers.itsJob"), link(href.job(task.job_id), task.job_id)],
        [t("transfers.code"), task.code === null ? null : String(task.code)],
        [t("transfers.taskId"), copyable(task.task_id)],
      ]),
    );
    clear(history, h("h2", {}, t("transfers.history")), targetHistory(task));
    return !isFinal(task.status);
  });
  const look = latestOnly(() => get(path), draw);

  async function confirmCancel() {
    const question = { title: t("transfers.cancelTaskTitle"), text: t("transfers.cancelTaskText"), action: t("transfers.cancelAction", { n: 1 }), danger: true };
    if (!(await askFirst(question))) return;
    try {
      clear(trouble);
      await busy(post(`${path}/cancel`), cancel);
      say(t("transfers.cancelled"));
      await look();
    } catch (problem) {
      clear(trouble, problemBox(problem));
    }
  }

  if (await look()) poll(place, look, EVERY_MS);
  return h("div", { class: "transfers" }, trouble, card, history);
}
