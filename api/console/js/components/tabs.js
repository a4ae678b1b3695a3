// Tabs: several views of one page; the open one is in the address.

import { clear, freshId, h } from "../dom.js";
import { latestOnly } from "../polling.js";
import { orProblem } from "./problem.js";

/**
 * Tabs by the keyboard pattern of WAI-ARIA (arrow keys, Home, End).
 *
 * @param {Array<{id: string, label: string, content: Node|function(): (Node|Promise<Node>)}>} list - a function is
 *   called each time its tab is opened
 * @param {Place} place - the open tab is `tab` in its query
 */
export function tabs(list, place) {
  const panel = h("div", { role: "tabpanel", id: freshId("panel"), tabindex: "0" });
  const buttons = list.map((tab) =>
    h("button", { type: "button", role: "tab", id: freshId("tab"), "aria-controls": panel.id, on: { click: () => open(tab.id) } }, tab.label),
  );
  const bar = h("div", { role: "tablist", class: "tabs", on: { keydown: move } }, buttons);
  const fill = latestOnly(
    ({ content }) => (typeof content === "function" ? orProblem(content) : content),
    (shown) => clear(panel, shown),
  );

  function open(id, changesAddress = true) {
    const at = Math.max(0, list.findIndex((tab) => tab.id === id));
    buttons.forEach((button, index) => {
      button.setAttribute("aria-selected", String(index === at));
      button.tabIndex = index === at ? 0 : -1;
    });
    panel.setAttribute("aria-labelledby", buttons[at].id);
    // The list of another tab starts at its first page.
    if (changesAddress) place.change({ tab: at ? list[at].id : null, cursor: null });
    fill(list[at]);
  }

  function move(event) {
    const at = buttons.indexOf(document.activeElement);
    const last = buttons.length - 1;
    const to = { ArrowRight: at === last ? 0 : at + 1, ArrowLeft: at ? at - 1 : last, Home: 0, End: last }[event.key];
    if (to === undefined || at < 0) return;
    event.preventDefault();
    buttons[to].focus();
    buttons[to].click();
  }

  open(place.query.get("tab"), false);
  return h("div", { class: "tabbed" }, bar, panel);
}
