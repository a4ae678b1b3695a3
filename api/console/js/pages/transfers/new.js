// A new transfer: a file and its targets, sent to the API in batches, each of them durable.

import { Problem, post } from "../../api.js";
import { askFirst, copyable, fold, form, problemBox, progress } from "../../components/index.js";
import { clear, h } from "../../dom.js";
import { t } from "../../i18n.js";
import { go, link } from "../../navigation.js";
import { session } from "../../session.js";
import { href } from "./states.js";

const BATCH = 2000;
const TASKS_SHOWN = 200;

/** @param {Place} place */
export async function newPage(place) {
  if (!session.project) return h("p", { class: "empty" }, t("transfers.chooseProject"));
  const outcome = h("div", { class: "outcome", "aria-live": "polite" });
  const word = (name) => t(`transfers.form.${name}`);
  const fields = [
    { name: "biz_id", label: word("biz"), kind: "number", required: true, attributes: { min: 0, step: 1 } },
    { name: "app_id", label: word("app"), kind: "number", required: true, attributes: { min: 0, step: 1 } },
    { name: "file_path", label: word("path"), hint: word("pathHint"), required: true },
    { name: "file_name", label: word("name"), hint: word("nameHint"), required: true },
    { name: "signature", label: word("signature"), hint: word("signatureHint"), required: true, attributes: { class: "mono" } },
    { name: "target_user", label: word("user"), required: true },
    { name: "target_file_dir", label: word("folder"), hint: word("folderHint"), required: true },
    { name: "targets", label: word("targets"), kind: "textarea", hint: word("targetsHint"), required: true, attributes: { rows: 8 } },
  ];
  const given = Object.fromEntries(place.query);
  const submit = (values) => send(values, outcome);
  return h("div", { class: "transfers new-transfer" }, h("div", { class: "card" }, form({ fields, submit, values: { target_user: "root", ...given }, action: word("send") })), outcome);
}

/** Returns the targets in a text, one a line, without repetitions. */
export function parseTargets(text) {
  const found = new Map();
  for (const line of text.split("\n")) {
    const [agent, container = ""] = line.trim().split(/[\s,]+/);
    if (agent) found.set(`${agent} ${container}`, { target_agent_id: agent, target_container_id: container });
  }
  return [...found.values()];
}

async function send({ targets: text, ...file }, outcome) {
  const targets = parseTargets(text);
  if (!targets.length) throw new Problem({ detail: t("transfers.form.noTargets"), errors: [{ path: "targets", message: t("transfers.form.noTargets") }] });
  const n = targets.length;
  if (!(await askFirst({ title: t("transfers.form.title", { n }), text: t("transfers.form.text"), action: t("transfers.form.send") }))) return;
  const tasks = [];
  try {
    for (let start = 0; start < n; start += BATCH) {
      clear(outcome, progress(start / n, t("transfers.form.sending", { done: start, n })));
      const answer = await post("/v1/transfers:batch", { ...file, targets: targets.slice(start, start + BATCH) });
      tasks.push(...answer.tasks.map((task) => ({ ...task, job_id: answer.job_id })));
    }
  } catch (problem) {
    clear(outcome, tasks.length ? [problemBox(problem), renderJoined(tasks, n)] : null);
    if (!tasks.length) throw problem;
    return;
  }
  const jobs = new Set(tasks.map((task) => task.job_id));
  if (jobs.size === 1 && n > 1) await go(href.job(tasks[0].job_id));
  else if (n === 1) await go(href.task(tasks[0].task_id));
  else clear(outcome, renderJoined(tasks, n));
}

/** Renders the jobs that the targets have joined, and the first task ids. */
function renderJoined(tasks, n) {
  const jobs = [...new Set(tasks.map((task) => task.job_id))];
  const says = tasks.length < n ? t("transfers.form.partly", { done: tasks.length, n }) : t("transfers.form.sent", { n });
  return h(
    "section",
    { class: "card" },
    h("p", {}, says, " ", jobs.length > 1 ? t("transfers.form.sentMany", { n: jobs.length }) : null),
    h("ul", {}, jobs.map((job) => h("li", {}, link(href.job(job), job)))),
    fold(t("transfers.form.tasks"), () => tasks.slice(0, TASKS_SHOWN).map((task) => copyable(task.task_id))),
  );
}
