// Find a task by its id, or by the name that its creator chose.

import { get } from "../../api.js";
import { fold, twinTexts } from "../../components/index.js";
import { h } from "../../dom.js";
import { t } from "../../i18n.js";
import { go, link } from "../../navigation.js";
import { href, isId } from "./pieces.js";

/** Return the search field that opens a task. */
export function finder() {
  const input = h("input", { type: "search", name: "task", required: true, maxlength: 160, autocomplete: "off", spellcheck: "false", placeholder: t("tasks.findHint"), "aria-label": t("tasks.find") });
  const open = (event) => {
    event.preventDefault();
    const text = input.value.trim();
    if (text) go(isId(text) ? href.task(text) : href.named(text));
  };
  return h("form", { class: "finder", role: "search", on: { submit: open } }, input, h("button", {}, t("tasks.open")));
}

/** List the tasks with a name; a single one opens its page. @param {Place} place */
export async function namedPage(place) {
  const { name } = place.params;
  const { task_ids: ids } = await get("/v1/find_tasks", { name });
  if (ids.length === 1) {
    history.replaceState(null, "", href.task(ids[0]));
    place.refresh();
    return h("p");
  }
  if (!ids.length) return h("div", { class: "empty" }, h("p", {}, t("tasks.noneNamed", { name })), finder(), fold(t("common.doTheSame"), twinTexts(`/v1/find_tasks?name=${encodeURIComponent(name)}`)));
  return [finder(), h("ul", { class: "card found" }, ids.map((id) => h("li", {}, link(href.task(id), id))))];
}
