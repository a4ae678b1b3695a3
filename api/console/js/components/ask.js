// A dialog that asks for confirmation before an action.

import { freshId, h, markCode } from "../dom.js";
import { t } from "../i18n.js";

/**
 * Ask in a dialog.
 *
 * @param {Object} question
 * @param {string} question.title - the question, e.g. "Cancel 3 downloads?"
 * @param {string|Node} question.text - the consequences
 * @param {string} question.action - the text of the button
 * @param {boolean} [question.danger] - whether it cannot be undone
 * @param {boolean|"required"} [question.reason] - whether a reason may, or must, be given
 * @param {boolean} [question.twice] - whether a box must be ticked first
 * @returns {Promise<{reason: string}|null>} null if the reader cancelled
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
      h("div", { id: textId }, typeof text === "string" ? h("p", {}, markCode(text)) : text),
      input && h("label", { class: "field" }, h("span", {}, t("common.reason")), input, h("small", { class: "quiet" }, t("common.reasonHint"))),
      tick && h("label", { class: "tick" }, tick, " ", t("common.confirmTwice")),
      h("div", { class: "ask-buttons" }, cancel, h("button", { class: danger ? "danger" : "primary", value: "yes" }, action)),
    ),
  );
  cancel.addEventListener("click", () => dialog.close(""));
  document.body.append(dialog);
  dialog.showModal();
  // An action that cannot be undone must not be confirmed by Enter alone.
  (input ?? tick ?? (danger ? cancel : dialog.querySelector("[value=yes]"))).focus();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes" ? { reason: input?.value.trim() ?? "" } : null);
    });
  });
}
