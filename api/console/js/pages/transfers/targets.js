// The cells of a target in a list: its host, its state, why it failed, and where the file is.

import { ago, badge, fold, number, progress, when } from "../../components/index.js";
import { h, markCode } from "../../dom.js";
import { t } from "../../i18n.js";
import { link } from "../../navigation.js";
import { href, isFinal, meaning, meaningOfCode, stateBadge, tone } from "./states.js";

/** The columns of a list of targets. */
export function targetColumns() {
  return [
    { title: t("transfers.target"), cell: renderTarget },
    { title: t("transfers.status"), cell: renderState },
    { title: t("transfers.reasonTitle"), cell: renderReason },
    { title: t("transfers.history"), cell: (target) => h("small", {}, renderStep(listSteps(target).at(-1))) },
    { title: t("transfers.place"), cell: renderLocation },
  ];
}

/** State, reason and code in words. */
export function describeCause({ status, reason, code }) {
  const words = [t(`transfers.state.${status}`), reason && t(`transfers.reason.${reason}`), code !== null && t("transfers.codeN", { code: String(code) })];
  return words.filter(Boolean).join(" · ");
}

/** The history of a target in order: what was done, what GSE said when it failed, and until when it is tried. */
export function targetHistory(target) {
  return h("ol", { class: "card history" }, [...listSteps(target), ...nextSteps(target)].map((step) => h("li", { class: step.tone }, renderStep(step))));
}

function listSteps(target) {
  const step = (word, at, look = "tone-off") => at && { words: t(`transfers.step.${word}`), at, tone: look };
  const { failures: n, last_failure: why } = target;
  return [
    { words: t("transfers.step.accepted"), at: null, tone: "tone-off" },
    step("joined", target.joined_at),
    step("fetched", target.fetched_at),
    step("sent", target.sent_at, "tone-run"),
    step("uploaded", target.uploaded_at),
    n ? { words: t("transfers.step.failures", { n, why }), at: null, tone: "tone-bad" } : null,
    isFinal(target.status) ? { words: t(`transfers.state.${target.status}`), at: target.ended_at, tone: tone(target.status) } : null,
  ].filter(Boolean);
}

function nextSteps(target) {
  if (isFinal(target.status)) return [];
  const collecting = target.joined_at === null && new Date(target.window_closes_at) > new Date();
  return [
    target.cancelling ? { words: t("transfers.step.cancelling"), at: null, tone: "tone-wait" } : null,
    collecting ? { words: t("transfers.step.begins"), at: target.window_closes_at, tone: "tone-wait" } : null,
    target.failures ? { words: t("transfers.step.again"), at: null, tone: "tone-wait" } : null,
    target.next_attempt_at ? { words: t("transfers.step.asked"), at: target.next_attempt_at, tone: "tone-wait" } : null,
    target.deadline_at ? { words: t("transfers.step.deadline"), at: target.deadline_at, tone: "tone-wait" } : null,
  ].filter(Boolean);
}

function renderStep({ words, at }) {
  return [h("span", { dir: "auto" }, words), at ? [" ", ago(at), h("small", { class: "quiet" }, " ", when(at))] : null];
}

function renderTarget(target) {
  const container = target.target_container_id;
  return h("span", { class: "file-cell" }, h("span", { class: "path" }, link(href.host(target.target_agent_id), target.target_agent_id)), container && h("small", { class: "quiet path" }, t("transfers.container"), " ", container));
}

function renderState(target) {
  if (target.status !== "Running") return stateBadge(target.status);
  const speed = target.speed ? ` · ${number(target.speed)} KB/s` : "";
  return h("span", { class: "standing" }, badge(t("transfers.state.Running"), "run"), progress(target.progress / 100, `${number(target.progress)} %${speed}`));
}

function renderReason(target) {
  if (target.next_attempt_at) return h("p", { class: "said" }, markCode(target.message));
  if (!target.reason) return target.code && target.code !== 115 ? meaningOfCode(target.code) : "";
  const detail = target.reason === "gse_code" ? fold(t("transfers.said"), h("p", { class: "said" }, target.message)) : null;
  return h("div", { class: "why" }, h("p", {}, markCode(meaning(target))), h("small", { class: "quiet" }, describeCause({ ...target, status: target.status })), detail);
}

function renderLocation(target) {
  return h("span", { class: "file-cell" }, h("span", { class: "path" }, target.target_file_dir), h("small", { class: "quiet" }, `${target.target_user} · ${target.file_name}`));
}
