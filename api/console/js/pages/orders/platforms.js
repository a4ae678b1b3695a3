// The first page of orders: all platforms with their state; for a project's key the orders alone.

import { get } from "../../api.js";
import { ago, badge, dataList, number, twins } from "../../components/index.js";
import { h } from "../../dom.js";
import { t } from "../../i18n.js";
import { link } from "../../navigation.js";
import { projectName } from "../../projects.js";
import { session } from "../../session.js";
import { browser } from "./browser.js";
import { href } from "./names.js";

const EVERY_MS = 5000;

/** @param {Place} place */
export async function frontPage(place) {
  if (!session.isAdmin) return h("div", { class: "orders" }, h("p", { class: "quiet intro" }, t("orders.ownOnly")), browser(place));
  place.actions(
    link("/console/orders/browse", t("orders.browse")),
    link("/console/orders/defaults", t("orders.defaults")),
    h("a", { href: "/console/orders/new", class: "as-button primary" }, t("orders.setup.title")),
  );
  return h("div", { class: "orders" }, h("p", { class: "quiet intro" }, t("orders.intro")), list(place));
}

function list(place) {
  return dataList({
    place,
    caption: t("orders.platforms"),
    columns: [
      { title: t("orders.platform"), cell: name },
      ...(session.project ? [] : [{ title: t("common.project"), cell: (row) => projectName(row.project_id) }]),
      { title: t("orders.health"), cell: health },
      { title: t("orders.completeTo"), cell: (row) => (row.complete_to ? ago(row.complete_to) : t("orders.notBegun")) },
      { title: t("orders.claimedTo"), cell: (row) => ago(row.claimed_to) },
      { title: t("orders.openSlices"), cell: (row) => number(row.slices_open), numeric: true },
      { title: t("orders.failedSlices"), cell: failed, numeric: true },
    ],
    load: async (_, cursor) => {
      const page = await get("/v1/platforms", { project_id: session.project, cursor });
      return { items: page.items, next: page.next_cursor };
    },
    key: (row) => row.platform,
    open: (row) => href.platform(row.platform),
    empty: { text: t("orders.noPlatforms"), ...twins("/v1/platforms") },
    every: EVERY_MS,
  });
}

function name(row) {
  return h("span", { class: "two-lines" }, h("b", {}, row.platform), h("small", { class: "quiet" }, `${row.kind} · ${row.shop}`));
}

function health(row) {
  if (row.unserved_since) return badge(t("orders.unserved"), "bad");
  if (row.credentials_failed_since) return badge(t("orders.refused"), "bad");
  if (row.clock_failed_since) return badge(t("orders.clockUnread"), "bad");
  if (row.slices_stale) return badge(t("orders.staleN", { n: row.slices_stale }), "bad");
  if (row.sweeps_failed) return badge(t("orders.sweepsFailedN", { n: row.sweeps_failed }), "bad");
  if (row.slices_failed) return badge(t("orders.hasFailed"), "bad");
  if (row.is_paused) return badge(t(row.is_configured || row.starts_at ? "orders.paused" : "orders.pausedNotConfigured"), "wait");
  if (!row.starts_at) return badge(t("orders.notBegun"), "wait");
  return row.slices_open ? badge(t("orders.reading"), "run") : badge(t("orders.upToDate"), "ok");
}

function failed(row) {
  if (!row.slices_failed) return number(0);
  return link(href.platform(row.platform, "tab=slices&state=failed"), number(row.slices_failed));
}
