// A host: what it was sent, over all jobs, the newest first.

import { address, get } from "../../api.js";
import { dataList, twins } from "../../components/index.js";
import { h } from "../../dom.js";
import { t } from "../../i18n.js";
import { link } from "../../navigation.js";
import { REASONS, STATES, href } from "./states.js";
import { targetColumns } from "./targets.js";

const PATH = "/v1/transfers/targets";
const PAGE = 50;

/** @param {Place} place */
export async function hostPage(place) {
  const host = place.params.id;
  const option = (group) => (value) => ({ value, label: t(`transfers.${group}.${value}`) });
  const [, ...columns] = targetColumns();
  const list = dataList({
    place,
    caption: t("transfers.hostTargets", { host }),
    filters: [
      { name: "status", label: t("transfers.status"), kind: "select", options: STATES.map(option("state")) },
      { name: "reason", label: t("transfers.reasonTitle"), kind: "select", options: REASONS.map(option("reason")) },
    ],
    columns: [{ title: t("transfers.job"), cell: (target) => link(href.job(target.job_id), target.job_id) }, ...columns],
    request: (filters) => address(PATH, { target_agent_id: host, ...filters }),
    load: async (filters, cursor) => {
      const page = await get(PATH, { target_agent_id: host, ...filters, limit: PAGE, cursor });
      return { items: page.items, next: page.next_cursor };
    },
    key: (target) => [target.job_id, target.target_container_id, target.target_user, target.target_file_dir, target.signature].join(" "),
    empty: { text: t("transfers.noHostTargets"), ...twins(address(PATH, { target_agent_id: host })) },
  });
  return h("div", { class: "transfers" }, h("p", { class: "quiet" }, t("transfers.hostTargets", { host })), list);
}
