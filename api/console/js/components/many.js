// The same action on several items, one after the other, because the API takes them one by one.

import { t } from "../i18n.js";
import { say } from "./problem.js";

// Gone or changed since it was chosen: the action may still succeed for the others.
const ITEM_ERRORS = [404, 409];

/**
 * Run an action on each item, and show how many succeeded, and how many failed and why.
 *
 * @template T
 * @param {Array<T>} items
 * @param {function(T): Promise<*>} action
 * @param {function(number): string} describe - says how many succeeded
 * @throws {Problem} an error that would hold for the rest, too, e.g. a quota, or the first if none succeeded
 */
export async function eachOf(items, action, describe) {
  const refused = [];
  let n = 0;
  let stop = null;
  for (const item of items) {
    try {
      await action(item);
      n += 1;
    } catch (problem) {
      if (ITEM_ERRORS.includes(problem.status)) refused.push(problem);
      else stop = problem;
    }
    if (stop) break;
  }
  const why = refused.length ? t("common.notDone", { n: refused.length, why: refused[0].message }) : null;
  if (n) say([describe(n), why].filter(Boolean).join(" "));
  stop ??= n ? null : refused[0];
  if (stop) throw stop;
}
