// The same deed for many, one after the other, because the API takes them one by one.

import { t } from "../i18n.js";
import { say } from "./problem.js";

// Gone, or not as it was when it was chosen: that says nothing about the others.
const OF_ONE = [404, 409];

/**
 * Do something to each, and say how many it was done to, and to how many not and why.
 *
 * @template T
 * @param {Array<T>} items
 * @param {function(T): Promise<*>} deed
 * @param {function(number): string} told - says of how many it was done
 * @throws {Problem} what would hold for the rest, too, e.g. a quota, or why it was done to none; those before it are done
 */
export async function eachOf(items, deed, told) {
  const refused = [];
  let n = 0;
  let stop = null;
  for (const item of items) {
    try {
      await deed(item);
      n += 1;
    } catch (problem) {
      if (OF_ONE.includes(problem.status)) refused.push(problem);
      else stop = problem;
    }
    if (stop) break;
  }
  const why = refused.length ? t("common.notDone", { n: refused.length, why: refused[0].message }) : null;
  if (n) say([told(n), why].filter(Boolean).join(" "));
  stop ??= n ? null : refused[0];
  if (stop) throw stop;
}
