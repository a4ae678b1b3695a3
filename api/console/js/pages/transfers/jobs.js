// The list of jobs, newest window first, each with a bar of target states; above it the last windows as columns.

import { address, get } from "../../api.js";
import { ago, dataList, number, twins } from "../../components/index.js";
import { clear, h, svg } from "../../dom.js";
import { locale, t } from "../../i18n.js";
import { go } from "../../navigation.js";
import { REASONS, STATES, fileCell, href, isFinal, stateBadge, statesBar, tone, total } from "./states.js";

const EVERY_MS = 2000;
const PAGE = 25;
const WINDOWS = 40;
const HEIGHT = 64;

/** @param {Place} place */
export async function jobsPage(place) {
  place.actions(h("a", { href: "/console/transfers/new", class: "as-button primary" }, t("transfers.new")));
  const windows = h("figure", { class: "windows", hidden: true });
  const load = async (filters, cursor) => {
    const page = await get("/v1/transfers/jobs", { ...buildQuery(filters), limit: PAGE, cursor });
    return { items: page.items, next: page.next_cursor };
  };
  const list = dataList({
    place,
    caption: t("transfers.jobs"),
    filters: [
      { name: "search", label: t("transfers.search"), kind: "text" },
      {
        name: "ended",
        label: t("transfers.progress"),
        kind: "select",
        options: [
          { value: "false", label: t("transfers.underWay") },
          { value: "true", label: t("transfers.ended") },
        ],
      },
      { name: "reason", label: t("transfers.reasonTitle"), kind: "select", options: REASONS.map((value) => ({ value, label: t(`transfers.reason.${value}`) })) },
      { name: "window_closes_after", label: t("transfers.closedFrom"), kind: "moment" },
      { name: "window_closes_before", label: t("transfers.closedTo"), kind: "moment" },
    ],
    columns: [
      { title: t("transfers.file"), cell: fileCell },
      { title: t("transfers.status"), cell: (job) => stateBadge(job.status, job.partial) },
      { title: t("transfers.targets"), cell: renderTargets },
      { title: t("transfers.time"), cell: renderTime },
    ],
    load,
    request: (filters) => address("/v1/transfers/jobs", buildQuery(filters)),
    onLoad: ({ items }) => drawWindows(windows, items),
    key: (job) => job.job_id,
    open: (job) => href.job(job.job_id),
    empty: { text: t("transfers.empty"), ...twins("/v1/transfers/jobs") },
    every: EVERY_MS,
  });
  return h("div", { class: "transfers" }, h("p", { class: "quiet intro" }, t("transfers.intro")), idForm(), windows, list);
}

function buildQuery({ window_closes_after: from, window_closes_before: to, ...rest }) {
  return { ...rest, window_closes_after: from && new Date(from).toISOString(), window_closes_before: to && new Date(to).toISOString() };
}

function renderTargets(job) {
  return h("div", { class: "targets-cell" }, statesBar(job.counts));
}

function renderTime(job) {
  const open = new Date(job.window_closes_at) > new Date();
  const [word, moment] = job.finished_at ? ["endedAt", job.finished_at] : open ? ["closes", job.window_closes_at] : ["deadline", job.deadline_at];
  return h("span", { class: "time-cell" }, t(`transfers.${word}`), " ", ago(moment));
}

/** A field that opens a job or a task by its id, and all that a host was sent by its name. */
function idForm() {
  const input = h("input", { type: "search", name: "id", autocomplete: "off", spellcheck: "false", placeholder: t("transfers.findHint"), "aria-label": t("transfers.find") });
  const open = (event) => {
    event.preventDefault();
    const id = input.value.trim();
    if (!id) return;
    const kind = id.startsWith("AsyncDownloadTask:") ? "task" : id.startsWith("AsyncDownloadJob:") ? "job" : "host";
    go(href[kind](id));
  };
  return h("form", { class: "finder", on: { submit: open } }, input, h("button", {}, t("transfers.open")));
}

/** The windows of the page as columns of target states. */
function drawWindows(figure, jobs) {
  const windows = new Map();
  for (const job of jobs) {
    const counts = windows.get(job.window_closes_at) ?? {};
    for (const state of STATES) counts[state] = (counts[state] ?? 0) + (job.counts[state] ?? 0);
    windows.set(job.window_closes_at, counts);
  }
  const shown = [...windows].sort(([a], [b]) => (a < b ? -1 : 1)).slice(-WINDOWS);
  figure.hidden = shown.length < 2;
  if (figure.hidden) return;
  const most = Math.max(...shown.map(([, counts]) => total(counts)));
  const columns = shown.map(([closesAt, counts], index) => column(closesAt, counts, index, most));
  const picture = svg("svg", { viewBox: `0 0 ${WINDOWS * 10} ${HEIGHT}`, role: "img", "aria-label": t("transfers.windows", { n: most }), preserveAspectRatio: "xMinYMax meet" }, columns);
  clear(figure, h("figcaption", {}, t("transfers.windows", { n: most })), picture);
}

function column(closesAt, counts, index, most) {
  let y = HEIGHT;
  const parts = STATES.filter((state) => counts[state]).map((state) => {
    const height = Math.max(1, ((HEIGHT - 2) * counts[state]) / most);
    y -= height;
    return svg("rect", { x: index * 10, y, width: 8, height, class: `${tone(state)} ${isFinal(state) ? "" : "live"}` });
  });
  const words = STATES.filter((state) => counts[state]).map((state) => `${t(`transfers.state.${state}`)} ${number(counts[state])}`);
  const at = new Intl.DateTimeFormat(locale(), { timeStyle: "medium" }).format(new Date(closesAt));
  return svg("g", {}, svg("title", {}, t("transfers.windowBar", { time: at, words: words.join(", ") })), parts);
}

