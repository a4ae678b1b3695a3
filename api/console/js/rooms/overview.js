// Overview: what the API tells of this room.

import { h } from "../dom.js";
import { t } from "../i18n.js";

export const routes = [
  { path: "/console", title: () => t("common.room.overview"), page: async () => h("p", {}, h("a", { href: "/docs" }, "/docs")) },
];
