// The attempts of a download: its steps, how often each was tried and what went wrong, behind a fold.

import { get } from "../../api.js";
import { badge, duration, fold, problemBox, when } from "../../components/index.js";
import { clear, h, markCode } from "../../dom.js";
import { has, t } from "../../i18n.js";

const STEPS = 50;
const TONES = { running: "run", waiting: "wait", succeeded: "ok", failed: "bad", cancelled: "off" };

/** The fold; it asks when it is opened. @param {string} path - of the download in the API */
export function attemptsFold(path) {
  const inside = h("div", { class: "attempts" });
  const again = h("button", { type: "button", on: { click: () => fill(inside, path) } }, t("downloads.attempts.reload"));
  return fold(t("downloads.attempts.fold"), async () => {
    await fill(inside, path);
    return [inside, h("div", {}, again)];
  });
}

async function fill(inside, path) {
  try {
    const { items: steps, more } = await get(`${path}/attempts`, { limit: STEPS });
    clear(inside, steps.length ? table(steps) : h("p", { class: "quiet" }, t("downloads.attempts.none")), more ? h("p", { class: "quiet" }, t("downloads.attempts.more", { n: steps.length })) : null);
  } catch (problem) {
    clear(inside, problemBox(problem));
  }
}

function table(steps) {
  const heads = ["step", "state", "count", "began", "took", "why"].map((name) => h("th", { scope: "col" }, t(`downloads.attempts.${name}`)));
  return h(
    "div",
    { class: "scroller", tabindex: "0", role: "region", "aria-label": t("downloads.attempts.title") },
    h("table", { class: "list" }, h("caption", { class: "unseen" }, t("downloads.attempts.title")), h("thead", {}, h("tr", {}, heads)), h("tbody", {}, steps.map(row))),
  );
}

function row(step) {
  const cell = (name, ...children) => h("td", { data: { label: t(`downloads.attempts.${name}`) } }, children);
  const seconds = step.ended_at ? (new Date(step.ended_at) - new Date(step.scheduled_at)) / 1000 : null;
  return h(
    "tr",
    {},
    cell("step", h("div", {}, stepWords(step.step), step.summary ? h("div", { class: "quiet" }, step.summary) : null)),
    cell("state", badge(t(`downloads.attempts.states.${step.state}`), TONES[step.state])),
    cell("count", step.attempts),
    cell("began", when(step.scheduled_at)),
    cell("took", seconds === null ? "–" : duration(seconds)),
    cell("why", step.fault ? h("span", { dir: "auto" }, markCode(`${step.fault.message} ${step.fault.hint}`.trim())) : "–", step.next_attempt_at ? [" ", t("downloads.attempts.next"), " ", when(step.next_attempt_at)] : null),
  );
}

function stepWords(step) {
  return has(`downloads.step.${step}`) ? t(`downloads.step.${step}`) : step;
}
