// The orders themselves: found by platform, shop, number and time, each as its platform wrote it.

import { address, parse, send } from "../../api.js";
import { ago, dataList, fold, twins, when } from "../../components/index.js";
import { h } from "../../dom.js";
import { t } from "../../i18n.js";
import { typedMoment } from "./names.js";
import { indented, itemsAsWritten } from "./written.js";

const PAGE = 50;

/** @param {Place} place */
export async function browserPage(place) {
  return h("div", { class: "orders" }, browser(place));
}

/** The list. */
export function browser(place) {
  return dataList({
    place,
    caption: t("orders.title"),
    filters: [
      { name: "platform", label: t("orders.platform"), kind: "text" },
      { name: "shop", label: t("orders.shop"), kind: "text" },
      { name: "order_id", label: t("orders.orderId"), kind: "text" },
      { name: "field", label: t("orders.inside"), kind: "text" },
      { name: "after", label: t("orders.modifiedFrom"), kind: "moment" },
      { name: "before", label: t("orders.modifiedTo"), kind: "moment" },
    ],
    columns: [
      { title: t("orders.orderId"), cell: (order) => h("b", { class: "path" }, order.order_id) },
      { title: t("orders.platform"), cell: (order) => h("span", { class: "two-lines" }, order.platform, h("small", { class: "quiet" }, order.shop)) },
      { title: t("orders.modified"), cell: (order) => h("span", { class: "two-lines" }, when(order.modified_at), h("small", { class: "quiet" }, ago(order.modified_at))) },
      { title: t("orders.version"), cell: (order) => String(order.version), numeric: true },
      { title: t("orders.content"), cell: (order) => fold(t("orders.show"), () => [h("pre", { class: "json", tabindex: "0" }, indented(order.written))]) },
    ],
    load,
    request: (filters) => address("/v1/orders", toQuery(filters)),
    key: (order) => [order.platform, order.shop, order.order_id].join("\n"),
    empty: { text: t("orders.noOrders"), ...twins("/v1/orders?limit=50") },
  });
}

function toQuery({ after, before, ...exact }) {
  return { ...exact, modified_after: typedMoment(after), modified_before: typedMoment(before) };
}

async function load(filters, cursor) {
  const query = { ...toQuery(filters), limit: PAGE, cursor };
  const text = await (await send("GET", "/v1/orders", { query })).text();
  const page = parse(text);
  const written = itemsAsWritten(text);
  return { items: page.items.map((item, index) => ({ ...item, written: written[index] })), next: page.next_cursor };
}
