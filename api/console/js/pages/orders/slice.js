// One slice: what the ledger has of it, and what can be done about it.

import { get } from "../../api.js";
import { badge, busy, copyable, facts, number, problemBox } from "../../components/index.js";
import { clear, h, markCode } from "../../dom.js";
import { t } from "../../i18n.js";
import { drawIfChanged, poll, latestOnly } from "../../polling.js";
import { link } from "../../navigation.js";
import { workflowLink } from "../../session.js";
import { deedsOf, steer } from "./deeds.js";
import { apiSlice, href, moment, rereadBadge, sliceBadge, windowText } from "./names.js";

const EVERY_MS = 3000;

/** @param {Place} place */
export async function slicePage(place) {
  const { platform, slice: name } = place.params;
  const path = apiSlice(platform, name);
  const [trouble, refusal] = [h("div"), h("div")];
  const card = h("section", { class: "card slice-card" });
  const draw = drawIfChanged((slice) => {
    place.actions(...deedsOf(slice).map((deed) => button(deed, slice)));
    place.setTitle(`${platform} · ${windowText(slice.window)}`);
    clear(card, h("p", { class: "badges" }, sliceBadge(slice.state), rereadBadge(slice.reread), slice.stale_reported_at ? badge(t("orders.stale"), "bad") : null, h("span", {}, t(`orders.says.${slice.state}`))), fault(slice), reading(slice.reading), ledger(slice));
  });
  const read = latestOnly(() => get(path), draw);
  const again = () => read().then(() => clear(trouble), (problem) => clear(trouble, problemBox(problem)));

  function button(deed, slice) {
    const press = async (event) => {
      const pressed = event.currentTarget;
      try {
        clear(refusal);
        if (await busy(steer(deed, platform, [slice]), pressed)) await again();
      } catch (problem) {
        clear(refusal, problemBox(problem));
      }
    };
    return h("button", { type: "button", class: deed === "skip" ? "danger" : null, on: { click: press } }, t(`orders.deed.${deed}.name`));
  }

  await read();
  poll(place, again, EVERY_MS);
  return h("div", { class: "orders" }, h("p", {}, link(href.platform(platform), "← ", platform)), refusal, trouble, card);
}

function fault(slice) {
  if (slice.reason) return h("p", {}, t("orders.skippedFor", { reason: slice.reason }));
  const fault = slice.fault ?? slice.reread?.fault;
  if (!fault) return null;
  return h("div", { class: "problem" }, h("p", { class: "problem-title" }, markCode(fault.message)), h("p", {}, markCode(fault.hint)), h("p", { class: "quiet" }, t(fault.retryable ? "orders.retryHelps" : "orders.retryNeeds"), " ", h("code", {}, fault.code)));
}

/** What was tried, why it failed, and when it is tried again, of a slice that is being read. */
function reading(now) {
  if (!now) return null;
  const { attempt, fault: last, next_attempt_at: next } = now;
  const words = last ? t("orders.tries.failed", { n: next ? attempt : attempt - 1, why: `${last.message} ${last.hint}`.trim() }) : t("orders.tries.first", { n: attempt });
  return h("p", { class: "why", dir: "auto" }, markCode(words), " ", last && (next ? [t("orders.tries.next"), " ", moment(next)] : t("orders.tries.now")));
}

function ledger(slice) {
  const figure = (name) => [t(`orders.figure.${name}`), slice[name] === null ? null : number(slice[name])];
  return facts([
    [t("orders.window"), windowText(slice.window)],
    [t("orders.trackTitle"), t(`orders.track.${slice.track}`)],
    ...["orders", "total", "changed", "attempts", "passes", "pages", "outside", "undated", "missed"].map(figure),
    [t("orders.claimedAt"), moment(slice.claimed_at)],
    [t("orders.finishedAt"), slice.finished_at && moment(slice.finished_at)],
    [t("orders.sweptAt"), slice.swept_at && moment(slice.swept_at)],
    slice.stale_reported_at && [t("orders.staleReportedAt"), moment(slice.stale_reported_at)],
    slice.reread && [t("orders.rereadAt"), moment(slice.reread.since ?? slice.reread.ended_at)],
    [t("orders.settingsVersion"), slice.settings_version === null ? null : String(slice.settings_version)],
    [t("orders.rawKey"), slice.raw_key && copyable(slice.raw_key)],
    [t("orders.workflow"), workflowLink(slice.workflow_id)],
  ].filter(Boolean));
}
