// Addresses: the log of changes and what operators do to it, logical deletes, comparisons of modules, the quarantine.

import { h } from "../dom.js";
import { t } from "../i18n.js";
import { session } from "../session.js";
import { stylesheet } from "../stylesheet.js";
import "../words/addresses.js";
import { comparisonPage, comparisonsPage } from "./addresses/comparing.js";
import { deletesPage, purgePage } from "./addresses/deletes.js";
import { historyPage, logPage } from "./addresses/log.js";
import { messagePage } from "./addresses/message.js";
import { quarantinePage, unreadablePage } from "./addresses/quarantine.js";
import { ROOM, roomSections } from "./addresses/pieces.js";

await stylesheet("addresses");

export const routes = [
  section("", "title", logPage),
  section("/history", "history", historyPage),
  section("/logical-deletes", "deletes", deletesPage),
  section("/drift", "comparisons", comparisonsPage),
  section("/quarantine", "quarantine", quarantinePage),
  single("/messages/:id", (place) => t("addresses.messageN", { id: place.params.id }), messagePage),
  single("/logical-deletes/purges/:id", () => t("addresses.purge"), purgePage),
  single("/drift/:report", () => t("addresses.comparison"), comparisonPage),
  single("/quarantine/:id", (place) => t("addresses.unreadableN", { id: place.params.id }), unreadablePage),
];

function section(path, word, page) {
  const inside = async (place) => h("div", { class: "addresses" }, roomSections(path), await page(place));
  return { path: ROOM + path, title: () => t(`addresses.${word}`), page: forAdmin(inside) };
}

function single(path, title, page) {
  return { path: ROOM + path, title, page: forAdmin(async (place) => h("div", { class: "addresses" }, await page(place))) };
}

/** Operators share the admin key; a project's key is told so instead of "there is nothing". */
function forAdmin(page) {
  return (place) => (session.isAdmin ? page(place) : h("div", { class: "empty" }, h("p", {}, t("addresses.adminOnly"))));
}
