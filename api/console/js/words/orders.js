// Words of the orders room.

import { add } from "../i18n.js";
import { en } from "./orders/en.js";
import { zh } from "./orders/zh.js";

add("orders", { en, zh });
