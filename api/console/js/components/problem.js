// Problems, short messages, and buttons that are busy.

import { h, markCode } from "../dom.js";
import { t } from "../i18n.js";
import { copyable } from "./copying.js";

const TOAST_MS = 6000;

/**
 * Show a problem: its sentence, hint, errors by field, and the request id.
 *
 * @param {Problem|Error} problem
 */
export function problemBox(problem) {
  const known = problem.name === "Problem";
  const errors = (problem.errors ?? []).map((error) => h("li", {}, error.path ? [h("code", {}, error.path), " "] : null, markCode(error.message)));
  return h(
    "div",
    { class: "problem", role: "alert" },
    h("p", { class: "problem-title" }, known ? markCode(problem.title) : t("common.failed")),
    h("p", {}, known ? markCode(problem.detail) : t("common.faultText", { text: problem.message })),
    problem.hint ? h("p", {}, markCode(problem.hint)) : null,
    errors.length ? h("ul", {}, errors) : null,
    problem.requestId ? h("p", { class: "quiet" }, t("common.requestId"), " ", copyable(problem.requestId)) : null,
  );
}

/** Return what a function creates, or the problem that it threw. @param {function(): (Node|Promise<Node>)} make */
export async function orProblem(make) {
  try {
    return await make();
  } catch (problem) {
    if (problem.name !== "Problem") console.error(problem);
    return problemBox(problem);
  }
}

/** Show a message for a few seconds, also to screen readers. */
export function say(text) {
  const region = document.querySelector("toast-region") ?? document.body.appendChild(h("toast-region"));
  region.say(text);
}

/**
 * Disable `element` and mark it as busy until a promise is settled.
 *
 * @template T
 * @param {Promise<T>} promise
 * @param {Element} element - usually the button
 * @returns {Promise<T>}
 */
export async function busy(promise, element) {
  element.setAttribute("aria-busy", "true");
  if ("disabled" in element) element.disabled = true;
  try {
    return await promise;
  } finally {
    element.removeAttribute("aria-busy");
    if ("disabled" in element) element.disabled = false;
  }
}

/** `<toast-region>`: a live region for short messages. */
class ToastRegion extends HTMLElement {
  connectedCallback() {
    this.setAttribute("role", "status");
    this.setAttribute("aria-live", "polite");
  }

  say(text) {
    const toast = h("p", { class: "toast" }, markCode(text));
    this.append(toast);
    setTimeout(() => toast.remove(), TOAST_MS);
  }
}

customElements.define("toast-region", ToastRegion);
