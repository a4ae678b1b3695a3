// The overview: concerns, the health of the components, and the workload of every system, live.

import { get, watch } from "../api.js";
import { ago, badge, duration, number } from "../components/index.js";
import { clear, freshId, h, markCode } from "../dom.js";
import { has, t } from "../i18n.js";
import { SECTIONS, link } from "../navigation.js";
import { session } from "../session.js";
import { stylesheet } from "../stylesheet.js";
import { systemCard } from "./overview/card.js";
import { queueTable } from "./overview/queues.js";
import { quotaTable } from "./overview/quotas.js";
import "../words/causes.js";
import "../words/overview.js";

const STALE_MS = 10_000;

const styled = stylesheet("overview");

export const routes = [{ path: "/console", title: () => t("common.section.overview"), page: overview }];

async function overview(place) {
  const first = await get("/v1/overview");
  await styled;
  const visible = SECTIONS.filter((section) => section.name in UNITS && (session.isAdmin || !section.admin));
  const cards = new Map(visible.map(({ name }) => [name, systemCard(name)]));
  const concerns = h("section", { class: "attention", "aria-label": t("common.section.overview") });
  const parts = h("ul", { class: "parts" });
  const queues = queueTable();
  const live = h("span", { class: "live" });
  const show = (seen) => {
    showConcerns(concerns, seen);
    clear(parts, seen.components.map(part));
    const workloads = new Map(seen.systems.map((workload) => [workload.system, workload]));
    for (const [system, card] of cards) card.show(workloads.get(system), Date.parse(seen.at));
    queues.show(seen.queues);
    pulse(live, true);
  };
  show(first);
  let timer = setTimeout(() => pulse(live, false), STALE_MS);
  const update = (seen) => {
    clearTimeout(timer);
    timer = setTimeout(() => pulse(live, false), STALE_MS);
    show(seen);
  };
  const stop = watch("/v1/overview/events", {}, { overview: update });
  place.onLeave(() => (stop(), clearTimeout(timer)));
  place.actions(live);
  return h(
    "div",
    { class: "overview" },
    concerns,
    h("h2", { class: "unseen" }, t("overview.systems")),
    h("div", { class: "system-cards" }, [...cards.values()].map((card) => card.element), partsCard(parts)),
    session.project ? quotaTable(place) : null,
    session.isAdmin ? queues.element : null,
  );
}

function pulse(live, isNew) {
  const state = isNew ? "live" : "still";
  if (live.dataset.state === state) return;
  live.dataset.state = state;
  clear(live, t(`overview.${state}`));
}

/** Show what a person should look at, with links. It is read out only when it changes. */
function showConcerns(element, seen) {
  const down = seen.components.filter((each) => !each.ok).map((each) => h("li", {}, badge("!", "bad"), " ", t("overview.partDown", { part: partName(each.name) }), " ", ago(each.down_since), ": ", h("span", { dir: "auto" }, markCode(each.problem))));
  const unread = down.length && !seen.systems.length ? [h("li", {}, t("overview.unread"))] : [];
  const troubles = seen.systems.flatMap((workload) => workload.concerns.map((concern) => [workload.system, concern]));
  const ages = new Map(seen.systems.map((workload) => [workload.system, workload.oldest_waiting_seconds]));
  const items = [...down, ...unread, ...troubles.map(([system, concern]) => concernItem(system, concern, ages.get(system)))];
  const said = JSON.stringify([seen.components.map((each) => each.down_since), unread.length, troubles]);
  if (element.dataset.said === said) return;
  element.dataset.said = said;
  const n = items.length - unread.length;
  const sentence = n ? t("overview.look", { n }) : t("overview.well");
  element.className = `attention ${n ? "some" : "none"}`;
  clear(element, h("p", { role: "status" }, h("i", { class: "dot" }), sentence), n ? h("ul", {}, items) : null);
}

function concernItem(system, { kind, count, largest_groups: groups }, age) {
  const key = `overview.trouble.${kind}`;
  const values = { n: count, unit: t(`overview.unit.${UNITS[system]}`, { n: count }), time: duration(age ?? 0) };
  const words = has(key) ? t(key, values) : t("overview.otherTrouble", { name: kind, n: count });
  const { href } = SECTIONS.find((each) => each.name === system);
  const whole = link(wayTo(system, kind, {}) ?? href, t(`common.section.${system}`));
  return h("li", {}, whole, h("span", {}, words, groups.map((group, index) => [index ? "; " : ": ", groupOf(system, kind, group, count)])));
}

/** A group of a concern: its platform, type or queue with the way there, the cause, and how many of several. */
function groupOf(system, kind, group, count) {
  const cause = causeWords(system, group.cause);
  const words = [group.subject, group.subject && group.cause ? " · " : "", markCode(cause)];
  const way = wayTo(system, kind, group);
  const shown = group.subject || group.cause ? words : t("overview.unknownCause");
  // What programs call a cause is shown where the pointer rests.
  const title = cause === group.cause ? null : group.cause;
  return [way ? h("span", { title }, link(way, shown)) : h("bdi", { title }, shown), group.count < count ? ` (${number(group.count)})` : null];
}

/** A cause in words: a code has them here, anything else is a sentence already. */
function causeWords(system, cause) {
  if (system === "transfers") return has(`transfers.reason.${cause}`) ? t(`transfers.reason.${cause}`) : cause;
  return has(`causes.${cause}`) ? t(`causes.${cause}`) : cause;
}

const UNITS = { downloads: "downloads", transfers: "targets", orders: "slices", addresses: "messages", tasks: "tasks" };
const TABS = { failed: "tab=slices&state=failed", stale: "tab=slices&stale=true", sweeps_failed: "tab=slices&sweep=failed", backfill_failed: "tab=backfills" };

/** The page where a concern, or a group of it, is dealt with; null where it is a system, or a queue of this page. */
function wayTo(system, kind, { subject = "", cause = "" }) {
  if (["no_worker", "queue_waits", "system_paused", "module_paused"].includes(kind)) return null;
  const { href } = SECTIONS.find((each) => each.name === system);
  if (system === "orders") return subject && session.isAdmin ? `${href}/platforms/${encodeURIComponent(subject)}${TABS[kind] ? `?${TABS[kind]}` : ""}` : null;
  if (system === "tasks") return subject ? `${href}/types/${encodeURIComponent(subject)}` : null;
  if (kind === "quarantined") return `${href}/quarantine`;
  const filters = { downloads: { state: kind === "waiting" ? "pending" : "failed", cause }, transfers: { reason: kind === "failed" ? cause : "" }, addresses: { state: kind, module: subject } }[system];
  if (!filters) return href;
  return `${href}?${new URLSearchParams(Object.entries(filters).filter(([, value]) => value))}`;
}

function partsCard(parts) {
  const titleId = freshId("parts");
  return h("article", { class: "card system-card", "aria-labelledby": titleId }, h("header", {}, h("h3", { id: titleId }, t("overview.parts"))), parts);
}

function part({ name, ok, milliseconds, down_since: since }) {
  const text = ok ? t("overview.answers", { time: duration(milliseconds / 1000) }) : [t("overview.silent"), " ", ago(since)];
  return h("li", { class: ok ? "ok" : "bad" }, h("i", { class: `dot tone-${ok ? "ok" : "bad"}` }), h("b", {}, partName(name)), h("span", { class: "quiet" }, text));
}

function partName(name) {
  return has(`overview.part.${name}`) ? t(`overview.part.${name}`) : name;
}
