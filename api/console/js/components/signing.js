// A dialog that asks for confirmation with the operator's name and a reason, which go into the audit log.

import { h, markCode } from "../dom.js";
import { t } from "../i18n.js";
import { askFirst } from "./ask.js";

const WHO = "haulage.who";

/**
 * Ask an operator to confirm an action with name and reason: all share one key, and both go into the audit.
 *
 * @param {Object} question - as of `askFirst`
 * @returns {Promise<{who: string, reason: string}|null>}
 */
export async function signFirst(question) {
  const who = h("input", { name: "who", required: true, maxlength: 200, autocomplete: "name", ".value": remembered() });
  const text = h(
    "div",
    {},
    typeof question.text === "string" ? h("p", {}, markCode(question.text)) : question.text,
    h("label", { class: "field" }, h("span", {}, t("common.who")), who, h("small", { class: "quiet" }, t("common.whoHint"))),
  );
  const confirmation = askFirst({ ...question, text, reason: "required" });
  who.closest("form").querySelector("textarea").minLength = 3;
  if (!who.value) who.focus();
  const answer = await confirmation;
  if (!answer) return null;
  remember(who.value.trim());
  return { who: who.value.trim(), reason: answer.reason };
}

function remembered() {
  try {
    return localStorage.getItem(WHO) ?? "";
  } catch {
    return "";
  }
}

function remember(who) {
  try {
    localStorage.setItem(WHO, who);
  } catch {
    // Without storage the name is entered again next time.
  }
}
