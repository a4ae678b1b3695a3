// The card of a system: what runs, waits and failed, a chart of the last minutes, the oldest, and whether it is paused.

import { post } from "../../api.js";
import { ago, badge, busy, compact, duration, lineChart, number, say, signFirst } from "../../components/index.js";
import { clear, freshId, h } from "../../dom.js";
import { t } from "../../i18n.js";
import { icon } from "../../icons.js";
import { SECTIONS, link } from "../../navigation.js";
import { session } from "../../session.js";

const SPAN_MS = 5 * 60_000;
const KINDS = { running: "run", waiting: "wait", failed: "bad" };

/** Past figures by project and system, so that the chart is kept when the page is opened again. */
const histories = new Map();

/** Create a card; `show(workload, at)` shows new figures, or keeps the last ones, and says so, where there are none. */
export function systemCard(name) {
  const { href } = SECTIONS.find((section) => section.name === name);
  const titleId = freshId("system");
  const figures = new Map(Object.entries(KINDS).map(([kind, tone]) => [kind, figure(kind, tone)]));
  const history = historyOf(name);
  const chart = lineChart({ series: [], label: t("overview.chart", { system: t(`common.section.${name}`) }), span: SPAN_MS });
  const [oldest, outside, paused] = [h("p", { class: "oldest quiet" }), h("span", {}), h("div", { class: "paused" })];
  let [drawn, shownAt] = [null, null];
  const element = h(
    "article",
    { class: "card system-card", "aria-labelledby": titleId },
    h("header", {}, h("h3", { id: titleId }, link(href, icon(name), t(`common.section.${name}`))), outside),
    h("dl", { class: "trio" }, [...figures.values()].map((each) => each.element)),
    chart,
    oldest,
    paused,
  );
  const show = (workload, at) => {
    if (!workload) {
      if (!element.dataset.unread) clear(oldest, shownAt ? [t("overview.oldFigures"), " ", ago(shownAt)] : t("overview.noFigures"));
      element.dataset.unread = "true";
      return;
    }
    delete element.dataset.unread;
    shownAt = at;
    for (const each of figures.values()) each.show(workload, at);
    // The clocks of two API processes may differ a little.
    if (!(history.at(-1)?.[0] >= at)) history.push([at, workload.running, workload.waiting]);
    while (history.length && history[0][0] < at - SPAN_MS) history.shift();
    chart.update(["running", "waiting"].map((kind, index) => ({ label: t(`overview.${kind}`), tone: KINDS[kind], points: history.map((seen) => [seen[0], seen[index + 1]]) })));
    set(oldest, age(workload));
    const state = JSON.stringify(workload.paused);
    if (state !== drawn) {
      drawn = state;
      clear(paused, pauseLine(name, workload.paused));
    }
    if (workload.engine_url && !outside.hasChildNodes()) {
      clear(outside, h("a", { href: workload.engine_url, class: "outside", target: "_blank", rel: "noreferrer" }, t("overview.inEngine")));
    }
  };
  return { element, show };
}

/** By whom it is paused, since when and why, and for the admin the button that pauses or resumes it. */
function pauseLine(name, pause) {
  const said = pause ? h("p", {}, badge(t("overview.paused"), "wait"), " ", t("overview.pausedBy", { who: pause.who, reason: pause.reason }), " ", ago(pause.paused_at)) : null;
  if (!session.isAdmin) return said;
  const verb = pause ? "resume" : "pause";
  const system = t(`common.section.${name}`);
  const click = async (event) => {
    const button = event.currentTarget;
    const signed = await signFirst({ title: t(`overview.${verb}Title`, { system }), text: t(`overview.${verb}Text.${name}`), action: t(`overview.${verb}`), danger: verb === "pause" });
    if (!signed) return;
    try {
      await busy(post(`/v1/systems/${name}/${verb}`, signed), button);
      say(t(`overview.${verb}Done`, { system }));
    } catch (problem) {
      say(problem.message);
    }
  };
  return [said, h("button", { type: "button", on: { click } }, t(`overview.${verb}`))];
}

function figure(kind, tone) {
  const [value, since] = [h("dd", {}), h("small", { class: "quiet" })];
  const element = h("div", { class: `figure ${kind}` }, h("dt", {}, h("i", { class: `dot tone-${tone}` }), t(`overview.${kind}`), " ", since), value);
  return {
    element,
    show(workload, at) {
      set(value, compact(workload[kind]));
      value.title = number(workload[kind]);
      element.classList.toggle("zero", !workload[kind]);
      if (kind === "failed" && workload.failed_since) set(since, t("overview.within", { time: duration((at - Date.parse(workload.failed_since)) / 1000) }));
    },
  };
}

function age(workload) {
  const texts = ["waiting", "running"]
    .filter((kind) => workload[`oldest_${kind}_seconds`] !== null)
    .map((kind) => t(`overview.oldest.${kind}`, { time: duration(workload[`oldest_${kind}_seconds`]) }));
  return texts.join(" · ") || (workload.running + workload.waiting ? "" : t("overview.oldest.none"));
}

function historyOf(name) {
  const key = `${session.project} ${name}`;
  if (!histories.has(key)) histories.set(key, []);
  return histories.get(key);
}

function set(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
