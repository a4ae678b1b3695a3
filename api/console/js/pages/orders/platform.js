// A platform: its state, its time line, and tabs for slices, configuration, comparisons and actions.

import { get } from "../../api.js";
import { badge, busy, duration, facts, number, problemBox, tabs } from "../../components/index.js";
import { clear, h, markCode } from "../../dom.js";
import { t } from "../../i18n.js";
import { poll, latestOnly } from "../../polling.js";
import { go, link } from "../../navigation.js";
import { projectName } from "../../projects.js";
import { workflowLink } from "../../session.js";
import { backfillBadge, backfills } from "./backfills.js";
import { configEditor } from "./config.js";
import { backfill, pauseOrResume, remove, trigger } from "./deeds.js";
import { api, href, moment, typedAs, windowText } from "./names.js";
import { rates } from "./rates.js";
import { reports } from "./reports.js";
import { sliceList } from "./slices.js";
import { timeline } from "./timeline.js";

const EVERY_MS = 5000;
const GAPS_SHOWN = 8;

/** @param {Place} place */
export async function platformPage(place) {
  const { platform } = place.params;
  let known = await get(api(platform));
  let config = await get(api(platform, "/config"));
  const [trouble, refusal] = [h("div"), h("div")];
  const card = h("section", { class: "card platform-card" });
  const gaps = h("section", { class: "gaps" });
  const line = timeline(place, platform, (window) => showSlices(window));

  function show() {
    place.actions(
      button("trigger", () => trigger(platform), known.is_paused),
      button("backfill", () => backfill(platform, known)),
      button(known.is_paused ? "resume" : "pause", () => pauseOrResume(platform, known), false, !known.is_paused),
      known.is_paused ? button("remove", () => removeAndLeave(), false, true) : null,
      h("a", { href: `${href.platform(platform)}/setup`, class: "as-button" }, t("orders.change")),
    );
    clear(card, standing(known), figures(known), rates(known, config));
    clear(gaps, gapList(known, (window) => line.zoom(window)));
    line.gaps(known.gaps);
  }

  function button(word, deed, disabled = false, danger = false) {
    const press = async (event) => {
      const pressed = event.currentTarget;
      try {
        clear(refusal);
        if (await busy(deed(), pressed)) await read();
      } catch (problem) {
        clear(refusal, problemBox(problem));
      }
    };
    return h("button", { type: "button", disabled, class: danger ? "danger" : null, title: t(`orders.deed.${word}.tip`), on: { click: press } }, t(`orders.deed.${word}.name`));
  }

  /** Its page is gone with it. */
  async function removeAndLeave() {
    if (await remove(platform)) go("/console/orders");
    return false;
  }

  const read = latestOnly(
    () => Promise.all([get(api(platform)), get(api(platform, "/config"))]),
    (found) => {
      [known, config] = found;
      clear(trouble);
      show();
      return line.read();
    },
    (problem) => clear(trouble, problemBox(problem)),
  );

  function showSlices({ start, end }) {
    go(href.platform(platform, new URLSearchParams({ tab: "slices", start: typedAs(start), end: typedAs(end), ...line.range() }).toString()));
  }

  show();
  poll(place, read, EVERY_MS);
  const views = tabs(
    [
      { id: "gaps", label: t("orders.gaps"), content: gaps },
      { id: "slices", label: t("orders.slices"), content: () => sliceList(place, platform, read) },
      { id: "config", label: t("orders.config"), content: () => configEditor(platform, read) },
      { id: "backfills", label: t("orders.backfill.title"), content: () => backfills(place, platform) },
      { id: "reports", label: t("orders.reports"), content: () => reports(place, platform, known.zone_minutes) },
    ],
    place,
  );
  return h("div", { class: "orders" }, refusal, trouble, card, line.element, views);
}

function standing(known) {
  const badges = [
    known.unserved_since && badge(t("orders.unserved"), "bad"),
    known.clock_fault && badge(t("orders.clockUnread"), "bad"),
    known.credentials_fault && badge(t("orders.refused"), "bad"),
    known.slices_stale ? link(href.platform(known.platform, "tab=slices&stale=true"), badge(t("orders.staleN", { n: known.slices_stale }), "bad")) : null,
    known.sweeps_failed ? link(href.platform(known.platform, "tab=slices&sweep=failed"), badge(t("orders.sweepsFailedN", { n: known.sweeps_failed }), "bad")) : null,
    known.is_paused ? badge(t(known.is_configured || known.starts_at ? "orders.paused" : "orders.pausedNotConfigured"), "wait") : badge(t("orders.running"), "ok"),
    known.slices_failed ? badge(t("orders.failedN", { n: known.slices_failed }), "bad") : null,
    known.slices_open ? badge(t("orders.openN", { n: known.slices_open }), "run") : null,
    backfillBadge(known.backfill),
  ];
  const note = known.is_paused && known.note ? h("span", { class: "quiet" }, "“", known.note, "”") : null;
  return h("p", { class: "badges" }, badges.filter(Boolean), note);
}

function figures(known) {
  const skew = known.skew_seconds;
  return facts([
    [t("orders.completeTo"), moment(known.complete_to)],
    [t("orders.claimedTo"), moment(known.claimed_to)],
    [t("orders.lag"), known.lag_seconds === null ? null : duration(known.lag_seconds)],
    [t("orders.startsAt"), moment(known.starts_at)],
    [t("orders.clock"), skew === null ? null : t(skew < 0 ? "orders.behind" : "orders.ahead", { time: duration(Math.abs(skew)) })],
    [t("orders.settleLag"), settle(known)],
    [t("orders.missed"), number(known.orders_missed)],
    [t("orders.nextRun"), known.next_runs.length ? moment(known.next_runs[0]) : t("orders.none")],
    [t("common.project"), projectName(known.project_id)],
    [t("orders.account"), `${known.kind} · ${known.shop}`],
    [t("orders.address"), h("span", { class: "path" }, known.base_url)],
    known.unserved_since ? [t("orders.unservedSince"), moment(known.unserved_since)] : null,
    known.credentials_fault && [t("orders.refusedSince"), h("span", {}, moment(known.credentials_failed_since), " · ", markCode(`${known.credentials_fault.message} ${known.credentials_fault.hint}`))],
    known.clock_fault && [t("orders.clockUnreadSince"), h("span", {}, moment(known.clock_failed_since), " · ", markCode(`${known.clock_fault.message} ${known.clock_fault.hint}`))],
    known.workflow_id && [t("orders.workflow"), workflowLink(known.workflow_id)],
  ].filter(Boolean));
}

function settle(known) {
  const now = duration(known.settle_lag);
  return known.proposed_settle_lag ? `${now} · ${t("orders.proposed", { time: duration(known.proposed_settle_lag) })}` : now;
}

function gapList(known, zoom) {
  if (!known.starts_at) return h("p", { class: "quiet" }, t("orders.notBegunText"));
  if (!known.gaps.length) return h("p", { class: "quiet" }, t("orders.noGaps"));
  const rows = known.gaps.slice(0, GAPS_SHOWN).map((gap) =>
    h(
      "li",
      {},
      h("span", {}, windowText(gap)),
      h("span", { class: "quiet" }, duration((new Date(gap.end) - new Date(gap.start)) / 1000)),
      h("button", { type: "button", on: { click: () => zoom(gap) } }, t("orders.zoomIn")),
    ),
  );
  const more = known.gaps.length - rows.length;
  return [h("p", { class: "quiet" }, t("orders.gapsText")), h("ul", {}, rows), more > 0 ? h("p", { class: "quiet" }, t("orders.moreGaps", { n: more })) : null];
}

