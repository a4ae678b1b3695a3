// Orders: platforms and their time lines, slices, configuration, comparisons, and the orders themselves.

import { t } from "../i18n.js";
import { stylesheet } from "../stylesheet.js";
import "../words/orders.js";
import { browserPage } from "./orders/browser.js";
import { defaultsPage } from "./orders/defaults.js";
import { platformPage } from "./orders/platform.js";
import { frontPage } from "./orders/platforms.js";
import { setupPage } from "./orders/setup.js";
import { slicePage } from "./orders/slice.js";

await stylesheet("orders");

export const routes = [
  { path: "/console/orders", title: () => t("orders.title"), page: frontPage },
  { path: "/console/orders/browse", title: () => t("orders.browse"), page: browserPage },
  { path: "/console/orders/defaults", title: () => t("orders.defaults"), page: defaultsPage },
  { path: "/console/orders/new", title: () => t("orders.setup.title"), page: setupPage },
  { path: "/console/orders/platforms/:platform", title: (place) => place.params.platform, page: platformPage },
  { path: "/console/orders/platforms/:platform/setup", title: (place) => place.params.platform, page: setupPage },
  { path: "/console/orders/platforms/:platform/slices/:slice", title: () => t("orders.slice"), page: slicePage },
];
