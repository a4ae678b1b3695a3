// The list of downloads: filters, pages, and what runs moving by itself.

import { address, get, watch } from "../../api.js";
import { ago, dataList, day, duration, twins } from "../../components/index.js";
import { clear, h } from "../../dom.js";
import { t } from "../../i18n.js";
import { projectName } from "../../projects.js";
import { session } from "../../session.js";
import { quotaStrip } from "./quotas.js";
import { projectQuery } from "./scope.js";
import { STATES, TYPES, fileName, isFinal, resultLine, stateBadge, typeWords } from "./status.js";
import { actOnMany } from "./actions.js";

const PAGE_ROWS = 50;
const WATCHED_MS = 30000;
const UNWATCHED_MS = 5000;
const GATHER_MS = 400;
const SOURCE = "https://example.com/orders";

/** The page. @param {Place} place */
export async function listPage(place) {
  const isOne = session.project !== null;
  const newest = new Map();
  const list = dataList({
    place,
    caption: t("common.section.downloads"),
    filters: filters(),
    columns: columns(newest, isOne),
    load: (filters, cursor) => load(filters, cursor),
    request: (filters) => address("/v1/downloads", toQuery(filters)),
    key: (download) => download.task_id,
    open: (download) => `/console/downloads/${download.task_id}${projectQuery(download.project_id)}`,
    empty: empty(),
    // A deed is for a project: who sees all of them chooses one first.
    select: isOne,
    actions: isOne ? actions() : [],
    every: isOne ? WATCHED_MS : UNWATCHED_MS,
  });
  const begin = h("a", { href: "/console/downloads/new", class: "as-button primary" }, t("downloads.newAction"));
  place.actions(begin);
  if (!isOne) return h("div", {}, h("p", { class: "quiet" }, t("downloads.everyProject")), list);
  follow(place, list, newest);
  return h("div", {}, quotaStrip(place), list);
}

function actions() {
  return [
    { label: t("downloads.many.cancel.name"), danger: true, run: (downloads) => actOnMany("cancel", downloads) },
    { label: t("downloads.many.retry.name"), run: (downloads) => actOnMany("retry", downloads) },
  ];
}

function filters() {
  const options = (values, words) => values.map((value) => ({ value, label: words(value) }));
  return [
    { name: "file_name", label: t("downloads.fileName"), kind: "text" },
    { name: "state", label: t("downloads.stateLabel"), kind: "select", options: options(STATES, (state) => t(`downloads.state.${state}`)) },
    { name: "cause", label: t("downloads.cause"), kind: "text" },
    { name: "type", label: t("downloads.typeLabel"), kind: "select", options: options(TYPES, typeWords) },
    { name: "operator_id", label: t("downloads.operator"), kind: "text" },
    { name: "source_host", label: t("downloads.sourceHost"), kind: "text" },
    { name: "task_id", label: t("downloads.id"), kind: "text" },
    { name: "created_after", label: t("downloads.from"), kind: "date" },
    { name: "created_before", label: t("downloads.until"), kind: "date" },
  ];
}

function columns(newest, isOne) {
  const line = (download) => {
    const element = h("div", { class: "result-line", data: { live: download.task_id } });
    clear(element, resultLine({ ...download, ...running(newest.get(download.task_id), download) }));
    return element;
  };
  return [
    { title: t("downloads.fileName"), cell: (download) => [fileName(download.file_name)] },
    !isOne && { title: t("common.project"), cell: (download) => projectName(download.project_id) },
    { title: t("downloads.stateLabel"), cell: (download) => h("span", { data: { liveState: download.task_id } }, stateBadge(download.state)) },
    { title: t("downloads.result"), cell: line },
    { title: t("downloads.created"), cell: (download) => ago(download.created_at) },
    { title: t("downloads.took"), cell: took, numeric: true },
    { title: t("downloads.operator"), cell: (download) => h("bdi", {}, download.operator_id ?? "–") },
  ].filter(Boolean);
}

/** What a stream said of it, as long as the list does not know better. */
function running(latest, listed) {
  return latest && !isFinal(latest) && !isFinal(listed) ? latest : null;
}

function took(download) {
  const { started_at: from, finished_at: until } = download;
  return from && until ? duration((new Date(until) - new Date(from)) / 1000) : "–";
}

function toQuery({ created_after: from, created_before: until, ...plain }) {
  return { ...plain, created_after: day(from), created_before: day(until, 1) };
}

async function load(filters, cursor) {
  const page = await get("/v1/downloads", { ...toQuery(filters), limit: PAGE_ROWS, cursor });
  return { items: page.items, next: page.next_cursor };
}

/** Watch the project's downloads: update the figures of their rows, and reload the list when one begins or ends. */
function follow(place, list, newest) {
  let timer = 0;
  const soon = () => {
    clearTimeout(timer);
    timer = setTimeout(() => list.reload(), GATHER_MS);
  };
  const stop = watch("/v1/downloads/events", {}, {
    message: (download) => {
      const before = newest.get(download.task_id);
      if (before?.state !== download.state) soon();
      if (isFinal(download)) {
        newest.delete(download.task_id);
        return;
      }
      newest.set(download.task_id, download);
      for (const element of list.querySelectorAll(`[data-live="${CSS.escape(download.task_id)}"]`)) clear(element, resultLine(download));
      for (const element of list.querySelectorAll(`[data-live-state="${CSS.escape(download.task_id)}"]`)) clear(element, stateBadge(download.state));
    },
  });
  place.onLeave(() => {
    clearTimeout(timer);
    stop();
  });
}

function empty() {
  return {
    text: t("downloads.empty"),
    curl: twins("/v1/downloads", { method: "POST", body: JSON.stringify({ source_url: SOURCE, type: "csv" }) }).curl,
    command: `haulage export ${SOURCE} --type csv`,
  };
}
