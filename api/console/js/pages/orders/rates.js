// How much of a platform's rate and daily quota is used, over all workers.

import { duration, number, progress } from "../../components/index.js";
import { h } from "../../dom.js";
import { t } from "../../i18n.js";

/** Bars of what is used. */
export function rates(known, config) {
  const value = (name) => config.effective[name].value;
  const [burst, perSecond, quota] = [value("burst"), value("requests_per_second"), value("daily_quota")];
  const window = duration(burst / perSecond);
  const now = t("orders.rateNow", { used: known.requests_in_window, burst, time: window });
  const today = quota === null ? t("orders.quotaNone", { used: known.requests_today }) : t("orders.quotaToday", { used: known.requests_today, quota });
  return h(
    "div",
    { class: "rates" },
    h("div", {}, h("h3", {}, t("orders.rate"), h("small", { class: "quiet" }, " ", t("orders.perSecond", { n: number(perSecond, 3) }))), progress(known.requests_in_window / burst, now)),
    h("div", {}, h("h3", {}, t("orders.quota")), quota === null ? h("p", { class: "quiet" }, today) : progress(known.requests_today / quota, today)),
  );
}
