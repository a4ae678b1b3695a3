// Logical deletes: the modules that need them, checks and purges, and the outcome of a purge.

import { address, get, post } from "../../api.js";
import { ago, badge, busy, dataList, facts, fold, say, twins } from "../../components/index.js";
import { clear, h } from "../../dom.js";
import { t } from "../../i18n.js";
import { drawIfChanged, poll, latestOnly } from "../../polling.js";
import { go } from "../../navigation.js";
import { workflowLink } from "../../session.js";
import { API, BASE_PATH, attempt, messageLink, postExact, signFirst } from "./shared.js";

const EVERY_MS = 5000;
const LOOK_MS = 1000;
const PURGE_MAX = 500;
const PAGE = 200;
const OUTCOMES = ["purged", "in_use", "superseded", "failed"];
const TONES = { purged: "ok", in_use: "wait", superseded: "off", failed: "bad" };
const WHICH = { removable: { removable: true }, needed: { removable: false }, purged: { purged: true } };

/** @param {Place} place */
export async function deletesPage(place) {
  const list = dataList({
    place,
    caption: t("addresses.deletes"),
    filters: [
      { name: "which", label: t("addresses.which"), kind: "select", options: Object.keys(WHICH).map((value) => ({ value, label: t(`addresses.whichOf.${value}`) })) },
      { name: "uprn", label: "UPRN", kind: "text" },
      { name: "address_id", label: t("addresses.addressId"), kind: "text" },
    ],
    columns: [
      { title: t("addresses.addressId"), cell: (each) => String(each.address_id) },
      { title: "UPRN", cell: (each) => String(each.uprn) },
      { title: t("addresses.heldBy"), cell: heldBy },
      { title: t("addresses.deletedBy"), cell: (each) => messageLink(each.message_id) },
      { title: t("addresses.deletedAt"), cell: (each) => ago(each.created_at) },
      { title: t("addresses.checkedAt"), cell: (each) => ago(each.checked_at) },
    ],
    request: (filters) => address(`${API}/logical-deletes`, toQuery(filters)),
    load: async (filters, cursor) => {
      const page = await get(`${API}/logical-deletes`, { ...toQuery(filters), cursor });
      return { items: page.items, next: page.next_cursor };
    },
    key: (each) => String(each.address_id),
    empty: { text: t("addresses.deletesEmpty"), ...twins(`${API}/logical-deletes`) },
    select: true,
    actions: [
      { label: t("addresses.purgeSelected"), danger: true, run: (items) => purge(items) },
      { label: t("addresses.purgeRemovable"), danger: true, all: true, run: async () => purge(await everyRemovable()) },
    ],
    every: EVERY_MS,
  });
  place.actions(checkButton(list));
  return [h("p", { class: "quiet" }, t("addresses.deletesIntro")), list];
}

function toQuery({ which, ...filters }) {
  return { ...filters, ...WHICH[which] };
}

function heldBy(each) {
  if (each.purged_at) return h("span", {}, badge(t("addresses.gone"), "off"), " ", ago(each.purged_at));
  if (each.removable_at) return h("span", {}, badge(t("addresses.noModule"), "ok"), " ", ago(each.removable_at));
  return h("span", { class: "acks" }, each.needed_by.map((module) => badge(module.toUpperCase(), "wait")));
}

function checkButton(list) {
  const click = async (event) => {
    const started = await attempt(() => busy(post(`${API}/logical-deletes:check`), event.target));
    if (!started) return;
    say(t("addresses.checkDone"));
    await list.reload();
  };
  return h("button", { type: "button", on: { click } }, t("addresses.check"));
}

/** The first addresses that no module needs, as many as a purge accepts. */
async function everyRemovable() {
  const found = [];
  let cursor = null;
  do {
    const page = await get(`${API}/logical-deletes`, { removable: true, limit: PAGE, cursor });
    found.push(...page.items);
    cursor = page.next_cursor;
  } while (cursor && found.length < PURGE_MAX);
  return found.slice(0, PURGE_MAX);
}

async function purge(items) {
  const remaining = items.filter((each) => !each.purged_at);
  if (!remaining.length) return say(t("addresses.nothingToPurge"));
  const needed = remaining.filter((each) => !each.removable_at).length;
  const text = [t("addresses.purgeText", { n: remaining.length }), needed ? t("addresses.purgeNeeded", { n: needed }) : ""].join(" ").trim();
  const signed = await signFirst({ title: t("addresses.purgeTitle", { n: remaining.length }), text, action: t("addresses.purgeAction"), danger: true, twice: true });
  if (!signed) return null;
  const started = await postExact("logical-deletes:purge", signed, { address_ids: remaining.map((each) => each.address_id) });
  return go(`${BASE_PATH}/logical-deletes/purges/${started.purge_id}`);
}

/** The outcome of a purge. @param {Place} place */
export async function purgePage(place) {
  const body = h("section", { class: "card", "aria-live": "polite" });
  const draw = drawIfChanged((now) => {
    clear(body, purgeCard(now));
    return now.state === "running";
  });
  const look = latestOnly(() => get(`${API}/logical-deletes/purges/${place.params.id}`), draw);
  if (await look()) poll(place, look, LOOK_MS);
  return [h("p", {}, h("a", { href: `${BASE_PATH}/logical-deletes` }, t("addresses.backToDeletes"))), body];
}

function purgeCard(purged) {
  const tones = { running: "run", succeeded: "ok", failed: "bad" };
  return [
    h("p", {}, badge(t(`addresses.workState.${purged.state}`), tones[purged.state]), " ", workflowLink(`addresses-purge:${purged.purge_id}`, t("addresses.inTemporal"))),
    purged.state === "running" ? h("p", {}, t("addresses.purgeRuns")) : null,
    purged.state === "failed" ? h("p", {}, t("addresses.purgeFailed")) : null,
    purged.state === "succeeded" ? facts(OUTCOMES.map((outcome) => [t(`addresses.outcome.${outcome}`), outcomeOf(outcome, purged[outcome])])) : null,
  ];
}

function outcomeOf(outcome, ids) {
  if (!ids.length) return h("span", { class: "quiet" }, "0");
  return h("div", {}, badge(String(ids.length), TONES[outcome]), fold(t("addresses.whichOnes"), h("code", {}, ids.join(", "))));
}
