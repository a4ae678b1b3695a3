// The form that sets a platform up, or changes its address and who receives its alarms.

import { Problem, get, put } from "../../api.js";
import { form, say } from "../../components/index.js";
import { h } from "../../dom.js";
import { t } from "../../i18n.js";
import { go } from "../../navigation.js";
import { listProjects } from "../../projects.js";
import { session } from "../../session.js";
import { api, href } from "./names.js";

const KINDS = ["taobao", "pinduoduo", "shopify", "woocommerce", "amazon"];

/** @param {Place} place */
export async function setupPage(place) {
  const number = place.params.platform;
  const known = number ? await get(api(number)) : null;
  const word = (name) => t(`orders.setup.${name}`);
  const projects = await listProjects();
  const fields = [
    number ? null : { name: "platform", label: word("number"), hint: word("numberHint"), required: true, attributes: { pattern: "[a-z0-9][a-z0-9_\\-]{0,39}" } },
    { name: "project_id", label: t("common.project"), kind: "select", options: projects.map((each) => ({ value: each.project_id, label: each.name })), required: true },
    { name: "kind", label: word("kind"), hint: `${word("kindHint")} ${KINDS.join(", ")}.`, required: true },
    { name: "shop", label: t("orders.shop"), required: true },
    { name: "base_url", label: t("orders.address"), hint: word("urlHint"), required: true, attributes: { inputmode: "url" } },
    { name: "notify_url", label: word("notify"), hint: number ? word("notifyAgain") : word("notifyHint"), attributes: { inputmode: "url" } },
    { name: "capability", label: word("capability"), kind: "textarea", hint: number ? word("capabilityAgain") : word("capabilityHint"), attributes: { rows: 6 } },
  ].filter(Boolean);
  const submit = async ({ platform = number, notify_url, capability, ...rest }) => {
    await put(api(platform), { ...rest, notify_url: notify_url.trim() || null, capability: record(capability) });
    say(word("done"));
    await go(href.platform(platform));
  };
  const values = known ?? { project_id: session.project ?? "" };
  return h("div", { class: "orders setup" }, h("p", { class: "quiet" }, word("text")), h("div", { class: "card" }, form({ fields, submit, values, action: t("common.save") })));
}

function record(text) {
  if (!text.trim()) return null;
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Problem({ detail: error.message, errors: [{ path: "capability", message: error.message }] });
  }
}
