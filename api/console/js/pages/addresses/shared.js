// Parts that the pages of addresses share: topics, states, acknowledgements, wait reasons, and the operator's signature.

import { parse, send } from "../../api.js";
import { ago, badge, problemBox } from "../../components/index.js";
import { sections } from "../../components/sections.js";
import { h } from "../../dom.js";
import { t } from "../../i18n.js";
import { link } from "../../navigation.js";

export { signFirst } from "../../components/signing.js";

export const BASE_PATH = "/console/addresses";
export const API = "/v1/addresses";
export const MODULES = ["ed", "im", "wfm", "od"];
export const TOPICS = ["swapDeleteInfinityAddress", "createUpdateInfinityAddress", "deleteInfinityAddress"];
export const KINDS = ["missing", "behind", "overtaken", "refused", "failed", "paused"];
/** States of unfinished messages, in the order in which messages pass through them. */
export const OPEN_STATES = ["waiting", "processing", "failed", "given_up"];
/** States from which an operator may retry or skip many messages. */
export const FAILED_STATES = ["failed", "given_up"];

const TONES = { waiting: "wait", processing: "run", failed: "wait", given_up: "bad", done: "ok" };
const SECTIONS = [
  ["", "log"],
  ["/history", "history"],
  ["/logical-deletes", "deletes"],
  ["/comparisons", "comparisons"],
  ["/quarantine", "quarantine"],
];

/** Links to the pages of addresses. */
export function pageSections(current) {
  return sections(t("addresses.title"), SECTIONS.map(([path, word]) => [BASE_PATH + path, t(`addresses.${word}`)]), BASE_PATH + current);
}

/** A link to a message. */
export function messageLink(id) {
  return link(`${BASE_PATH}/messages/${id}`, String(id));
}

/** A link to the unfinished messages of a UPRN. */
export function uprnLink(uprn) {
  return link(`${BASE_PATH}?uprn=${uprn}`, String(uprn));
}

/** The topic in a word. */
export const topicWord = (topic) => t(`addresses.topic.${topic}`);

/** The UPRN of a message, or both of a swap. */
export function uprns(message, each = String) {
  const parts = [each(message.uprn_1)];
  if (message.uprn_2) parts.push(" ", h("span", { class: "word" }, "⇄ ", each(message.uprn_2)));
  return h("span", {}, parts);
}

/** The state of a message; a done message also shows how it ended. */
export function stateBadge(message) {
  if (message.state !== "done") return badge(t(`addresses.state.${message.state}`), TONES[message.state]);
  if (message.superseded_by) return badge(t("addresses.state.superseded"), "off");
  // A message without superseding message or reason is in all modules.
  if (message.reason) return badge(t("addresses.state.skipped"), "off");
  return badge(t("addresses.state.done"), "ok");
}

export const tone = (state) => TONES[state];

/** The four acknowledgements as small badges. */
export function ackBadges(message) {
  return h("span", { class: "acks" }, MODULES.map((module) => ackBadge(module, message)));
}

function ackBadge(module, message) {
  const ack = ackOf(module, message);
  const words = `${module.toUpperCase()}: ${t(`addresses.ack.${ack}`)}`;
  return h("span", { class: ["ack", ack], title: words }, h("span", { "aria-hidden": "true" }, module.toUpperCase()), h("span", { class: "unseen" }, words));
}

/** A module's acknowledgement of a message: "yes", "no", "paused", "unsure" or "not_asked". */
export function ackOf(module, message) {
  const { ack } = message.acks[module];
  if (ack === "Y") return "yes";
  if (message.waits?.paused?.some((pause) => pause.module === module)) return "paused";
  if (message.waits?.unsure?.includes(module)) return "unsure";
  return ack === "N" ? "no" : "not_asked";
}

/** Why a message is not done, or how it ended; null if its state says it all. */
export function why(message) {
  if (message.superseded_by) return rich("addresses.why.superseded", { id: messageLink(message.superseded_by) });
  if (message.reason) return document.createTextNode(message.reason);
  const waits = message.waits;
  if (message.state === "done" || !waits) return null;
  const modules = waits.modules?.length ? waits.modules : [waits.module ?? "?"];
  const module = modules.join(", ").toUpperCase();
  const words = {
    missing: () => rich("addresses.why.missing", { uprn: uprnLink(waits.uprn ?? waits.missing[0]), module }),
    behind: () => rich("addresses.why.behind", { id: messageLink(waits.behind) }),
    refused: () => rich("addresses.why.refused", { module }),
    failed: () => rich("addresses.why.failed", { module }),
    paused: () => h("span", {}, waits.paused.map(pauseText)),
  };
  return words[waits.kind]?.() ?? null;
}

/** By whom a module is paused, why, and for how long. */
export function pauseText({ module, who, reason, paused_at: since }) {
  return h("span", {}, t("addresses.why.paused", { module: module.toUpperCase(), who, reason }), " ", since ? ago(since) : null, " ");
}

/** A sentence that names the modules that may have applied a message; null if there are none. */
export function unsureSentence(message) {
  const paused = (message.waits?.paused ?? []).map((pause) => pause.module);
  const unsure = (message.waits?.unsure ?? []).filter((module) => !paused.includes(module));
  if (!unsure.length || message.state === "done") return null;
  return t("addresses.why.unsure", { modules: unsure.map((module) => module.toUpperCase()).join(", ") });
}

/** A text with elements in its placeholders. */
export function rich(key, values) {
  const parts = t(key).split(/\{(\w+)\}/);
  return h("span", {}, parts.map((part, index) => (index % 2 ? values[part] : part)));
}

/** Run the action of a button, and show its problem at the top of the page. */
export async function attempt(action) {
  document.querySelector(".addresses > .problem")?.remove();
  try {
    return await action();
  } catch (problem) {
    if (problem.name !== "Problem") console.error(problem);
    document.querySelector(".addresses")?.prepend(problemBox(problem));
    return null;
  }
}

/**
 * Send integers of up to 19 digits, more than JavaScript's numbers keep.
 *
 * @param {string} path - below the API's path of addresses
 * @param {Object} body - the rest
 * @param {Object<string, string|number|Array>} exact - numbers, or lists of them, by name
 */
export async function postExact(path, body, exact) {
  const written = Object.entries(exact).map(([name, value]) => `${JSON.stringify(name)}:${Array.isArray(value) ? `[${value.map(BigInt)}]` : BigInt(value)}`);
  const rest = JSON.stringify(body).slice(1, -1);
  const answer = await send("POST", `${API}/${path}`, { text: `{${[rest, ...written].filter(Boolean)}}` });
  return parse(await answer.text());
}
