// Backfills of a platform: who asked for which time again, how far each is, and what it has failed by.

import { get } from "../../api.js";
import { badge, dataList, number, twins, when } from "../../components/index.js";
import { h, markCode } from "../../dom.js";
import { t } from "../../i18n.js";
import { workflowLink } from "../../session.js";
import { api, windowText } from "./names.js";

const EVERY_MS = 3000;
const TONES = { running: "run", succeeded: "ok", failed: "bad" };

/** The tab. */
export function backfills(place, platform) {
  const path = api(platform, "/backfills");
  return dataList({
    place,
    caption: t("orders.backfill.title"),
    columns: [
      { title: t("orders.backfill.askedAt"), cell: asked },
      { title: t("orders.window"), cell: (row) => windowText(row.window) },
      { title: t("orders.stateTitle"), cell: (row) => badge(t(`orders.backfill.state.${row.state}`), TONES[row.state]) },
      { title: t("orders.backfill.read"), cell: (row) => `${number(row.read)} / ${number(row.slices)}`, numeric: true },
      { title: t("orders.failedSlices"), cell: (row) => number(row.failed), numeric: true },
      { title: t("orders.whatHappened"), cell: happened },
      { title: t("orders.workflow"), cell: (row) => workflowLink(row.workflow_id) },
    ],
    load: async (_, cursor) => {
      const page = await get(path, { cursor });
      return { items: page.items, next: page.next_cursor };
    },
    key: (row) => row.backfill_id,
    empty: { text: t("orders.backfill.none"), ...twins(path) },
    every: EVERY_MS,
  });
}

/** What a platform's badges say of the backfill that was asked for last; nothing where it went well. */
export function backfillBadge(backfill) {
  if (!backfill || backfill.state === "succeeded") return null;
  return badge(t(`orders.backfill.badge.${backfill.state}`, { read: backfill.read, slices: backfill.slices }), TONES[backfill.state]);
}

function asked(row) {
  return h("span", { class: "two-lines" }, when(row.requested_at), h("small", { class: "quiet" }, row.requested_by));
}

function happened(row) {
  if (!row.fault) return "";
  return h("span", { class: "two-lines fault-cell" }, h("span", {}, markCode(row.fault.message)), h("small", { class: "quiet" }, row.fault.code));
}
