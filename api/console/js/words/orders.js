// Words of the pages of orders.

import { add } from "../i18n.js";
import { en } from "./orders/en.js";
import { zh } from "./orders/zh.js";

add("orders", { en, zh });
