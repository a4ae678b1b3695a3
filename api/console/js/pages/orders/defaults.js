// The configuration that all platforms share.

import { askFirst } from "../../components/index.js";
import { h } from "../../dom.js";
import { t } from "../../i18n.js";
import { configEditor } from "./config.js";

/** @param {Place} place */
export async function defaultsPage() {
  const ask = async () => Boolean(await askFirst({ title: t("orders.cfg.askTitle"), text: t("orders.cfg.askText"), action: t("common.save") }));
  return h("div", { class: "orders" }, await configEditor("default", async () => {}, ask));
}
