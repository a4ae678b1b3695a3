// The quarantine: messages that could not be read, with the reason; mend them, or discard them once published again.

import { address, get } from "../../api.js";
import { ago, bytes, copyable, dataList, facts, fold, say, twins, when } from "../../components/index.js";
import { h, markCode } from "../../dom.js";
import { t } from "../../i18n.js";
import { go } from "../../navigation.js";
import { API, BASE_PATH, TOPICS, attempt, messageLink, postExact, signFirst, topicWord } from "./shared.js";

/** @param {Place} place */
export async function quarantinePage(place) {
  const list = dataList({
    place,
    caption: t("addresses.quarantine"),
    filters: [{ name: "topic", label: t("addresses.topicTitle"), kind: "select", options: TOPICS.map((value) => ({ value, label: topicWord(value) })) }],
    columns: [
      { title: t("addresses.msgNo"), cell: (each) => each.msg_no },
      { title: t("addresses.topicTitle"), cell: (each) => topicName(each.topic) },
      { title: t("addresses.whyUnreadable"), cell: (each) => h("span", {}, markCode(each.reason)) },
      { title: t("addresses.size"), cell: (each) => bytes(each.raw_bytes), numeric: true },
      { title: t("addresses.received"), cell: (each) => ago(each.created_at) },
    ],
    request: (filters) => address(`${API}/quarantine`, filters),
    load: async (filters, cursor) => {
      const page = await get(`${API}/quarantine`, { ...filters, cursor });
      return { items: page.items, next: page.next_cursor };
    },
    key: (each) => String(each.id),
    open: (each) => `${BASE_PATH}/quarantine/${each.id}`,
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
    h("p", {}, h("a", { href: `${BASE_PATH}/quarantine` }, t("addresses.backToQuarantine"))),
    h("section", { class: "card lead" }, h("p", {}, markCode(each.reason)), h("p", { class: "quiet" }, each.mended_as ? becameMessage(each) : t("addresses.publishAgain"))),
    h("h2", {}, t("common.details")),
    h(
      "section",
      { class: "card" },
      facts([
        [t("addresses.msgNo"), copyable(each.msg_no)],
        [t("addresses.topicTitle"), h("code", {}, each.topic)],
        [t("addresses.size"), bytes(each.raw_bytes)],
        [t("addresses.kept"), each.kept_bytes < each.raw_bytes && bytes(each.kept_bytes)],
        [t("addresses.mendedAt"), each.mended_at && when(each.mended_at)],
        [t("addresses.published"), each.published_at && when(each.published_at)],
        [t("addresses.received"), when(each.created_at)],
      ]),
    ),
    h("h2", {}, t("addresses.payload")),
    each.truncated && h("p", { class: "quiet" }, t("addresses.onlyBeginning")),
    each.text === null ? h("p", { class: "quiet" }, t("addresses.notText")) : h("pre", { class: "json", tabindex: "0" }, each.text),
    fold("Base64", h("pre", { class: "json wrap", tabindex: "0" }, each.raw)),
    !each.mended_as && mendForm(each),
  ];
}

function becameMessage(each) {
  return h("span", {}, t("addresses.mendedBy", { who: each.mended_by }), " ", messageLink(each.mended_as));
}

/** The form for a corrected text; it starts with the message, if that is text and shown whole. */
function mendForm(each) {
  const text = h("textarea", { name: "text", required: true, rows: 8, spellcheck: "false", ".value": each.truncated ? "" : (each.text ?? "") });
  return h(
    "form",
    { class: "card", on: { submit: (event) => mend(event, each, text.value) } },
    h("label", { class: "field" }, h("span", {}, t("addresses.mendLabel")), text, h("small", { class: "quiet" }, t("addresses.mendHint"))),
    h("button", { type: "submit", class: "primary" }, t("addresses.mend")),
  );
}

async function mend(event, each, text) {
  event.preventDefault();
  const signed = await signFirst({ title: t("addresses.mendTitle", { id: each.id }), text: t("addresses.mendText"), action: t("addresses.mendAction") });
  if (!signed) return;
  const message = await attempt(() => postExact(`quarantine/${each.id}/mend`, { ...signed, text }, {}));
  if (!message) return;
  say(t("addresses.mendDone", { id: message.id }));
  go(`${BASE_PATH}/messages/${message.id}`);
}

async function discard(items) {
  const n = items.length;
  const signed = await signFirst({ title: t("addresses.discardTitle", { n }), text: t("addresses.discardText"), action: t("addresses.discard"), danger: true });
  if (!signed) return false;
  const { discarded } = await postExact("quarantine/discard", signed, { ids: items.map((each) => each.id) });
  say(t("addresses.discardDone", { n: discarded }));
  return true;
}

function topicName(topic) {
  return TOPICS.includes(topic) ? topicWord(topic) : topic;
}
