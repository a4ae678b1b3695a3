// Search the log and its history; retry and skip failed messages, those selected or all that match.

import { address, get } from "../../api.js";
import { ago, dataList, twins } from "../../components/index.js";
import { h } from "../../dom.js";
import { t } from "../../i18n.js";
import { API, KINDS, MODULES, OPEN_STATES, BASE_PATH, TOPICS, ackBadges, stateBadge, topicWord, uprns, why } from "./shared.js";
import { statusPanel } from "./status.js";
import { retryMany, skipMany } from "./actions.js";

const EVERY_MS = 5000;

/** Unfinished messages. @param {Place} place */
export async function logPage(place) {
  const list = messages(place, {
    filters: [stateFilter(), ...filters()],
    empty: { text: t("addresses.logEmpty"), ...twins(`${API}/messages`) },
    select: true,
    actions: actions(() => (panel.look(), list.reload())),
    every: EVERY_MS,
  });
  const panel = statusPanel(place, () => list.reload());
  return [panel, h("h2", {}, t("addresses.open")), list];
}

/** Done messages. @param {Place} place */
export async function historyPage(place) {
  return [
    h("p", { class: "quiet" }, t("addresses.historyIntro")),
    messages(place, {
      filters: filters(),
      empty: { text: t("addresses.historyEmpty"), ...twins(`${API}/messages?history=true`) },
      always: { history: true },
    }),
  ];
}

function messages(place, { always = {}, ...given }) {
  return dataList({
    place,
    caption: t("addresses.messages"),
    columns: [
      { title: t("addresses.id"), cell: (message) => String(message.message_id) },
      { title: t("addresses.topicTitle"), cell: (message) => h("span", { class: "word" }, topicWord(message.topic)) },
      { title: "UPRN", cell: (message) => uprns(message) },
      { title: t("addresses.stateTitle"), cell: (message) => stateBadge(message) },
      { title: t("addresses.acks"), cell: ackBadges },
      { title: t("addresses.whyTitle"), cell: (message) => h("div", { class: "why" }, why(message)) },
      { title: t("addresses.received"), cell: (message) => ago(message.created_at) },
    ],
    request: (chosen) => address(`${API}/messages`, { ...toQuery(chosen), ...always }),
    load: async (chosen, cursor) => {
      const page = await get(`${API}/messages`, { ...toQuery(chosen), ...always, cursor });
      return { items: page.items, next: page.next_cursor };
    },
    key: (message) => String(message.message_id),
    open: (message) => `${BASE_PATH}/messages/${message.message_id}`,
    ...given,
  });
}

function actions(done) {
  const action = (word, danger, all, change) => ({ label: t(`addresses.${word}`), danger, all, run: async (items, chosen) => (await change(items, chosen)) && done() });
  return [
    action("retrySelected", false, false, (items) => retryMany(items)),
    action("skipSelected", true, false, (items) => skipMany(items)),
    action("retryAll", false, true, (_, chosen) => retryMany(null, toQuery(chosen))),
    action("skipAll", true, true, (_, chosen) => skipMany(null, toQuery(chosen))),
  ];
}

/** The query parameters of the API for these filters. */
export function toQuery({ created_after: from, created_before: to, ...rest }) {
  return { ...rest, ...(from && { created_after: new Date(from).toISOString() }), ...(to && { created_before: new Date(to).toISOString() }) };
}

function stateFilter() {
  return select("state", "stateTitle", [...OPEN_STATES, "done"], (state) => t(`addresses.state.${state}`));
}

function filters() {
  return [
    { name: "uprn", label: "UPRN", kind: "text" },
    select("topic", "topicTitle", TOPICS, topicWord),
    select("module", "failedIn", MODULES, (module) => module.toUpperCase()),
    select("kind", "whyTitle", KINDS, (kind) => t(`addresses.kind.${kind}`)),
    { name: "created_after", label: t("addresses.from"), kind: "moment" },
    { name: "created_before", label: t("addresses.until"), kind: "moment" },
  ];
}

function select(name, word, values, label) {
  return { name, label: t(`addresses.${word}`), kind: "select", options: values.map((value) => ({ value, label: label(value) })) };
}
