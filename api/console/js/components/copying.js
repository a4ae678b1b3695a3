// Texts that a button copies, among them the same request for a program and for a terminal.

import { h } from "../dom.js";
import { t } from "../i18n.js";

const COPIED_MS = 1500;

/** A text in one line that a button copies. */
export function copyable(text) {
  const code = h("code", {}, text);
  const button = h("button", { type: "button", class: "copy", "aria-label": `${t("common.copy")}: ${text}` }, t("common.copy"));
  button.addEventListener("click", async () => {
    await toClipboard(text, code);
    button.textContent = t("common.copied");
    setTimeout(() => (button.textContent = t("common.copy")), COPIED_MS);
  });
  return h("span", { class: "copyable" }, code, button);
}

/**
 * How a program and a terminal ask for the same; the key is in the variable that the command reads, too.
 *
 * @param {string} path - of the API, with its query
 * @param {{method: string, body: ?string}} [given] - `body` is JSON
 * @returns {{curl: string, command: string}}
 */
export function twins(path, { method = "GET", body = null } = {}) {
  const curl = ["curl", method === "GET" ? "" : `-X ${method}`, quoted(location.origin + path), '-H "Authorization: Bearer $HAULAGE_API_KEY"', body === null ? "" : `-H "Content-Type: application/json" -d ${quoted(body)}`];
  const command = ["haulage ask", quoted(path), method === "GET" ? "" : `--method ${method}`, body === null ? "" : `--body ${quoted(body)}`];
  return { curl: curl.filter(Boolean).join(" "), command: command.filter(Boolean).join(" ") };
}

/** The same as texts to copy. @returns {Array<Node>} */
export function twinTexts(path, given) {
  const { curl, command } = twins(path, given);
  return [copyable(curl), copyable(command)];
}

/** A text as a shell takes it for one word. */
function quoted(text) {
  return /^[\w/.:,=@%+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

async function toClipboard(text, code) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Over plain http there is no clipboard for scripts: the text is selected, and one key copies it.
    getSelection().selectAllChildren(code);
  }
}
