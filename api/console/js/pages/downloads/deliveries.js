// What was sent to the callback address of a download, how each attempt went, and sending it again.

import { get, post } from "../../api.js";
import { ago, askFirst, badge, busy, copyable, duration, fold, problemBox, say, twinTexts, when } from "../../components/index.js";
import { clear, h } from "../../dom.js";
import { has, t } from "../../i18n.js";
import { drawIfChanged, poll, latestOnly } from "../../polling.js";

const LOOK_AGAIN_MS = 2000;
const PATIENCE_MS = 60000;
const PAGE_ROWS = 20;
const MOST_ROWS = 200;
const TONES = { pending: "wait", succeeded: "ok", failed: "bad", disabled: "off" };

/**
 * The deliveries; `element.reload()` asks again, and by itself it does so while one is on its way.
 *
 * @param {Place} place
 * @param {string} path - of the download in the API
 * @param {function(): boolean} hasJustEnded - whether a first delivery may be about to be written down
 */
export function deliveries(place, path, hasJustEnded) {
  const [trouble, inside] = [h("div"), h("div", { class: "deliveries" })];
  const element = h("section", {}, h("h2", {}, t("downloads.deliveries.title")), trouble, inside);
  const open = new Set();
  const asked = new Map();
  let limit = PAGE_ROWS;
  let isAwaited = false;
  const draw = drawIfChanged(({ items, isMore }) => {
    const more = isMore ? h("button", { type: "button", on: { click: () => ((limit = MOST_ROWS), element.reload()) } }, t("downloads.deliveries.more")) : null;
    clear(inside, items.length ? items.map((item) => delivery(item, path, open, element)) : none(path), more);
  });
  const show = ({ items, next_cursor: next }) => {
    const shown = items.map((item) => awaited(item, asked));
    clear(trouble);
    draw({ items: shown, isMore: Boolean(next) && limit < MOST_ROWS });
    isAwaited = shown.some((item) => item.state === "pending") || (!items.length && hasJustEnded());
  };
  element.reload = latestOnly(
    () => get(`${path}/deliveries`, { limit }),
    show,
    (problem) => clear(trouble, problemBox(problem)),
  );
  /** Deliveries that were sent again, with the number of attempts that they had then. */
  element.sent = ({ delivery_id: id, attempts }) => {
    asked.set(id, { attempts, until: Date.now() + PATIENCE_MS });
    return element.reload();
  };
  element.reload();
  poll(place, () => (isAwaited ? element.reload() : undefined), LOOK_AGAIN_MS);
  return element;
}

function none(path) {
  return [h("p", { class: "quiet" }, t("downloads.deliveries.none")), fold(t("common.doTheSame"), twinTexts(`${path}/deliveries`))];
}

/** What was sent again is on its way until its next attempt shows, also before a worker has taken it up. */
function awaited(item, asked) {
  const request = asked.get(item.delivery_id);
  if (!request || item.attempts > request.attempts || Date.now() > request.until) return item;
  return { ...item, state: "pending", next_attempt_at: null };
}

function delivery(item, path, open, list) {
  const button = h("button", { type: "button", on: { click: () => redeliver(item, path, button, list) } }, t("downloads.deliveries.redeliver"));
  const next = item.state === "pending" && item.next_attempt_at ? [" · ", t("downloads.deliveries.next"), " ", ago(item.next_attempt_at)] : null;
  const shown = fold(t("downloads.deliveries.attempts", { n: item.attempts }), attempts(item), h("p", { class: "quiet" }, "webhook-id ", copyable(item.delivery_id)));
  shown.open = open.has(item.delivery_id);
  shown.addEventListener("toggle", () => (shown.open ? open.add(item.delivery_id) : open.delete(item.delivery_id)));
  return h(
    "article",
    { class: "card delivery" },
    h(
      "div",
      { class: "delivery-head" },
      badge(t(`downloads.deliveries.states.${item.state}`), TONES[item.state]),
      h("b", {}, has(`downloads.deliveries.event.${item.type.replace(".", "_")}`) ? t(`downloads.deliveries.event.${item.type.replace(".", "_")}`) : item.type),
      h("span", { class: "quiet" }, t("downloads.deliveries.to"), " ", h("bdi", {}, item.receiver), " · ", ago(item.created_at), next),
      button,
    ),
    item.state === "disabled" ? h("p", {}, t("downloads.deliveries.disabledText")) : null,
    shown,
  );
}

function attempts(item) {
  if (!item.last_attempts.length) return h("p", { class: "quiet" }, t("downloads.deliveries.noAttempt"));
  const head = (name) => h("th", { scope: "col" }, t(`downloads.deliveries.${name}`));
  const rows = item.last_attempts.map((attempt) =>
    h(
      "tr",
      {},
      h("td", { data: { label: t("downloads.deliveries.at") } }, when(attempt.started_at)),
      h("td", { data: { label: t("downloads.deliveries.took") } }, duration(attempt.duration_seconds)),
      h("td", { data: { label: t("downloads.deliveries.status") } }, attempt.status ?? "–"),
      h("td", { data: { label: t("downloads.deliveries.error") } }, attempt.error ?? "–"),
    ),
  );
  return h("div", { class: "scroller" }, h("table", { class: "list" }, h("caption", { class: "unseen" }, t("downloads.deliveries.attempts", { n: item.attempts })), h("thead", {}, h("tr", {}, head("at"), head("took"), head("status"), head("error"))), h("tbody", {}, rows)));
}

async function redeliver(item, path, button, list) {
  const answer = await askFirst({ title: t("downloads.deliveries.askTitle"), text: t("downloads.deliveries.askText", { receiver: item.receiver }), action: t("downloads.deliveries.redeliver") });
  if (!answer) return;
  try {
    await busy(post(`${path}/deliveries/${item.delivery_id}/redeliver`), button);
    say(t("downloads.deliveries.sent"));
    await list.sent(item);
  } catch (problem) {
    if (problem.name !== "Problem") console.error(problem);
    button.closest(".delivery").append(problemBox(problem));
  }
}
