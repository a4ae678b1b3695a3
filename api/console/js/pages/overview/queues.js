// The engine's task queues with their workers and backlogs; only for the admin.

import { badge, duration, number } from "../../components/index.js";
import { clear, h } from "../../dom.js";
import { t } from "../../i18n.js";

const COLUMNS = ["queue", "system", "workers", "backlog", "oldestWaits"];

/** Create the table; `show(queues)` shows new figures. */
export function queueTable() {
  const body = h("tbody");
  const heads = COLUMNS.map((name, index) => h("th", { scope: "col", class: index > 1 && "numeric" }, t(`overview.${name}`)));
  const table = h("table", { class: "list" }, h("caption", { class: "unseen" }, t("overview.queues")), h("thead", {}, h("tr", {}, heads)), body);
  const scroller = h("div", { class: "scroller", tabindex: "0", role: "region", "aria-label": t("overview.queues") }, table);
  const element = h("section", { class: "queues" }, h("h2", {}, t("overview.queues")), scroller);
  return {
    element,
    show(queues) {
      element.hidden = queues.length === 0;
      clear(body, queues.map(row));
    },
  };
}

function row(queue) {
  const cells = [
    h("code", {}, queue.name),
    t(`common.section.${queue.system}`),
    queue.workers ? number(queue.workers) : badge("0", "bad"),
    number(queue.backlog),
    queue.backlog ? duration(queue.backlog_seconds) : "–",
  ];
  return h("tr", {}, cells.map((cell, index) => h("td", { class: index > 1 && "numeric", data: { label: t(`overview.${COLUMNS[index]}`) } }, cell)));
}
