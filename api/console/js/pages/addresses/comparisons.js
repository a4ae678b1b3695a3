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
const TONES = { running: "run", succeeded: "ok", failed: "bad" };

/** @param {Place} place */
export async function comparisonsPage(place) {
  const compare = async (event) => {
    const started = await attempt(() => busy(post(`${API}/comparisons`), event.target));
    if (started) await go(`${BASE_PATH}/comparisons/${started.comparison_id}`);
  };
  place.actions(h("button", { type: "button", class: "primary", on: { click: compare } }, t("addresses.compare")));
  const list = dataList({
    place,
    caption: t("addresses.comparisons"),
    columns: [
      { title: t("addresses.comparison"), cell: (each) => when(each.requested_at) },
      { title: t("addresses.stateTitle"), cell: (each) => badge(t(`addresses.workState.${each.state}`), TONES[each.state]) },
      { title: t("addresses.compared"), cell: (each) => number(each.compared), numeric: true },
      { title: t("addresses.different"), cell: (each) => (each.different === null ? "–" : badge(number(each.different), each.different ? "bad" : "ok")), numeric: true },
    ],
    load: async () => ({ items: (await get(`${API}/comparisons`)).items, next: null }),
    key: (each) => each.comparison_id,
    open: (each) => `${BASE_PATH}/comparisons/${each.comparison_id}`,
    empty: { text: t("addresses.comparisonsEmpty"), ...twins(`${API}/comparisons`) },
    every: EVERY_MS,
  });
  return [h("p", { class: "quiet" }, t("addresses.comparisonsIntro")), list];
}

/** One comparison. @param {Place} place */
export async function comparisonPage(place) {
  const body = h("div", { "aria-live": "polite" });
  const draw = drawIfChanged((comparison) => {
    clear(body, comparisonParts(comparison));
    return comparison.state !== "failed" && !(comparison.state === "succeeded" && comparison.found);
  });
  const look = latestOnly(() => get(`${API}/comparisons/${place.params.id}`), draw);
  if (await look()) poll(place, look, EVERY_MS);
  return [h("p", {}, h("a", { href: `${BASE_PATH}/comparisons` }, t("addresses.backToComparisons"))), body];
}

function comparisonParts({ workflow_id, state, fault, found }) {
  const head = h("p", {}, badge(t(`addresses.workState.${state}`), TONES[state]), " ", workflowLink(workflow_id, t("addresses.inTemporal")));
  if (!found) return h("section", { class: "card" }, head, h("p", {}, state === "failed" ? `${fault.message} ${fault.hint}` : t("addresses.comparisonRuns")));
  return [
    h(
      "section",
      { class: "card lead" },
      head,
      h("p", { class: "verdict" }, t(found.different ? "addresses.differ" : "addresses.alike", { n: found.different, all: number(found.compared) })),
      found.with_unfinished_message ? h("p", {}, t("addresses.underWayText", { n: found.with_unfinished_message })) : null,
      found.different ? h("p", {}, h("a", { href: found.url, class: "as-button primary", download: "" }, t("addresses.workbook")), " ", h("span", { class: "quiet" }, t("addresses.workbookText", { n: found.in_workbook }))) : null,
    ),
    h("h2", {}, t("addresses.inModules")),
    h("section", { class: "card" }, h("ul", { class: "lives" }, MODULES.map((module) => live(module, found)))),
    h("h2", {}, t("common.details")),
    h("section", { class: "card" }, facts(pairs(found))),
  ];
}

/** The number of UPRNs that a module has, as a bar relative to all UPRNs. */
function live(module, found) {
  const [n, all] = [found.uprns_by_module[module], Math.max(1, found.compared)];
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
    [t("addresses.presence"), number(found.presence_differs)],
    [t("addresses.otherId"), number(found.address_id_differs)],
    [t("addresses.otherRecord"), number(found.record_differs)],
  ];
}
