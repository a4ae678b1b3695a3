// The quarantine: what could not be read, and why; it goes when it was published again.

import { get } from "../../api.js";
import { ago, bytes, copyable, dataList, facts, fold, say, twins, when } from "../../components/index.js";
import { h } from "../../dom.js";
import { t } from "../../i18n.js";
import { API, ROOM, TOPICS, postExact, signFirst, topicWord } from "./pieces.js";

/** @param {Place} place */
export async function quarantinePage(place) {
  const list = dataList({
    place,
    caption: t("addresses.quarantine"),
    filters: [{ name: "topic", label: t("addresses.topicTitle"), kind: "select", options: TOPICS.map((value) => ({ value, label: topicWord(value) })) }],
    columns: [
      { title: t("addresses.msgNo"), cell: (each) => each.msg_no },
      { title: t("addresses.topicTitle"), cell: (each) => known(each.topic) },
      { title: t("addresses.whyUnreadable"), cell: (each) => each.reason },
      { title: t("addresses.size"), cell: (each) => bytes(each.raw_bytes), numeric: true },
      { title: t("addresses.received"), cell: (each) => ago(each.created_at) },
    ],
    load: async (filters, cursor) => {
      const page = await get(`${API}/quarantine`, { ...filters, cursor });
      return { items: page.items, next: page.next_cursor };
    },
    key: (each) => String(each.id),
    open: (each) => `${ROOM}/quarantine/${each.id}`,
    empty: { text: t("addresses.quarantineEmpty"), ...twins(`${API}/quarantine`) },
    select: true,
    actions: [{ label: t("addresses.discardSelected"), danger: true, run: (items) => discard(items) }],
  });
  return [h("p", { class: "quiet" }, t("addresses.quarantineIntro")), list];
}

/** One message. @param {Place} place */
export async function unreadablePage(place) {
  const each = await get(`${API}/quarantine/${place.params.id}`);
  return [
    h("p", {}, h("a", { href: `${ROOM}/quarantine` }, t("addresses.backToQuarantine"))),
    h("section", { class: "card lead" }, h("p", {}, each.reason), h("p", { class: "quiet" }, t("addresses.publishAgain"))),
    h("h2", {}, t("common.details")),
    h(
      "section",
      { class: "card" },
      facts([
        [t("addresses.msgNo"), copyable(each.msg_no)],
        [t("addresses.topicTitle"), h("code", {}, each.topic)],
        [t("addresses.size"), bytes(each.raw_bytes)],
        [t("addresses.published"), each.published_at && when(each.published_at)],
        [t("addresses.received"), when(each.created_at)],
      ]),
    ),
    h("h2", {}, t("addresses.payload")),
    each.text === null ? h("p", { class: "quiet" }, t("addresses.notText")) : h("pre", { class: "json", tabindex: "0" }, each.text),
    fold("Base64", h("pre", { class: "json wrap", tabindex: "0" }, each.raw)),
  ];
}

async function discard(items) {
  const n = items.length;
  const signed = await signFirst({ title: t("addresses.discardTitle", { n }), text: t("addresses.discardText"), action: t("addresses.discard"), danger: true });
  if (!signed) return false;
  const { discarded } = await postExact("quarantine/discard", signed, { ids: items.map((each) => each.id) });
  say(t("addresses.discardDone", { n: discarded }));
  return true;
}

function known(topic) {
  return TOPICS.includes(topic) ? topicWord(topic) : topic;
}
