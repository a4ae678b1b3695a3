// The ledger of slices: by state and time, with what failed and why, to redo, split or skip one or many.

import { Problem, address, get } from "../../api.js";
import { badge, dataList, number, twins } from "../../components/index.js";
import { h, markCode } from "../../dom.js";
import { t } from "../../i18n.js";
import { deedsOf, steer } from "./deeds.js";
import { SLICE_STATES, api, href, rereadBadge, sliceBadge, typedMoment, windowText } from "./names.js";

const EVERY_MS = 5000;
const PAGE = 50;

/** The list; `done` is called when something was done. */
export function sliceList(place, platform, done) {
  const path = api(platform, "/slices");
  const act = (deed) => async (slices) => {
    const allowed = slices.filter((slice) => deedsOf(slice).includes(deed));
    if (!allowed.length) throw new Problem({ title: t("common.failed"), detail: t(`orders.deed.${deed}.noneAllowed`) });
    return (await steer(deed, platform, allowed, slices.length - allowed.length)) && done();
  };
  return dataList({
    place,
    caption: t("orders.slices"),
    filters: [
      { name: "state", label: t("orders.stateTitle"), kind: "select", options: SLICE_STATES.map((value) => ({ value, label: t(`orders.state.${value}`) })) },
      { name: "reread", label: t("orders.rereadTitle"), kind: "select", options: ["running", "succeeded", "failed"].map((value) => ({ value, label: t(`orders.reread.${value}`) })) },
      { name: "stale", label: t("orders.duration"), kind: "select", options: [{ value: "true", label: t("orders.stale") }] },
      { name: "sweep", label: t("orders.swept"), kind: "select", options: [{ value: "failed", label: t("orders.sweepFailed") }] },
      { name: "cause", label: t("orders.cause"), kind: "text" },
      { name: "start", label: t("orders.endsAfter"), kind: "moment" },
      { name: "end", label: t("orders.beginsBefore"), kind: "moment" },
    ],
    columns: [
      { title: t("orders.window"), cell: (slice) => windowText(slice.window) },
      { title: t("orders.stateTitle"), cell: state },
      { title: t("orders.ordersTold"), cell: showOrders, numeric: true },
      { title: t("orders.attempts"), cell: (slice) => number(slice.attempts), numeric: true },
      { title: t("orders.swept"), cell: swept },
      { title: t("orders.whatHappened"), cell: happened },
    ],
    request: (filters) => address(path, toQuery(filters)),
    load: async (filters, cursor) => {
      const page = await get(path, { ...toQuery(filters), cursor, limit: PAGE });
      return { items: page.items, next: page.next_cursor };
    },
    key: (slice) => slice.slice,
    open: (slice) => href.slice(platform, slice.slice),
    empty: { text: t("orders.noSlices"), ...twins(`${path}?state=failed`) },
    select: true,
    actions: ["redo", "split", "skip"].map((deed) => ({ label: t(`orders.deed.${deed}.name`), danger: deed === "skip", run: act(deed) })),
    every: EVERY_MS,
  });
}

function toQuery({ start, end, ...rest }) {
  return { ...rest, start: typedMoment(start), end: typedMoment(end) };
}

function state(slice) {
  return h("span", { class: "two-lines" }, h("span", {}, sliceBadge(slice.state), " ", slice.reread?.state === "succeeded" ? null : rereadBadge(slice.reread), slice.stale_reported_at ? badge(t("orders.stale"), "bad") : null), slice.track === "history" ? h("small", { class: "quiet" }, t("orders.history")) : null);
}

function showOrders(slice) {
  if (slice.orders === null) return "–";
  return slice.total !== null && slice.total !== slice.orders ? `${number(slice.orders)} / ${number(slice.total)}` : number(slice.orders);
}

function swept(slice) {
  if (slice.state === "done" && !slice.swept_at && slice.fault) return badge(t("orders.sweepFailed"), "bad");
  if (!slice.swept_at) return h("span", { class: "quiet" }, slice.state === "done" ? t("orders.notYet") : "–");
  return slice.missed ? t("orders.missedN", { n: slice.missed }) : t("orders.sweptClean");
}

function happened(slice) {
  if (slice.reason) return h("span", {}, t("orders.skippedFor", { reason: slice.reason }));
  const fault = slice.fault ?? slice.reread?.fault;
  if (!fault) return "";
  return h("span", { class: "two-lines fault-cell" }, h("span", {}, markCode(fault.message)), h("small", { class: "quiet" }, fault.code));
}
