// The cells of a target in a list: its host, its state, why it failed, and where the file is.

import { badge, fold, number, progress } from "../../components/index.js";
import { h } from "../../dom.js";
import { t } from "../../i18n.js";
import { link } from "../../navigation.js";
import { href, meaning, meaningOfCode, stateBadge } from "./states.js";

/** The columns of a list of targets. */
export function targetColumns() {
  return [
    { title: t("transfers.target"), cell: renderTarget },
    { title: t("transfers.status"), cell: renderState },
    { title: t("transfers.reasonTitle"), cell: renderReason },
    { title: t("transfers.place"), cell: renderLocation },
  ];
}

/** State, reason and code in words. */
export function describeCause({ status, reason, code }) {
  const words = [t(`transfers.state.${status}`), reason && t(`transfers.reason.${reason}`), code !== null && t("transfers.codeN", { code: String(code) })];
  return words.filter(Boolean).join(" · ");
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
  if (!target.reason) return target.code && target.code !== 115 ? meaningOfCode(target.code) : "";
  const detail = target.reason === "gse_code" ? fold(t("transfers.said"), h("p", { class: "said" }, target.message)) : null;
  return h("div", { class: "why" }, h("p", {}, meaning(target)), h("small", { class: "quiet" }, describeCause({ ...target, status: target.status })), detail);
}

function renderLocation(target) {
  return h("span", { class: "file-cell" }, h("span", { class: "path" }, target.target_file_dir), h("small", { class: "quiet" }, `${target.target_user} · ${target.file_name}`));
}
