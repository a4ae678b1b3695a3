// The audit log: every action of a key, newest first, by actor, action and time.

import { address, get } from "../api.js";
import { badge, dataList, day, fold, jsonView, twins, when } from "../components/index.js";
import { h } from "../dom.js";
import { t } from "../i18n.js";
import { HOME, link } from "../navigation.js";
import { projectName } from "../projects.js";
import { session } from "../session.js";
import "../words/audit.js";

const PATH = `${HOME}/audit`;
const PAGE_ROWS = 50;
const GIVEN_SHOWN = 3;
const GIVEN_CHARACTERS = 60;

/** @param {Place} place */
async function auditPage(place) {
  const list = dataList({
    place,
    caption: t("audit.title"),
    filters: [
      { name: "actor", label: t("audit.actor"), hint: t("audit.actorHint"), kind: "text" },
      { name: "action", label: t("audit.action"), hint: t("audit.actionHint"), kind: "text" },
      { name: "happened_after", label: t("audit.from"), kind: "date" },
      { name: "happened_before", label: t("audit.until"), kind: "date" },
    ],
    columns: [
      { title: t("audit.time"), cell: (entry) => when(entry.happened_at) },
      { title: t("audit.actor"), cell: (entry) => only("actor", entry.actor) },
      session.project === null && { title: t("common.project"), cell: (entry) => (entry.project_id ? projectName(entry.project_id) : "–") },
      { title: t("audit.action"), cell: (entry) => only("action", entry.action) },
      { title: t("audit.target"), cell: (entry) => h("code", {}, entry.path) },
      { title: t("audit.who"), cell: (entry) => h("bdi", {}, entry.who ?? "–") },
      { title: t("audit.reason"), cell: (entry) => h("bdi", {}, entry.reason ?? "–") },
      { title: t("audit.given"), cell: renderGiven },
      { title: t("audit.status"), cell: renderStatus },
    ].filter(Boolean),
    request: (filters) => address("/v1/audit", toQuery(filters)),
    load,
    key: (entry) => entry.request_id + entry.happened_at,
    empty: { text: t("audit.empty"), ...twins("/v1/audit") },
  });
  return h("div", {}, h("p", { class: "quiet intro" }, t("audit.intro")), list);
}

/** A value that leads to all actions with it. */
function only(filter, value) {
  return link(`${PATH}?${new URLSearchParams({ [filter]: value })}`, value);
}

/** What the body gave, as far as it is kept: its first fields, and all of them unfolded. */
function renderGiven({ given }) {
  // Name and reason have columns of their own.
  const entries = Object.entries(given ?? {}).filter(([name]) => !["who", "reason"].includes(name));
  if (!entries.length) return "–";
  const first = entries.slice(0, GIVEN_SHOWN).map(([name, value]) => `${name}: ${JSON.stringify(value)}`).join(", ");
  const isWhole = entries.length <= GIVEN_SHOWN && first.length <= GIVEN_CHARACTERS;
  if (isWhole) return h("code", {}, first);
  return fold(h("code", {}, `${first.slice(0, GIVEN_CHARACTERS)}…`), jsonView(Object.fromEntries(entries)));
}

function renderStatus(entry) {
  if (entry.status === null) return h("span", { title: t("audit.unknownHint") }, badge(t("audit.unknown"), "wait"));
  // Routes of tasks refuse with 200.
  const answer = badge(String(entry.status), entry.status < 400 && !entry.code ? "ok" : "bad");
  return entry.code ? h("span", { class: "two-lines" }, answer, h("small", {}, h("code", {}, entry.code))) : answer;
}

function toQuery({ happened_after: from, happened_before: until, ...plain }) {
  return { ...plain, happened_after: day(from), happened_before: day(until, 1) };
}

async function load(filters, cursor) {
  const page = await get("/v1/audit", { ...toQuery(filters), limit: PAGE_ROWS, cursor });
  return { items: page.items, next: page.next_cursor };
}

export const routes = [{ path: PATH, title: () => t("audit.title"), page: auditPage }];
