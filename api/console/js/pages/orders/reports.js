// Comparisons of a day with the platform: make one, see what the last ones found, fetch the workbook.

import { Problem, get, post } from "../../api.js";
import { badge, busy, dataList, number, problemBox, twins, when } from "../../components/index.js";
import { clear, h } from "../../dom.js";
import { t } from "../../i18n.js";
import { api } from "./names.js";

const SHOWN = 14;
const LOOK_MS = 1000;
const LOOKS = 120;

/**
 * The tab; a comparison that is under way when the page is left goes on.
 *
 * @param {Place} place
 * @param {string} platform
 * @param {number} zoneMinutes - how far the platform's zone is before UTC: its days are compared
 */
export async function reports(place, platform, zoneMinutes) {
  const trouble = h("div");
  const button = h("button", { class: "primary" }, t("orders.report.make"));
  const day = h("input", { type: "date", name: "day", required: true, max: dayThere(zoneMinutes, -1), ".value": dayThere(zoneMinutes, -1) });
  const making = h("p", { role: "status", class: "quiet" });
  const list = days(place, platform);
  let left = false;
  place.onLeave(() => (left = true));

  async function make(event) {
    event.preventDefault();
    clear(trouble);
    try {
      await busy(compare(day.value), button);
      await list.reload();
    } catch (problem) {
      clear(trouble, problemBox(problem));
    } finally {
      making.textContent = "";
    }
  }

  async function compare(day) {
    const begun = (await made(platform, day))?.made_at;
    await post(api(platform, "/reports"), { day });
    making.textContent = t("orders.report.making", { day });
    for (let look = 0; look < LOOKS && !left; look += 1) {
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
      const report = await made(platform, day);
      if (report && report.made_at !== begun) return;
    }
    throw new Problem({ title: t("orders.report.slow"), detail: t("orders.report.slowText") });
  }

  const form = h("form", { class: "filters", on: { submit: make } }, h("label", { class: "field" }, h("span", {}, t("orders.report.day")), day), button, making);
  return h("div", {}, h("p", { class: "quiet" }, t("orders.report.text")), form, trouble, list);
}

/** The last comparison of a day, if there is one. Asked by the list, because to have none is no failure. */
async function made(platform, day) {
  const path = api(platform, "/reports");
  let cursor = null;
  do {
    const page = await get(path, { cursor, limit: 200 });
    if (page.items.some((each) => each.day === day)) return get(`${path}/${day}`);
    // They come newest first: further pages have older days only.
    cursor = page.items.at(-1)?.day > day ? page.next_cursor : null;
  } while (cursor);
  return null;
}

/** The days that were compared, the newest first. */
function days(place, platform) {
  const path = api(platform, "/reports");
  return dataList({
    place,
    caption: t("orders.reports"),
    columns: [
      { title: t("orders.report.day"), cell: (report) => report.day },
      { title: t("orders.report.comparedTo"), cell: (report) => when(report.window.end) },
      { title: t("orders.report.listed"), cell: (report) => number(report.listed), numeric: true },
      { title: t("orders.report.stored"), cell: (report) => number(report.stored), numeric: true },
      { title: t("orders.report.missing"), cell: (report) => (report.missing ? badge(number(report.missing), "bad") : badge("0", "ok")), numeric: true },
      { title: t("orders.report.notListed"), cell: (report) => (report.not_listed === null ? "–" : number(report.not_listed)), numeric: true },
      { title: t("orders.report.madeAt"), cell: (report) => when(report.made_at) },
      { title: t("orders.report.book"), cell: (report) => h("a", { href: report.url, class: "outside", target: "_blank", rel: "noreferrer" }, t("orders.report.fetch")) },
    ],
    load: async (_, cursor) => {
      const page = await get(path, { cursor, limit: SHOWN });
      const items = await Promise.all(page.items.map((each) => get(`${path}/${each.day}`)));
      return { items, next: page.next_cursor };
    },
    key: (report) => report.day,
    empty: { text: t("orders.report.none"), ...twins(path) },
  });
}

/** The day that it is in a zone, a number of days from now. */
function dayThere(zoneMinutes, days) {
  return new Date(Date.now() + zoneMinutes * 60_000 + days * 86_400_000).toISOString().slice(0, 10);
}
