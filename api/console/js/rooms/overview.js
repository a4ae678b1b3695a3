// The overview: what needs a look, how the parts do, and what every room has to do, as it happens.

import { get, watch } from "../api.js";
import { badge, duration } from "../components/index.js";
import { clear, freshId, h } from "../dom.js";
import { has, t } from "../i18n.js";
import { ROOMS, link } from "../navigation.js";
import { session } from "../session.js";
import { stylesheet } from "../stylesheet.js";
import { roomCard } from "./overview/card.js";
import { queueTable } from "./overview/queues.js";
import "../words/overview.js";

const STILL_MS = 10_000;

const styled = stylesheet("overview");

export const routes = [{ path: "/console", title: () => t("common.room.overview"), page: overview }];

async function overview(place) {
  const first = await get("/v1/overview");
  await styled;
  const cards = new Map(first.rooms.map((room) => [room.room, roomCard(room.room)]));
  const concerns = h("section", { class: "attention", "aria-label": t("common.room.overview") });
  const parts = h("ul", { class: "parts" });
  const queues = queueTable();
  const live = h("span", { class: "live" });
  const show = (seen) => {
    showConcerns(concerns, seen);
    clear(parts, seen.parts.map(part));
    for (const room of seen.rooms) cards.get(room.room)?.show(room, Date.parse(seen.at));
    queues.show(seen.queues);
    pulse(live, true);
  };
  show(first);
  let timer = setTimeout(() => pulse(live, false), STILL_MS);
  const hear = (seen) => {
    clearTimeout(timer);
    timer = setTimeout(() => pulse(live, false), STILL_MS);
    show(seen);
  };
  const stop = watch("/v1/overview/events", {}, { overview: hear });
  place.onLeave(() => (stop(), clearTimeout(timer)));
  place.actions(live);
  return h(
    "div",
    { class: "overview" },
    concerns,
    h("h2", { class: "unseen" }, t("overview.rooms")),
    h("div", { class: "room-cards" }, [...cards.values()].map((card) => card.element), partsCard(parts)),
    session.isAdmin ? queues.element : null,
  );
}

function pulse(live, isNew) {
  const state = isNew ? "live" : "still";
  if (live.dataset.state === state) return;
  live.dataset.state = state;
  clear(live, t(`overview.${state}`));
}

/** What needs a look, each with the way there. It is read out only when it changes. */
function showConcerns(element, seen) {
  const down = seen.parts.filter((each) => !each.ok).map((each) => h("li", {}, badge("!", "bad"), " ", t("overview.partDown", { part: partName(each.name) })));
  const troubles = seen.rooms.flatMap((room) => room.concerns.map((concern) => [room.room, concern]));
  const items = [...down, ...troubles.map(([room, concern]) => concernItem(room, concern))];
  const said = JSON.stringify([down.length, troubles]);
  if (element.dataset.said === said) return;
  element.dataset.said = said;
  const sentence = items.length ? t("overview.look", { n: items.length }) : t("overview.well");
  element.className = `attention ${items.length ? "some" : "none"}`;
  clear(element, h("p", { role: "status" }, h("i", { class: "dot" }), sentence), items.length ? h("ul", {}, items) : null);
}

function concernItem(room, { trouble, count }) {
  const key = `overview.trouble.${trouble}`;
  const words = has(key) ? t(key, { n: count }) : t("overview.otherTrouble", { name: trouble, n: count });
  const { href } = ROOMS.find((each) => each.name === room);
  return h("li", {}, link(href, t(`common.room.${room}`)), h("span", {}, words));
}

function partsCard(parts) {
  const titleId = freshId("parts");
  return h("article", { class: "card room-card", "aria-labelledby": titleId }, h("header", {}, h("h3", { id: titleId }, t("overview.parts"))), parts);
}

function part({ name, ok, milliseconds }) {
  const told = ok ? t("overview.answers", { time: duration(milliseconds / 1000) }) : t("overview.silent");
  return h("li", { class: ok ? "ok" : "bad" }, h("i", { class: `dot tone-${ok ? "ok" : "bad"}` }), h("b", {}, partName(name)), h("span", { class: "quiet" }, told));
}

function partName(name) {
  return has(`overview.part.${name}`) ? t(`overview.part.${name}`) : name;
}
