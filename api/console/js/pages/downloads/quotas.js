// The quotas: what a project may start, keep active and make, and how much of it is used.

import { get } from "../../api.js";
import { bytes, duration, number } from "../../components/index.js";
import { clear, h } from "../../dom.js";
import { t } from "../../i18n.js";
import { poll, latestOnly } from "../../polling.js";

const EVERY_MS = 15000;
const NEARLY_ALL = 0.8;

/**
 * The quotas of the project, and of one operator if the query names one; they keep telling the truth.
 *
 * @param {Place} place
 * @param {string} [operator]
 * @returns {Element} `element.reload(operator)` reads them again
 */
export function quotaStrip(place, operator = "") {
  const list = h("ul", { class: "quotas" });
  let whose = operator;
  const element = h("section", { "aria-label": t("downloads.quota.title"), class: "quota-strip" }, list);
  const look = latestOnly(
    () => get("/v1/downloads/quotas", { operator_id: whose }),
    ({ items: quotas }) => {
      clear(list, quotas.map(meter));
      element.hidden = false;
    },
    // The page shows more than quotas; its list reports problems of the API.
    () => {
      element.hidden = true;
    },
  );
  element.reload = (of = whose) => {
    whose = of;
    return look();
  };
  element.hidden = true;
  look();
  poll(place, look, EVERY_MS);
  return element;
}

function meter(quota) {
  const write = quota.kind === "bytes" ? bytes : number;
  const share = Math.min(1, quota.used / quota.limit);
  const words = t("downloads.quota.used", { used: write(quota.used), limit: write(quota.limit) });
  const label = t(`downloads.quota.${quota.scope}.${quota.kind}`);
  const back = quota.resets_in_seconds === null ? null : t("downloads.quota.back", { time: duration(quota.resets_in_seconds) });
  const tone = share >= 1 ? "bad" : share >= NEARLY_ALL ? "wait" : "run";
  return h(
    "li",
    { class: `tone-${tone}`, title: back },
    h("span", { class: "quiet" }, label),
    h("b", {}, words),
    h("progress", { value: share, max: 1, "aria-label": `${label}: ${words}` }),
    share >= NEARLY_ALL && back ? h("small", {}, back) : null,
  );
}
