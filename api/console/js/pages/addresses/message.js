// One message: its text, the answer of each module, why it waits or how it ended, and the actions of operators.

import { get } from "../../api.js";
import { ago, badge, copyable, facts, fold, when } from "../../components/index.js";
import { clear, h } from "../../dom.js";
import { t } from "../../i18n.js";
import { indented } from "../../indented.js";
import { drawIfChanged, poll, latestOnly } from "../../polling.js";
import { API, MODULES, ackOf, attempt, messageLink, stateBadge, topicWord, unsureSentence, uprnLink, uprns, why } from "./shared.js";
import { retryChain, retryOne, skipOne } from "./actions.js";

const EVERY_MS = 3000;
const ACK_TONES = { yes: "ok", no: "bad", unsure: "wait", not_asked: "off" };
const SUPERSEDED_SHOWN = 50;
const TRACE_SHOWN = 200;

/** @param {Place} place */
export async function messagePage(place) {
  const body = h("div");
  const draw = drawIfChanged((message) => {
    place.actions(...buttons(message, look.take));
    clear(body, parts(message));
    return message.state !== "done";
  });
  const look = latestOnly(() => get(`${API}/messages/${place.params.id}`), draw);
  if (await look()) poll(place, look, EVERY_MS);
  return body;
}

function buttons(message, draw) {
  const button = (word, danger, action) => {
    const click = async () => {
      const now = await attempt(() => action(message));
      if (now) draw(now);
    };
    return h("button", { type: "button", class: danger ? "danger" : "primary", on: { click } }, t(`addresses.${word}`));
  };
  if (message.state === "done") return [];
  const skip = button("skip", true, skipOne);
  if (message.state === "waiting") return [skip];
  return [button("retry", false, retryOne), message.uprn_2 ? button("retryChain", false, retryChain) : null, skip].filter(Boolean);
}

function parts(message) {
  return [
    h("section", { class: "card lead" }, h("p", {}, stateBadge(message), " ", h("b", {}, topicWord(message.topic)), " ", uprns(message, uprnLink)), summary(message)),
    h("h2", {}, t("addresses.acksTitle")),
    h("ul", { class: "modules" }, MODULES.map((module) => moduleCard(module, message))),
    h("h2", {}, t("common.details")),
    h("section", { class: "card" }, facts(pairs(message))),
    h("h2", {}, t("addresses.payload")),
    h("pre", { class: "json", tabindex: "0" }, indented(message.payload)),
    message.actions.length ? [h("h2", {}, t("addresses.actions")), audit(message.actions)] : null,
  ];
}

/** The state of the message, and what happens next. */
function summary(message) {
  const next = message.state === "failed" && message.next_attempt_at ? [t("addresses.triedAgain"), " ", ago(message.next_attempt_at)] : null;
  const reason = why(message);
  return [
    reason ? h("p", {}, reason) : null,
    h("p", { class: reason ? "quiet" : null }, next ?? t(`addresses.means.${means(message)}`)),
    unsureSentence(message) ? h("p", {}, unsureSentence(message)) : null,
  ];
}

function means(message) {
  if (message.state !== "done") return message.state;
  if (message.superseded_by) return "superseded";
  return message.reason ? "ended" : "done";
}

function moduleCard(module, message) {
  const { at, trace } = message.acks[module];
  const ack = ackOf(module, message);
  return h(
    "li",
    { class: ["card", "module", ack] },
    h("div", { class: "card-head" }, h("h3", {}, module.toUpperCase()), badge(t(`addresses.ack.${ack}`), ACK_TONES[ack])),
    h("p", { class: "quiet" }, at ? ago(at) : t("addresses.noWord")),
    trace ? traceOf(trace) : null,
  );
}

/** Show a sentence directly, and a long trace folded. */
function traceOf(trace) {
  if (trace.length <= TRACE_SHOWN) return h("p", { class: "said" }, trace);
  return fold(t("addresses.trace"), h("pre", { class: "json trace", tabindex: "0" }, trace));
}

function pairs(message) {
  return [
    [t("addresses.id"), copyable(String(message.message_id))],
    [t("addresses.topicTitle"), h("code", {}, message.topic)],
    [t("addresses.addressId"), message.address_id && String(message.address_id)],
    [t("addresses.msgNo"), copyable(message.msg_no)],
    [t("addresses.eventId"), message.event_id && copyable(message.event_id)],
    [t("addresses.published"), message.published_at && when(message.published_at)],
    [t("addresses.received"), when(message.created_at)],
    [t("addresses.changed"), message.changed_at && when(message.changed_at)],
    [t("addresses.archived"), message.archived_at && when(message.archived_at)],
    [t("addresses.cycles"), String(message.retry_times)],
    [t("addresses.nextAttempt"), message.next_attempt_at && when(message.next_attempt_at)],
    [t("addresses.cycle"), message.cycle_id && h("code", {}, message.cycle_id)],
    [t("addresses.supersededBy"), message.superseded_by && messageLink(message.superseded_by)],
    [t("addresses.supersedes"), message.supersedes.length ? supersededLinks(message.supersedes) : null],
  ];
}

/** Earlier messages that it superseded: the first ones directly, the others folded. */
function supersededLinks(ids) {
  const links = (some) => some.flatMap((id, index) => (index ? [", ", messageLink(id)] : [messageLink(id)]));
  const rest = ids.slice(SUPERSEDED_SHOWN);
  return h("span", {}, links(ids.slice(0, SUPERSEDED_SHOWN)), rest.length ? fold(t("addresses.more", { n: rest.length }), h("span", {}, links(rest))) : null);
}

function audit(actions) {
  const rows = actions.map((action) => h("li", {}, h("b", {}, t(`addresses.action.${action.action}`)), " ", t("addresses.byWhom", { who: action.who }), " ", ago(action.at), action.reason ? h("blockquote", {}, action.reason) : null));
  return h("ol", { class: "card audit" }, rows);
}
