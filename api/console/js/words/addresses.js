// Words of the pages of addresses.

import { add } from "../i18n.js";
import { en } from "./addresses/en.js";
import { zh } from "./addresses/zh.js";

add("addresses", { en, zh });
