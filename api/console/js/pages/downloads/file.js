// The file of a download: fetching it, and links for those who have no key.

import { post } from "../../api.js";
import { busy, bytes, copyable, fold, problemBox, when } from "../../components/index.js";
import { clear, freshId, h, markCode } from "../../dom.js";
import { t } from "../../i18n.js";
import { fileName } from "./status.js";

const VALIDITIES = [3600, 24 * 3600, 7 * 24 * 3600];
const SHOWN_MAX = 30;

/**
 * The file as a card.
 *
 * @param {Place} place
 * @param {string} path - of the download in the API
 * @param {Object} download - as the API returns it
 * @param {string} query - what the browser needs to open the file's address
 */
export function fileCard(place, path, download, query) {
  const about = [
    bytes(download.bytes),
    t("downloads.rowsSoFar", { n: download.rows }),
    download.files > 1 ? t("downloads.file.books", { n: download.files }) : null,
  ].filter(Boolean);
  const output = h("div", { class: "file-link" });
  return h(
    "section",
    { class: "card file-card", "aria-label": t("downloads.file.title") },
    h("p", { class: "file-line" }, fileName(download.file_name), h("span", { class: "quiet" }, about.join(" · "))),
    h("div", { class: "file-actions" }, h("a", { href: `${path}/file${query}`, class: "as-button primary", download: "" }, t("downloads.file.fetch")), linkMaker(path, output)),
    output,
    listed("warnings", download.warnings),
    listed("leftOut", download.left_out),
  );
}

function linkMaker(path, output) {
  const id = freshId("validity");
  const select = h("select", { id }, VALIDITIES.map((seconds) => h("option", { value: seconds, selected: seconds === VALIDITIES[1] }, t(`downloads.file.for${seconds}`))));
  const button = h("button", { type: "button", on: { click: () => make(path, select.value, output, button) } }, t("downloads.file.link"));
  return h("span", { class: "link-maker" }, button, h("label", { for: id, class: "unseen" }, t("downloads.file.validity")), select);
}

async function make(path, seconds, output, button) {
  try {
    const made = await busy(post(`${path}/link`, null, { expires_in: seconds }), button);
    clear(output, h("p", { role: "status" }, t("downloads.file.linkText"), " ", when(made.expires_at)), copyable(made.url));
  } catch (problem) {
    if (problem.name !== "Problem") console.error(problem);
    clear(output, problemBox(problem));
  }
}

function listed(word, items) {
  if (!items.length) return null;
  const list = h("ul", {}, items.slice(0, SHOWN_MAX).map((item) => h("li", { dir: "auto" }, markCode(item))), items.length > SHOWN_MAX ? h("li", { class: "quiet" }, t("downloads.file.more", { n: items.length - SHOWN_MAX })) : null);
  return fold(t(`downloads.file.${word}`, { n: items.length }), list);
}
