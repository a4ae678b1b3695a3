// A job: its state, why targets did not get the file, its targets page by page; cancel it, and send again.

import { address as apiAddress, get, post } from "../../api.js";
import { ago, askFirst, busy, copyable, dataList, facts, number, problemBox, progress, say, twins, when } from "../../components/index.js";
import { clear, h, markCode } from "../../dom.js";
import { t } from "../../i18n.js";
import { poll } from "../../polling.js";
import { go } from "../../navigation.js";
import { session, workflowLink } from "../../session.js";
import { REASONS, STATES, address, ended, href, isFinal, meaning, stateBadge, statesBar, total } from "./states.js";
import { describeCause, targetColumns } from "./targets.js";

const EVERY_MS = 2000;
const PAGE = 50;

/** @param {Place} place */
export async function jobPage(place) {
  const path = address.job(place.params.id);
  const head = h("div", { class: "job-head" });
  let job = await get(path, { limit: 1 });
  const list = targetList(place, path, show);
  const cancel = h("button", { class: "danger", on: { click: () => confirmCancel() } }, t("transfers.cancelJob"));
  const retry = h("button", { on: { click: () => sendAgain() } }, t("transfers.retryJob"));

  function show(latest) {
    job = latest;
    place.setTitle(job.file_path);
    const project = session.project;
    const action = !isFinal(job.status) ? cancel : countMissed(job) ? retry : null;
    place.actions(action && !project ? h("span", { class: "quiet" }, t("transfers.chooseProject")) : action);
    clear(head, renderSummary(job), renderFailures(job, choose));
  }

  function choose({ status, reason, code }) {
    place.change({ status, reason, code: code === null ? null : String(code), cursor: null });
    place.refresh();
  }

  async function confirmCancel() {
    const left = total(job.counts) - ended(job.counts);
    const [n, kept] = [left, ended(job.counts)];
    const question = { title: t("transfers.cancelTitle", { n }), text: t("transfers.cancelText", { n, kept }), action: t("transfers.cancelAction", { n }), danger: true };
    if (!(await askFirst(question))) return;
    try {
      await busy(post(`${path}/cancel`), cancel);
      say(t("transfers.cancelled"));
      list.reload();
    } catch (problem) {
      head.prepend(problemBox(problem));
    }
  }

  async function sendAgain() {
    const n = countMissed(job);
    if (!(await askFirst({ title: t("transfers.retryTitle", { n }), text: t("transfers.retryText"), action: t("transfers.retryAction", { n }) }))) return;
    try {
      const again = await busy(post(`${path}/retry`, {}), retry);
      say(t("transfers.retried", { n: again.targets }));
      go(href.job(again.job_id));
    } catch (problem) {
      head.prepend(problemBox(problem));
    }
  }

  show(job);
  poll(place, () => !isFinal(job.status) && list.reload(), EVERY_MS);
  return h("div", { class: "transfers" }, head, h("h2", {}, t("transfers.targets")), list);
}

function renderSummary(job) {
  const [all, done] = [total(job.counts), ended(job.counts)];
  return h(
    "section",
    { class: "card job-card" },
    h("p", { class: "job-says" }, stateBadge(job.status, job.partial), " ", describe(job, all, done)),
    isFinal(job.status) ? null : h("p", { class: "quiet" }, nextWords(job)),
    statesBar(job.counts),
    isFinal(job.status) || new Date(job.window_closes_at) > new Date() ? null : progress(all ? done / all : null, `${number(all ? (100 * done) / all : 0)} %`),
    facts([
      [t("transfers.business"), `${job.biz_id} · ${job.app_id}`],
      [t("transfers.closesAt"), renderTime(job.window_closes_at)],
      job.finished_at ? [t("transfers.finishedAt"), renderTime(job.finished_at)] : [t("transfers.deadlineAt"), renderTime(job.deadline_at)],
      job.retry_of ? [t("transfers.retryOf"), jobLinks([job.retry_of])] : null,
      job.retries.length ? [t("transfers.retries"), jobLinks(job.retries)] : null,
      [t("transfers.workflow"), session.uiUrl ? workflowLink(job.job_id) : null],
      [t("transfers.jobId"), copyable(job.job_id)],
    ].filter((fact) => fact !== null && fact[1] !== null)),
  );
}

function describe(job, all, done) {
  if (!isFinal(job.status)) {
    return new Date(job.window_closes_at) > new Date() ? t("transfers.collecting") : t("transfers.running", { done, n: all });
  }
  const n = countMissed(job);
  return n ? t("transfers.someMissed", { n }) : t("transfers.allArrived");
}

/** What happens next, and when. */
function nextWords(job) {
  const collecting = new Date(job.window_closes_at) > new Date();
  return [t(collecting ? "transfers.step.begins" : "transfers.step.deadline"), " ", ago(collecting ? job.window_closes_at : job.deadline_at)];
}

function countMissed(job) {
  return (job.counts.Failed ?? 0) + (job.counts.Timeout ?? 0);
}

function jobLinks(ids) {
  return h("span", {}, ids.flatMap((id, place) => [place ? ", " : "", h("a", { href: href.job(id), class: "path" }, id)]));
}

function renderTime(date) {
  return h("span", {}, when(date), " ", h("small", { class: "quiet" }, ago(date)));
}

function renderFailures(job, choose) {
  if (!job.failures_by_reason.length) return null;
  const rows = job.failures_by_reason.map((trouble) =>
    h(
      "li",
      {},
      h("b", {}, number(trouble.count)),
      h("div", {}, h("p", {}, markCode(meaning({ ...trouble, message: trouble.meaning }))), h("small", { class: "quiet" }, describeCause(trouble))),
      h("button", { type: "button", on: { click: () => choose(trouble) } }, t("transfers.showThese", { n: trouble.count })),
    ),
  );
  return h("section", { class: "card troubles" }, h("h2", {}, t("transfers.why")), h("ul", {}, rows));
}

function targetList(place, path, onJob) {
  const option = (group) => (value) => ({ value, label: t(`transfers.${group}.${value}`) });
  return dataList({
    place,
    caption: t("transfers.targets"),
    filters: [
      { name: "status", label: t("transfers.status"), kind: "select", options: STATES.map(option("state")) },
      { name: "reason", label: t("transfers.reasonTitle"), kind: "select", options: REASONS.map(option("reason")) },
      { name: "code", label: t("transfers.code"), kind: "text" },
      { name: "host", label: t("transfers.host"), kind: "text" },
    ],
    columns: targetColumns(),
    request: (filters) => apiAddress(path, toQuery(filters)),
    load: async (filters, cursor) => {
      const job = await get(path, { ...toQuery(filters), cursor, limit: PAGE });
      return { items: job.targets, next: job.next_cursor, job };
    },
    onLoad: ({ job }) => onJob(job),
    key: (target) => [target.target_agent_id, target.target_container_id, target.target_user, target.target_file_dir, target.signature].join(" "),
    empty: { text: t("transfers.noTargets"), ...twins(`${path}?status=Failed`) },
  });
}

function toQuery({ host, ...rest }) {
  return { ...rest, target_agent_id: host };
}
