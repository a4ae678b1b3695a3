// Addresses: what the API tells of this room.

import { h } from "../dom.js";
import { t } from "../i18n.js";

export const routes = [
  { path: "/console/addresses", title: () => t("common.room.addresses"), page: async () => h("p", {}, h("a", { href: "/docs" }, "/docs")) },
];
