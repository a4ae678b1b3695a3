// Cancel or retry many downloads: confirm what will be done to how many, then show the result.

import { post } from "../../api.js";
import { askFirst, eachOf, say } from "../../components/index.js";
import { t } from "../../i18n.js";
import { isFinal } from "./status.js";

const ALLOWS = { cancel: (download) => !isFinal(download), retry: (download) => download.state === "failed" };

/**
 * Cancel or retry those of many downloads whose state allows it.
 *
 * @param {"cancel"|"retry"} deed
 * @param {Array<Object>} downloads - as the API lists them
 * @returns {Promise<boolean>} whether it was done
 * @throws {Problem} as `eachOf` does
 */
export async function actOnMany(deed, downloads) {
  const allowed = downloads.filter(ALLOWS[deed]);
  const word = (name, n = allowed.length) => t(`downloads.many.${deed}.${name}`, { n });
  if (!allowed.length) {
    say(word("none"));
    return false;
  }
  const others = downloads.length - allowed.length;
  const text = [word("text"), others ? word("others", others) : ""].join(" ").trim();
  if (!(await askFirst({ title: word("title"), text, action: word("action"), danger: deed === "cancel" }))) return false;
  await eachOf(
    allowed,
    (download) => post(`/v1/downloads/${encodeURIComponent(download.task_id)}/${deed}`),
    (n) => word("done", n),
  );
  return true;
}
