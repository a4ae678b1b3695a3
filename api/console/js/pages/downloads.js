// The section of downloads: its pages. What only one page needs is loaded with that page.

import { h } from "../dom.js";
import { t } from "../i18n.js";
import { listPage } from "./downloads/listpage.js";
import { inProject } from "./downloads/scope.js";
import "../words/downloads.js";

const style = h("link", { rel: "stylesheet", href: new URL("../../css/downloads.css", import.meta.url).href });
const isDressed = new Promise((done) => ["load", "error"].forEach((event) => style.addEventListener(event, done)));
document.head.append(style);
await isDressed;

export const routes = [
  { path: "/console/downloads", title: () => t("common.section.downloads"), page: listPage },
  {
    path: "/console/downloads/new",
    title: () => t("downloads.newTitle"),
    page: inProject(async (place, project) => (await import("./downloads/newpage.js")).newPage(place, project)),
  },
  {
    path: "/console/downloads/:id",
    title: () => t("downloads.one"),
    page: inProject(async (place, project) => (await import("./downloads/detailpage.js")).detailPage(place, project)),
  },
];
