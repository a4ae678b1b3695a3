// One download: how far it is while it runs, its file or why it failed, and what can be done about it.

import { del, get, post, watch } from "../../api.js";
import { ago, askFirst, busy, bytes, copyable, duration, facts, fold, lineChart, number, problemBox, say, twinTexts, when } from "../../components/index.js";
import { clear, h, markCode } from "../../dom.js";
import { t } from "../../i18n.js";
import { projectName } from "../../projects.js";
import { session, workflowLink } from "../../session.js";
import { attemptsFold } from "./attempts.js";
import { deliveries } from "./deliveries.js";
import { fileCard } from "./file.js";
import { openQuery } from "./scope.js";
import { bar, isFinal, phaseWords, stateBadge, typeWords } from "./status.js";

const PHASES = ["waiting", "probing", "fetching", "assembling", "rendering", "done"];
const POINTS_MAX = 240;
const JUST_MS = 30_000;

/** The page. @param {Place} place */
export async function detailPage(place, project) {
  const path = `/v1/downloads/${encodeURIComponent(place.params.id)}`;
  const download = await get(path);
  const page = new Page(place, project, path);
  page.show(download);
  page.follow();
  return page.element;
}

class Page {
  constructor(place, project, path) {
    Object.assign(this, { place, project, path, shown: null, points: [], stop: null });
    this.live = h("section", { class: "card live", "aria-label": t("downloads.progress") });
    this.announcement = h("p", { role: "status", class: "unseen" });
    this.outcome = h("div", { class: "outcome" });
    this.facts = h("section", { class: "card", "aria-label": t("common.details") });
    this.chart = null;
    this.deliveries = deliveries(place, path, () => this.hasJustEnded());
    this.element = h(
      "div",
      { class: "download-page" },
      this.announcement,
      this.live,
      this.outcome,
      this.facts,
      h("section", {}, h("h2", {}, t("downloads.attempts.title")), attemptsFold(path)),
      this.deliveries,
      h("section", {}, h("h2", {}, t("common.doTheSame")), fold(t("downloads.commands"), this.commands())),
    );
    place.onLeave(() => this.stop?.());
  }

  /** Listen until it is over. */
  follow() {
    if (isFinal(this.shown)) return;
    this.stop = watch(`${this.path}/events`, {}, {
      message: (download) => {
        this.show(download);
        if (isFinal(download)) this.end();
      },
    });
  }

  hasJustEnded() {
    const ended = this.shown?.finished_at;
    return Boolean(ended) && Date.now() - new Date(ended) < JUST_MS;
  }

  end() {
    this.stop?.();
    this.stop = null;
    this.deliveries.reload();
  }

  show(download) {
    const before = this.shown;
    this.shown = download;
    if (before?.state !== download.state || before?.times_processed !== download.times_processed) this.begin(download);
    this.move(download);
    if (before?.phase !== download.phase) this.announcement.textContent = `${t(`downloads.state.${download.state}`)}, ${phaseWords(download.phase)}`;
    clear(this.facts, this.list(download));
  }

  /** What changes with the state alone; buttons are left in peace while figures move. */
  begin(download) {
    this.place.setTitle(download.file_name);
    this.place.actions(...this.actions(download));
    this.points = [];
    this.chart = null;
    clear(this.outcome, this.ending(download));
  }

  move(download) {
    this.live.hidden = isFinal(download);
    if (isFinal(download)) return;
    const last = this.points.at(-1);
    if (!last || download.rows !== last[1]) this.points.push([Date.now(), download.rows]);
    if (this.points.length > POINTS_MAX) this.points.shift();
    clear(this.live, phases(download), bar(download), this.rates(download), download.trouble ? h("p", { class: "why", dir: "auto" }, markCode(t("downloads.again", { why: download.trouble.message, n: download.trouble.attempts })), " ", t("downloads.attempts.next"), " ", ago(download.trouble.next_attempt_at)) : null);
  }

  rates(download) {
    if (this.points.length < 3) return null;
    const rates = this.points.slice(1).map(([at, rows], index) => {
      const [before, less] = this.points[index];
      return [at, Math.max(0, ((rows - less) * 1000) / Math.max(1, at - before))];
    });
    const series = [{ label: t("downloads.rate"), tone: "run", points: rates }];
    if (this.chart) this.chart.update(series);
    else this.chart = lineChart({ series, label: t("downloads.rate") });
    return h("figure", { class: "rate" }, this.chart, h("figcaption", { class: "quiet" }, t("downloads.rateWords", { n: download.rows_per_second ?? 0 })));
  }

  ending(download) {
    if (download.state === "succeeded") return fileCard(this.place, this.path, download, openQuery(this.project));
    if (download.fault && isFinal(download)) return failure(download);
    if (download.state === "cancelled") return h("p", { class: "card" }, t("downloads.cancelledText"));
    if (download.state === "expired") return h("p", { class: "card" }, t("downloads.expiredText"));
    return null;
  }

  actions(download) {
    const button = (word, tone, act) => {
      const element = h("button", { type: "button", class: tone, on: { click: () => this.act(act, element) } }, t(`downloads.${word}.action`));
      return element;
    };
    return [
      stateBadge(download.state),
      download.state === "failed" && button("retry", "primary", () => this.retry()),
      !isFinal(download) && button("cancel", "danger", () => this.cancel()),
      download.state === "succeeded" && button("delete", "danger", () => this.delete()),
      session.uiUrl && workflowLink(`download:${this.project}:${download.task_id}`, t("downloads.engine")),
    ].filter(Boolean);
  }

  async act(act, button) {
    try {
      await busy(act(), button);
    } catch (problem) {
      if (problem.name !== "Problem") console.error(problem);
      clear(this.outcome, this.ending(this.shown), problemBox(problem));
    }
  }

  async cancel() {
    const { file_name: name, rows } = this.shown;
    const answer = await askFirst({ title: t("downloads.cancel.title"), text: t("downloads.cancel.text", { name, rows }), action: t("downloads.cancel.action"), danger: true });
    if (!answer) return;
    this.show(await post(`${this.path}/cancel`));
    if (isFinal(this.shown)) this.end();
    say(t("downloads.cancel.done"));
  }

  async delete() {
    const answer = await askFirst({ title: t("downloads.delete.title"), text: t("downloads.delete.text", { name: this.shown.file_name }), action: t("downloads.delete.action"), danger: true });
    if (!answer) return;
    this.show(await del(this.path));
    say(t("downloads.delete.done"));
  }

  async retry() {
    this.show(await post(`${this.path}/retry`));
    say(t("downloads.retry.done"));
    if (isFinal(this.shown)) this.end();
    else if (!this.stop) this.follow();
  }

  list(download) {
    const seconds = download.started_at && (new Date(download.finished_at ?? Date.now()) - new Date(download.started_at)) / 1000;
    return facts([
      [t("downloads.id"), copyable(download.task_id)],
      session.isAdmin ? [t("common.project"), projectName(download.project_id)] : null,
      [t("downloads.typeLabel"), typeWords(download.type)],
      [t("downloads.rows"), download.total === null ? number(download.rows) : `${number(download.rows)} / ${number(download.total)}`],
      [t("downloads.rate"), download.rows_per_second === null ? null : t("downloads.rateWords", { n: download.rows_per_second })],
      [t("downloads.fetchers"), download.fetchers],
      [t("downloads.size"), download.bytes === null ? null : bytes(download.bytes)],
      [t("downloads.created"), when(download.created_at)],
      [t("downloads.started"), download.started_at && when(download.started_at)],
      [t("downloads.ended"), download.finished_at && when(download.finished_at)],
      [t("downloads.took"), seconds ? duration(seconds) : null],
      [t("downloads.timesProcessed"), download.times_processed > 1 ? download.times_processed : null],
      [t("downloads.operator"), download.operator_id && h("bdi", {}, download.operator_id)],
      [t("downloads.sourceHost"), download.source_hosts.length ? h("span", {}, download.source_hosts.flatMap((host, index) => [index ? ", " : "", h("a", { href: `/console/downloads?source_host=${encodeURIComponent(host)}` }, host)])) : null],
      [t("downloads.expires"), download.expires_at && [when(download.expires_at), " (", ago(download.expires_at), ")"]],
    ].filter(Boolean));
  }

  commands() {
    const curl = (rest) => copyable(`curl ${rest} -H "Authorization: Bearer $HAULAGE_API_KEY"`);
    const base = `${location.origin}${this.path}`;
    const deeds = ["cancel", "retry"].map((deed) => twinTexts(`${this.path}/${deed}`, { method: "POST" }));
    return [twinTexts(this.path), curl(`-N ${base}/events`), curl(`-LOJ ${base}/file`), deeds];
  }
}

function phases(download) {
  const steps = PHASES.filter((phase) => download.type === "excel" || phase !== "rendering");
  const at = steps.indexOf(download.phase);
  const items = steps.map((phase, index) => h("li", { class: at > index && "passed", "aria-current": phase === download.phase ? "step" : null }, phaseWords(phase)));
  // Between two times that it is processed it pauses, and before a new one it cleans up: steps of no order.
  if (at < 0) items.push(h("li", { "aria-current": "step" }, phaseWords(download.phase)));
  return h("ol", { class: "phases" }, items);
}

function failure({ fault, rows }) {
  return h(
    "section",
    { class: "problem failure", "aria-label": t("downloads.failed") },
    h("p", { class: "problem-title", dir: "auto" }, markCode(fault.message)),
    fault.hint ? h("p", { dir: "auto" }, markCode(fault.hint)) : null,
    h("p", { class: "quiet" }, t(fault.retryable ? "downloads.retryHelps" : "downloads.retryNeeds"), rows ? ` ${t("downloads.rowsFetched", { n: rows })}` : "", " ", h("code", {}, fault.code)),
    h("p", {}, h("a", { href: `/console/downloads?cause=${encodeURIComponent(fault.code)}` }, t("downloads.sameCause"))),
  );
}
