// The status panel: the cycle, which can be paused and resumed, and the numbers of unfinished messages by topic and state.

import { get, patch, post } from "../../api.js";
import { ago, badge, number, problemBox, say, stackBar } from "../../components/index.js";
import { clear, h } from "../../dom.js";
import { t } from "../../i18n.js";
import { poll, latestOnly } from "../../polling.js";
import { link } from "../../navigation.js";
import { workflowLink } from "../../session.js";
import { API, MODULES, OPEN_STATES, BASE_PATH, TOPICS, attempt, pauseText, signFirst, tone, topicWord } from "./shared.js";

const EVERY_MS = 3000;

/**
 * The panel above the log; `element.look()` loads it again.
 *
 * @param {Place} place
 * @param {function(): void} changed - called when the cycle was paused or resumed
 */
export function statusPanel(place, changed) {
  const cycle = h("section", { class: "card cycle", "aria-label": t("addresses.cycle") });
  const open = h("section", { class: "card figures", "aria-label": t("addresses.figures") });
  const element = h("div", { class: "status-panel" }, cycle, open);
  element.look = latestOnly(
    () => Promise.all([get(`${API}/cycle`), get(`${API}/figures`), get(`${API}/config`)]),
    ([running, figures, { effective }]) => {
      redraw(cycle, running, () => cycleCard(running, element, changed));
      redraw(open, [stable(figures), effective.modules, running.pauses], () => [
        ...figuresCard(figures),
        moduleSwitches(effective.modules, element),
        running.pauses.filter((pause) => pause.module).map((pause) => h("p", { class: "quiet" }, pauseText(pause))),
      ]);
    },
    (problem) => redraw(cycle, problem, () => problemBox(problem)),
  );
  element.look();
  poll(place, element.look, EVERY_MS);
  return element;
}

/** Draw only what changed, so that the focus stays where it is. */
function redraw(card, value, draw) {
  const json = JSON.stringify(value);
  if (card.drawn === json) return;
  card.drawn = json;
  clear(card, draw());
}

/** Figures without the ages, which change by themselves. */
function stable({ at, messages, ...rest }) {
  return { ...rest, messages: messages.map(({ oldest_seconds: age, ...each }) => each) };
}

function cycleCard(cycle, panel, changed) {
  const runs = cycle.workflow_ids.length > 0;
  const state = runs ? badge(t("addresses.cycleRuns"), "run") : badge(t(`addresses.cycle${cycle.is_paused ? "Paused" : "Idle"}`), cycle.is_paused ? "wait" : "ok");
  return [
    h("div", { class: "card-head" }, h("h2", {}, t("addresses.cycle")), state, cycle.is_paused && runs ? badge(t("addresses.cycleEnds"), "wait") : null, steer(cycle, panel, changed)),
    sentence(cycle),
    cycle.progress ? progressOf(cycle.progress) : null,
    cycle.note ? h("p", { class: "quiet" }, t(`addresses.${cycle.is_paused ? "pausedBy" : "resumedBy"}`, { note: cycle.note })) : null,
    runs ? h("p", { class: "quiet" }, workflowLink(cycle.workflow_ids[0], t("addresses.inTemporal"))) : null,
  ];
}

function sentence(cycle) {
  if (cycle.progress) return h("p", {}, t(`addresses.phase.${cycle.progress.phase}`), " ", h("span", { class: "quiet" }, t("addresses.since"), " ", ago(cycle.progress.started_at)));
  if (cycle.workflow_ids.length) return h("p", {}, t("addresses.noWorker"));
  if (cycle.is_paused) return h("p", {}, t("addresses.pausedText"));
  if (!cycle.next_runs.length) return h("p", {}, t("addresses.firstCycle"));
  return h("p", {}, t("addresses.nextCycle"), " ", ago(cycle.next_runs[0]));
}

function progressOf({ cycles, done, failed, loaded, superseded }) {
  const left = Math.max(0, loaded - done - failed - superseded);
  const parts = [
    { label: t("addresses.state.done"), n: done, tone: "ok" },
    { label: t("addresses.state.superseded"), n: superseded, tone: "off" },
    { label: t("addresses.state.failed"), n: failed, tone: "bad" },
    { label: t("addresses.underWay"), n: left, tone: "run" },
  ];
  return h("div", {}, stackBar(parts), h("p", { class: "quiet" }, t("addresses.loadedIn", { n: loaded, cycles: cycles + 1 })));
}

function steer(cycle, panel, changed) {
  const verb = cycle.is_paused ? "resume" : "pause";
  const click = async () => {
    const signed = await signFirst({ title: t(`addresses.${verb}Title`), text: t(`addresses.${verb}Text`), action: t(`addresses.${verb}`) });
    if (!signed) return;
    const now = await attempt(() => post(`${API}/cycle/${verb}`, signed));
    if (now) say(t(`addresses.${verb}Done`));
    await panel.look();
    changed();
  };
  return h("button", { type: "button", on: { click } }, t(`addresses.${verb}`));
}

/** Which modules are paused, with the button that pauses or resumes each. */
function moduleSwitches(settings, panel) {
  const button = (module) => {
    const { paused } = settings[module];
    const [verb, name] = [paused ? "resumeModule" : "pauseModule", module.toUpperCase()];
    const click = async () => {
      const signed = await signFirst({ title: t(`addresses.${verb}.title`, { module: name }), text: t(`addresses.${verb}.text`), action: t(`addresses.${verb}.action`) });
      if (!signed) return;
      const options = { modules: { [module]: { paused: !paused } } };
      if (await attempt(() => patch(`${API}/config`, { ...signed, options }))) say(t(`addresses.${verb}.done`, { module: name }));
      await panel.look();
    };
    return h("span", {}, name, " ", paused ? badge(t("addresses.modulePaused"), "wait") : null, " ", h("button", { type: "button", "aria-label": t(`addresses.${verb}.title`, { module: name }), on: { click } }, t(`addresses.${verb}.action`)));
  };
  return h("p", { class: "beside" }, h("span", { class: "quiet" }, t("addresses.calls")), MODULES.map(button));
}

function figuresCard(figures) {
  const of = new Map(figures.messages.map((each) => [`${each.topic} ${each.state}`, each]));
  const rows = TOPICS.map((topic) =>
    h("tr", {}, h("th", { scope: "row" }, topicWord(topic)), OPEN_STATES.map((state) => h("td", { class: "numeric" }, cell(of.get(`${topic} ${state}`))))),
  );
  const heads = OPEN_STATES.map((state) => h("th", { scope: "col", class: "numeric" }, h("i", { class: `dot tone-${tone(state)}` }), t(`addresses.state.${state}`)));
  const failed = MODULES.map((module) => [module, figures.messages.reduce((sum, each) => sum + (each.failed_in[module] ?? 0), 0)]);
  return [
    h("h2", {}, t("addresses.figures")),
    h("div", { class: "matrix-box" }, h("table", { class: "matrix" }, h("caption", { class: "unseen" }, t("addresses.figures")), h("thead", {}, h("tr", {}, h("td"), heads)), h("tbody", {}, rows))),
    h("p", { class: "beside" }, h("span", { class: "quiet" }, t("addresses.failedIn")), failed.map(([module, n]) => counted(module.toUpperCase(), n, `?module=${module}`))),
    h(
      "p",
      { class: "beside" },
      counted(t("addresses.deletes"), figures.logical_deletes, "/logical-deletes"),
      counted(t("addresses.removable"), figures.removable, "/logical-deletes?which=removable"),
      counted(t("addresses.quarantine"), figures.quarantined, "/quarantine"),
    ),
  ];
}

function cell(figure) {
  if (!figure?.messages) return h("span", { class: "quiet" }, "0");
  return [
    link(`${BASE_PATH}?topic=${figure.topic}&state=${figure.state}`, number(figure.messages)),
    h("small", { class: "quiet" }, ago(figure.oldest_at)),
  ];
}

function counted(word, n, where) {
  return h("span", { class: "counted" }, n ? link(BASE_PATH + where, word, " ", h("b", {}, number(n))) : h("span", { class: "quiet" }, word, " 0"));
}
