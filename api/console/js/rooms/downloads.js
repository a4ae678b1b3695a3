// Downloads: what the API tells of this room.

import { h } from "../dom.js";
import { t } from "../i18n.js";

export const routes = [
  { path: "/console/downloads", title: () => t("common.room.downloads"), page: async () => h("p", {}, h("a", { href: "/docs" }, "/docs")) },
];
