// The form that sets a platform up, or changes its address and who receives its alarms; its declaration can be tried.

import { Problem, get, post, put } from "../../api.js";
import { busy, form, number as figure, say, when } from "../../components/index.js";
import { clear, h, markCode } from "../../dom.js";
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
    { name: "credentials", label: word("credentials"), hint: word("credentialsHint") },
  ].filter(Boolean);
  const submit = async ({ platform = number, notify_url, capability, credentials: _, ...rest }) => {
    await put(api(platform), { ...rest, notify_url: notify_url.trim() || null, capability: record(capability) });
    say(word("done"));
    await go(href.platform(platform));
  };
  const values = known ?? { project_id: session.project ?? "" };
  const tried = h("div", { role: "status" });
  const attempt = h("button", { type: "button", on: { click: () => busy(tryIt(), attempt) } }, word("try"));
  const editor = form({ fields, submit, values, action: t("common.save"), extra: [attempt] });

  /** Read one page with what the form says, and show what was understood; nothing is kept. */
  async function tryIt() {
    const { kind, shop, base_url, capability, credentials } = Object.fromEntries(new FormData(editor));
    clear(tried);
    editor.showProblem(null);
    try {
      const body = { kind, shop, base_url, capability: record(capability), credentials: credentials.trim() || null };
      clear(tried, triedPage(await post("/v1/platforms:try", body)));
    } catch (problem) {
      if (problem.name !== "Problem") throw problem;
      editor.showProblem(problem);
    }
  }

  return h("div", { class: "orders setup" }, h("p", { class: "quiet" }, word("text")), h("div", { class: "card" }, editor), tried);
}

function triedPage(seen) {
  const word = (name, values) => t(`orders.setup.${name}`, values);
  const rows = seen.items.map((each) => h("tr", {}, h("td", {}, each.order_id), h("td", {}, when(each.modified_at)), h("td", { class: "numeric" }, figure(each.version)), h("td", {}, h("code", {}, each.raw.slice(0, 200)))));
  const heads = ["triedId", "triedTime", "triedVersion", "triedRow"].map((name) => h("th", { scope: "col" }, word(name)));
  return h(
    "section",
    { class: "card" },
    h("h2", {}, word("tried", { n: seen.rows })),
    h("p", { class: "quiet" }, word("triedText", { start: when(seen.start).textContent, end: when(seen.end).textContent, total: seen.total === null ? "–" : figure(seen.total) })),
    seen.problems.length ? h("ul", {}, seen.problems.map((sentence) => h("li", {}, markCode(sentence)))) : h("p", {}, word("triedWell")),
    rows.length ? h("div", { class: "scroller", tabindex: "0", role: "region", "aria-label": word("tried", { n: seen.rows }) }, h("table", { class: "list" }, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, rows))) : null,
  );
}

function record(text) {
  if (!text.trim()) return null;
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Problem({ detail: error.message, errors: [{ path: "capability", message: error.message }] });
  }
}
