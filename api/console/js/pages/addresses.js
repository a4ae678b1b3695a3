// The pages of addresses: log, history, logical deletes, comparisons of modules, and quarantine.

import { h } from "../dom.js";
import { t } from "../i18n.js";
import { session } from "../session.js";
import { stylesheet } from "../stylesheet.js";
import "../words/addresses.js";
import { comparisonPage, comparisonsPage } from "./addresses/comparisons.js";
import { deletesPage, purgePage } from "./addresses/deletes.js";
import { historyPage, logPage } from "./addresses/log.js";
import { messagePage } from "./addresses/message.js";
import { quarantinePage, unreadablePage } from "./addresses/quarantine.js";
import { BASE_PATH, pageSections } from "./addresses/shared.js";

await stylesheet("addresses");

export const routes = [
  section("", "title", logPage),
  section("/history", "history", historyPage),
  section("/logical-deletes", "deletes", deletesPage),
  section("/comparisons", "comparisons", comparisonsPage),
  section("/quarantine", "quarantine", quarantinePage),
  single("/messages/:id", (place) => t("addresses.messageN", { id: place.params.id }), messagePage),
  single("/logical-deletes/purges/:id", () => t("addresses.purge"), purgePage),
  single("/comparisons/:id", () => t("addresses.comparison"), comparisonPage),
  single("/quarantine/:id", (place) => t("addresses.unreadableN", { id: place.params.id }), unreadablePage),
];

function section(path, word, page) {
  const withSections = async (place) => h("div", { class: "addresses" }, pageSections(path), await page(place));
  return { path: BASE_PATH + path, title: () => t(`addresses.${word}`), page: forAdmin(withSections) };
}

function single(path, title, page) {
  return { path: BASE_PATH + path, title, page: forAdmin(async (place) => h("div", { class: "addresses" }, await page(place))) };
}

/** Show a page to the admin key; for a project's key, say why there is none. */
function forAdmin(page) {
  return (place) => (session.isAdmin ? page(place) : h("div", { class: "empty" }, h("p", {}, t("addresses.adminOnly"))));
}
