// One room of the overview: what runs, waits and failed, how that moved in the last minutes, and since when.

import { compact, duration, lineChart, number } from "../../components/index.js";
import { clear, freshId, h } from "../../dom.js";
import { t } from "../../i18n.js";
import { icon } from "../../icons.js";
import { ROOMS, link } from "../../navigation.js";
import { session } from "../../session.js";

const SPAN_MS = 5 * 60_000;
const KINDS = { running: "run", waiting: "wait", failed: "bad" };

/** What was seen while the console is open, by project and room, so that another visit finds its chart again. */
const histories = new Map();

/** A card; `show(figures, at)` puts new figures in. */
export function roomCard(name) {
  const { href } = ROOMS.find((room) => room.name === name);
  const titleId = freshId("room");
  const figures = new Map(Object.entries(KINDS).map(([kind, tone]) => [kind, figure(kind, tone)]));
  const history = historyOf(name);
  const chart = lineChart({ series: [], label: t("overview.chart", { room: t(`common.room.${name}`) }), span: SPAN_MS });
  const [oldest, outside] = [h("p", { class: "oldest quiet" }), h("span", {})];
  const element = h(
    "article",
    { class: "card room-card", "aria-labelledby": titleId },
    h("header", {}, h("h3", { id: titleId }, link(href, icon(name), t(`common.room.${name}`))), outside),
    h("dl", { class: "trio" }, [...figures.values()].map((each) => each.element)),
    chart,
    oldest,
  );
  const show = (room, at) => {
    for (const each of figures.values()) each.show(room, at);
    // Two processes of the API may disagree by a moment.
    if (!(history.at(-1)?.[0] >= at)) history.push([at, room.running, room.waiting]);
    while (history.length && history[0][0] < at - SPAN_MS) history.shift();
    chart.update(["running", "waiting"].map((kind, index) => ({ label: t(`overview.${kind}`), tone: KINDS[kind], points: history.map((seen) => [seen[0], seen[index + 1]]) })));
    set(oldest, age(room));
    if (room.engine_url && !outside.hasChildNodes()) {
      clear(outside, h("a", { href: room.engine_url, class: "outside", target: "_blank", rel: "noreferrer" }, t("overview.inEngine")));
    }
  };
  return { element, show };
}

function figure(kind, tone) {
  const [value, since] = [h("dd", {}), h("small", { class: "quiet" })];
  const element = h("div", { class: `figure ${kind}` }, h("dt", {}, h("i", { class: `dot tone-${tone}` }), t(`overview.${kind}`), " ", since), value);
  return {
    element,
    show(room, at) {
      set(value, compact(room[kind]));
      value.title = number(room[kind]);
      element.classList.toggle("zero", !room[kind]);
      if (kind === "failed" && room.failed_since) set(since, t("overview.within", { time: duration((at - Date.parse(room.failed_since)) / 1000) }));
    },
  };
}

function age(room) {
  const told = ["waiting", "running"]
    .filter((kind) => room[`oldest_${kind}_seconds`] !== null)
    .map((kind) => t(`overview.oldest.${kind}`, { time: duration(room[`oldest_${kind}_seconds`]) }));
  return told.join(" · ") || (room.running + room.waiting ? "" : t("overview.oldest.none"));
}

function historyOf(name) {
  const key = `${session.project} ${name}`;
  if (!histories.has(key)) histories.set(key, []);
  return histories.get(key);
}

function set(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
