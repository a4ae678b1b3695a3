// Comparisons of a day with the platform: make one, see what the last ones found, fetch the workbook.

import { Problem, get, post } from "../../api.js";
import { badge, busy, number, problemBox, when } from "../../components/index.js";
import { clear, h } from "../../dom.js";
import { t } from "../../i18n.js";
import { api } from "./names.js";

const SHOWN = 14;
const LOOK_MS = 1000;
const LOOKS = 120;

/** The tab; a comparison that is under way when the page is left goes on. */
export async function reports(place, platform) {
  const trouble = h("div");
  const body = h("tbody");
  const table = h("div", { class: "scroller" }, h("table", { class: "list" }, h("caption", { class: "unseen" }, t("orders.reports")), heads(), body));
  const none = h("p", { class: "empty" }, t("orders.report.none"));
  const button = h("button", { class: "primary" }, t("orders.report.make"));
  const day = h("input", { type: "date", name: "day", required: true, max: today(), ".value": today(-1) });
  const making = h("p", { role: "status", class: "quiet" });
  let left = false;
  place.onLeave(() => (left = true));

  async function show() {
    const { days } = await get(api(platform, "/reports"));
    const found = await Promise.all(days.slice(0, SHOWN).map((each) => get(api(platform, `/reports/${each}`))));
    clear(body, found.map(row));
    table.hidden = !found.length;
    none.hidden = found.length > 0;
  }

  async function make(event) {
    event.preventDefault();
    clear(trouble);
    try {
      await busy(compare(day.value), button);
      await show();
    } catch (problem) {
      clear(trouble, problemBox(problem));
    } finally {
      making.textContent = "";
    }
  }

  async function compare(wanted) {
    const begun = (await made(platform, wanted))?.made_at;
    await post(api(platform, "/reports"), { day: wanted });
    making.textContent = t("orders.report.making", { day: wanted });
    for (let look = 0; look < LOOKS && !left; look += 1) {
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
      const report = await made(platform, wanted);
      if (report && report.made_at !== begun) return;
    }
    throw new Problem({ title: t("orders.report.slow"), detail: t("orders.report.slowText") });
  }

  await show();
  const form = h("form", { class: "filters", on: { submit: make } }, h("label", { class: "field" }, h("span", {}, t("orders.report.day")), day), button, making);
  return h("div", {}, h("p", { class: "quiet" }, t("orders.report.text")), form, trouble, table, none);
}

/** The last comparison of a day, if there is one. Asked by the list, because to have none is no failure. */
async function made(platform, day) {
  const { days } = await get(api(platform, "/reports"));
  return days.includes(day) ? get(api(platform, `/reports/${day}`)) : null;
}

function heads() {
  return h("thead", {}, h("tr", {}, ["day", "told", "stored", "missing", "onlyHere", "madeAt", "book"].map((name) => h("th", { scope: "col" }, t(`orders.report.${name}`)))));
}

function row(report) {
  const cell = (name, ...children) => h("td", { data: { label: t(`orders.report.${name}`) } }, children);
  return h(
    "tr",
    {},
    cell("day", report.day),
    cell("told", number(report.told)),
    cell("stored", number(report.stored)),
    cell("missing", report.missing ? badge(number(report.missing), "bad") : badge("0", "ok")),
    cell("onlyHere", number(report.only_here)),
    cell("madeAt", when(report.made_at)),
    cell("book", h("a", { href: report.url, class: "outside", target: "_blank", rel: "noreferrer" }, t("orders.report.fetch"))),
  );
}

function today(days = 0) {
  return new Date(Date.now() + days * 86_400_000).toISOString().slice(0, 10);
}
