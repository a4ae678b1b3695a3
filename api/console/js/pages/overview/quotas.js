// The quotas of a project in all systems, with what is used; not shown while an admin looks at all projects.

import { get } from "../../api.js";
import { badge, bytes, duration, number } from "../../components/index.js";
import { clear, h } from "../../dom.js";
import { t } from "../../i18n.js";
import { drawIfChanged, latestOnly, poll } from "../../polling.js";

const EVERY_MS = 15000;
const NEARLY_ALL = 0.8;
const COLUMNS = ["quota", "system", "used", "limit", "backIn"];

/**
 * Create the table; it reads the quotas again regularly.
 *
 * @param {Place} place
 * @returns {Element}
 */
export function quotaTable(place) {
  const body = h("tbody");
  const heads = COLUMNS.map((name, index) => h("th", { scope: "col", class: index > 1 && "numeric" }, t(`overview.${name}`)));
  const table = h("table", { class: "list" }, h("caption", { class: "unseen" }, t("overview.quotas")), h("thead", {}, h("tr", {}, heads)), body);
  const scroller = h("div", { class: "scroller", tabindex: "0", role: "region", "aria-label": t("overview.quotas") }, table);
  const element = h("section", { class: "queues", hidden: true }, h("h2", {}, t("overview.quotas")), scroller);
  const draw = drawIfChanged((quotas) => {
    clear(body, quotas.map(row));
    element.hidden = false;
  });
  const look = latestOnly(
    () => get("/v1/quotas"),
    ({ items: quotas }) => {
      draw(quotas);
    },
    // The overview itself reports problems of the API.
    () => {
      element.hidden = true;
    },
  );
  look();
  poll(place, look, EVERY_MS);
  return element;
}

function row(quota) {
  const write = quota.name.endsWith("_bytes_per_day") ? bytes : number;
  const cells = [
    t(`overview.quotaNames.${quota.name}`),
    quota.system ? t(`common.section.${quota.system}`) : t("overview.everySystem"),
    quota.used === null ? "–" : amount(write(quota.used), quota.used / quota.limit),
    write(quota.limit),
    quota.resets_in_seconds === null ? "–" : duration(quota.resets_in_seconds),
  ];
  return h("tr", {}, cells.map((cell, index) => h("td", { class: index > 1 && "numeric", data: { label: t(`overview.${COLUMNS[index]}`) } }, cell)));
}

function amount(text, share) {
  return share >= NEARLY_ALL ? badge(text, share >= 1 ? "bad" : "wait") : text;
}
