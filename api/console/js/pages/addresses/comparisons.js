// Comparisons of the four modules: start one, follow it, and show its result with the workbook.

import { get, post } from "../../api.js";
import { ago, badge, busy, dataList, facts, number, twins, when } from "../../components/index.js";
import { clear, h, svg } from "../../dom.js";
import { t } from "../../i18n.js";
import { drawIfChanged, poll, latestOnly } from "../../polling.js";
import { go } from "../../navigation.js";
import { workflowLink } from "../../session.js";
import { API, MODULES, BASE_PATH, attempt } from "./shared.js";

const EVERY_MS = 3000;
const TONES = { running: "run", done: "ok", failed: "bad" };

/** @param {Place} place */
export async function comparisonsPage(place) {
  const compare = async (event) => {
    const started = await attempt(() => busy(post(`${API}/drift`), event.target));
    if (started) await go(`${BASE_PATH}/drift/${started.report}`);
  };
  place.actions(h("button", { type: "button", class: "primary", on: { click: compare } }, t("addresses.compare")));
  const list = dataList({
    place,
    caption: t("addresses.comparisons"),
    columns: [
      { title: t("addresses.comparison"), cell: (each) => when(each.ordered_at) },
      { title: t("addresses.stateTitle"), cell: (each) => badge(t(`addresses.progress.${each.progress}`), TONES[each.progress]) },
      { title: t("addresses.compared"), cell: (each) => number(each.compared), numeric: true },
      { title: t("addresses.different"), cell: (each) => (each.different === null ? "–" : badge(number(each.different), each.different ? "bad" : "ok")), numeric: true },
    ],
    load: async () => ({ items: (await get(`${API}/drift`)).items, next: null }),
    key: (each) => each.report,
    open: (each) => `${BASE_PATH}/drift/${each.report}`,
    empty: { text: t("addresses.comparisonsEmpty"), ...twins(`${API}/drift`) },
    every: EVERY_MS,
  });
  return [h("p", { class: "quiet" }, t("addresses.comparisonsIntro")), list];
}

/** One comparison. @param {Place} place */
export async function comparisonPage(place) {
  const body = h("div", { "aria-live": "polite" });
  const draw = drawIfChanged((report) => {
    clear(body, reportParts(report));
    return report.progress !== "failed" && !(report.progress === "done" && report.found);
  });
  const look = latestOnly(() => get(`${API}/drift/${place.params.report}`), draw);
  if (await look()) poll(place, look, EVERY_MS);
  return [h("p", {}, h("a", { href: `${BASE_PATH}/drift` }, t("addresses.backToComparisons"))), body];
}

function reportParts({ report, progress, fault, found }) {
  const head = h("p", {}, badge(t(`addresses.progress.${progress}`), TONES[progress]), " ", workflowLink(`addresses-drift:${report}`, t("addresses.inTemporal")));
  if (!found) return h("section", { class: "card" }, head, h("p", {}, progress === "failed" ? fault || t("addresses.comparisonFailed") : t("addresses.comparisonRuns")));
  return [
    h(
      "section",
      { class: "card lead" },
      head,
      h("p", { class: "verdict" }, t(found.different ? "addresses.differ" : "addresses.alike", { n: found.different, all: number(found.compared) })),
      found.under_way ? h("p", {}, t("addresses.underWayText", { n: found.under_way })) : null,
      found.different ? h("p", {}, h("a", { href: found.url, class: "as-button primary", download: "" }, t("addresses.workbook")), " ", h("span", { class: "quiet" }, t("addresses.workbookText", { n: found.shown }))) : null,
    ),
    h("h2", {}, t("addresses.inModules")),
    h("section", { class: "card" }, h("ul", { class: "lives" }, MODULES.map((module) => live(module, found)))),
    h("h2", {}, t("common.details")),
    h("section", { class: "card" }, facts(pairs(found))),
  ];
}

/** The number of UPRNs that a module has, as a bar relative to all UPRNs. */
function live(module, found) {
  const [n, all] = [found.live[module], Math.max(1, found.compared)];
  const words = `${module.toUpperCase()} ${number(n)}`;
  return h(
    "li",
    {},
    h("b", {}, module.toUpperCase()),
    svg("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", role: "img", "aria-label": words, class: "stack" }, svg("rect", { width: (100 * n) / all, height: 10, class: n === found.compared ? "tone-ok" : "tone-wait" })),
    h("span", { class: "numeric" }, number(n)),
  );
}

function pairs(found) {
  return [
    [t("addresses.madeAt"), h("span", {}, when(found.made_at), " · ", ago(found.made_at))],
    [t("addresses.compared"), number(found.compared)],
    [t("addresses.different"), number(found.different)],
    [t("addresses.presence"), number(found.presence)],
    [t("addresses.otherId"), number(found.address_id)],
    [t("addresses.otherRecord"), number(found.record)],
  ];
}
