// Asks before something happens: what will be done to how many, and whether that is meant.

import { freshId, h } from "../dom.js";
import { t } from "../i18n.js";

/**
 * Ask in a dialog.
 *
 * @param {Object} question
 * @param {string} question.title - what will be done, e.g. "Cancel 3 downloads?"
 * @param {string|Node} question.text - what happens to what, and what does not
 * @param {string} question.action - the word on the button
 * @param {boolean} [question.danger] - whether it cannot be undone
 * @param {boolean|"required"} [question.reason] - whether a reason may, or must, be given
 * @param {boolean} [question.twice] - whether a box must be ticked first
 * @returns {Promise<{reason: string}|null>} null when the reader thought better of it
 */
export function askFirst({ title, text, action, danger = false, reason = false, twice = false }) {
  const [titleId, textId] = [freshId("ask"), freshId("ask")];
  const input = reason ? h("textarea", { rows: 2, maxlength: 500, required: reason === "required" }) : null;
  const tick = twice ? h("input", { type: "checkbox", required: true }) : null;
  const cancel = h("button", { type: "button", value: "" }, t("common.cancel"));
  const dialog = h(
    "dialog",
    { class: "ask", "aria-labelledby": titleId, "aria-describedby": textId },
    h(
      "form",
      { method: "dialog" },
      h("h2", { id: titleId }, title),
      h("div", { id: textId }, typeof text === "string" ? h("p", {}, text) : text),
      input && h("label", { class: "field" }, h("span", {}, t("common.reason")), input, h("small", { class: "quiet" }, t("common.reasonHint"))),
      tick && h("label", { class: "tick" }, tick, " ", t("common.confirmTwice")),
      h("div", { class: "ask-buttons" }, cancel, h("button", { class: danger ? "danger" : "primary", value: "yes" }, action)),
    ),
  );
  cancel.addEventListener("click", () => dialog.close(""));
  document.body.append(dialog);
  dialog.showModal();
  // What cannot be undone is not one Enter away.
  (input ?? tick ?? (danger ? cancel : dialog.querySelector("[value=yes]"))).focus();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes" ? { reason: input?.value.trim() ?? "" } : null);
    });
  });
}
