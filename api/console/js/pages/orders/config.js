// Configuration of a level: what would be in force, what this level sets, what is in force; faults at their field.

import { get, put } from "../../api.js";
import { badge, busy, problemBox, say } from "../../components/index.js";
import { clear, freshId, h, markCode } from "../../dom.js";
import { t } from "../../i18n.js";
import { api } from "./names.js";

/** Every key, and how it is typed in. */
const KEYS = {
  starttime: "text",
  interval: "seconds",
  timeout: "seconds",
  retries: "count",
  retryintv: "seconds",
  threads: "count",
  overlap: "seconds",
  settle_lag: "seconds",
  sweep_after: "seconds",
  max_rows_per_slice: "count",
  requests_per_second: "rate",
  burst: "count",
  daily_quota: "count",
  credentials: "text",
  api_version: "text",
};

/**
 * The editor of a level.
 *
 * @param {string} level - a platform's number, or "default"
 * @param {function(): Promise} [done] - called when it was changed
 * @param {function(): Promise<boolean>} [ask] - asked before it is changed
 */
export async function configEditor(level, done = async () => {}, ask = async () => true) {
  let config = await get(api(level, "/config"));
  const element = h("form", { class: "config", novalidate: true, on: { submit: save } });
  const shared = level === "default";
  let rows = new Map();

  function show() {
    rows = new Map(Object.keys(KEYS).map((key) => [key, row(key, config, shared)]));
    const heads = ["key", shared ? "builtIn" : "inherited", shared ? "shared" : "own", "effective"];
    const table = h(
      "table",
      { class: "list config-table" },
      h("caption", { class: "unseen" }, t("orders.config")),
      h("thead", {}, h("tr", {}, heads.map((name) => h("th", { scope: "col" }, t(`orders.cfg.${name}`))))),
      h("tbody", {}, [...rows.values()].map((each) => each.element)),
    );
    clear(element, h("p", { class: "quiet" }, t(shared ? "orders.cfg.sharedText" : "orders.cfg.text", { n: config.version })), h("div", { class: "scroller" }, table), trouble, h("div", { class: "form-buttons" }, button));
    changed();
  }

  const trouble = h("div", { class: "form-problem" });
  const button = h("button", { class: "primary" }, t("common.save"));
  element.addEventListener("input", changed);

  /** What is typed, as the API takes it: an empty field sets nothing. */
  function typed() {
    const entries = [...rows].map(([key, { input }]) => [key, value(key, input.value.trim())]);
    return Object.fromEntries(entries.filter(([, each]) => each !== null));
  }

  function changed() {
    const before = Object.fromEntries(Object.entries(config.own).filter(([, each]) => each !== null));
    const now = typed();
    for (const [key, { element: line }] of rows) line.classList.toggle("changed", now[key] !== before[key]);
    button.disabled = !element.querySelector(".changed");
  }

  async function save(event) {
    event.preventDefault();
    showProblem(null);
    if (!(await ask())) return;
    try {
      config = await busy(put(api(level, "/config"), typed()), button);
      show();
      say(t("orders.cfg.saved", { n: config.version }));
      await done();
    } catch (problem) {
      if (problem.name !== "Problem") console.error(problem);
      showProblem(problem);
    }
  }

  function showProblem(problem) {
    for (const { input, fault } of rows.values()) {
      input.removeAttribute("aria-invalid");
      fault.hidden = true;
    }
    clear(trouble);
    if (!problem) return;
    const rest = (problem.errors ?? []).filter((error) => !atField(error));
    const first = element.querySelector("[aria-invalid]");
    if (rest.length || !first) trouble.append(problemBox(Object.assign(Object.create(problem), { errors: rest })));
    first?.focus();
  }

  function atField(error) {
    const found = rows.get((error.path ?? "").split(/[./[]/)[0]);
    if (!found) return false;
    clear(found.fault, markCode(error.message));
    found.fault.hidden = false;
    found.input.setAttribute("aria-invalid", "true");
    return true;
  }

  show();
  return element;
}

function row(key, config, shared) {
  const own = config.own[key];
  const [id, faultId] = [freshId("cfg"), freshId("fault")];
  const input = h("input", { id, name: key, autocomplete: "off", spellcheck: "false", inputmode: KEYS[key] === "text" ? null : "decimal", "aria-describedby": faultId, placeholder: t("orders.cfg.unset"), ".value": own === null ? "" : String(own) });
  const fault = h("small", { class: "fault", id: faultId, hidden: true });
  const name = h("label", { for: id }, h("code", {}, key), h("small", { class: "quiet" }, t(`orders.key.${key}`)));
  const cell = (title, ...children) => h("td", { data: { label: t(`orders.cfg.${title}`) } }, children);
  const element = h(
    "tr",
    {},
    cell("key", name),
    cell(shared ? "builtIn" : "inherited", shown(key, config.inherited[key])),
    cell(shared ? "shared" : "own", h("span", { class: "config-input" }, input, fault)),
    cell("effective", shown(key, config.effective[key])),
  );
  return { element, input, fault };
}

function shown(key, { value: given, origin }) {
  if (given === null) return h("span", { class: "quiet" }, t("orders.none"));
  const unit = { seconds: t("orders.cfg.s"), rate: t("orders.cfg.perS") }[KEYS[key]] ?? "";
  return h("span", { class: "config-value" }, `${given} ${unit}`.trim(), " ", badge(t(`orders.origin.${origin}`), origin === "platform" ? "run" : "off"));
}

/** A number as a number; what is none goes as it is, and the API says what is wrong with it. */
function value(key, text) {
  if (text === "") return null;
  if (KEYS[key] === "text") return text;
  const n = Number(text);
  return Number.isFinite(n) ? n : text;
}
