// Texts with a button that copies them, such as a request for curl and for the command line.

import { h } from "../dom.js";
import { t } from "../i18n.js";

const COPIED_MS = 1500;

/** Create a text in one line with a button that copies it. */
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
 * Return a request for curl and for `haulage ask`; both read the key from the same variable.
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

/** Create both as texts to copy. @returns {Array<Node>} */
export function twinTexts(path, given) {
  const { curl, command } = twins(path, given);
  return [copyable(curl), copyable(command)];
}

/** Quote a text for a shell. */
function quoted(text) {
  return /^[\w/.:,=@%+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

async function toClipboard(text, code) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Over plain http scripts have no clipboard: the text is selected, and the reader copies it.
    getSelection().selectAllChildren(code);
  }
}
