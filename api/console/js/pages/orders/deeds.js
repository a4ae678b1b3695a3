// Actions on a platform and its slices; each is confirmed first: what it does, and to how many.

import { Problem, post } from "../../api.js";
import { form, say, signFirst } from "../../components/index.js";
import { h } from "../../dom.js";
import { t } from "../../i18n.js";
import { api, typedAs, typedMoment, windowText } from "./names.js";

/** Pause a platform that runs, resume one that is paused. Returns whether it was done. */
export async function pauseOrResume(platform, known) {
  const verb = known.is_paused ? "resume" : "pause";
  const word = (name) => t(`orders.deed.${verb}.${name}`, { n: known.slices_open, platform });
  const signed = await signFirst({ title: word("title"), text: word("text"), action: word("name"), danger: verb === "pause" });
  if (!signed) return false;
  await post(api(platform, known.is_paused ? "/resume" : "/pause"), signed);
  say(word("done"));
  return true;
}

/** Let a platform claim what has settled, now. */
export async function trigger(platform) {
  await post(api(platform, "/trigger"));
  say(t("orders.deed.trigger.done"));
  return true;
}

/** Remove a paused platform. Returns whether it was done. */
export async function remove(platform) {
  const word = (name) => t(`orders.deed.remove.${name}`, { platform });
  const signed = await signFirst({ title: word("title"), text: word("text"), action: word("name"), danger: true });
  if (!signed) return false;
  await post(api(platform, "/remove"), signed);
  say(word("done"));
  return true;
}

/** Read the complete slices of a time again; the time is asked for. */
export async function backfill(platform, known) {
  const times = await askTimes(platform, known);
  if (times) say(t("orders.deed.backfill.done"));
  return Boolean(times);
}

/** A dialog with a form in it, because the API may find fault with the times. */
function askTimes(platform, known) {
  const end = new Date(known.complete_to ?? Date.now());
  const begin = new Date(end - 3_600_000);
  const submit = async (values) => {
    await post(api(platform, "/backfill"), { start: typedMoment(values.start), end: typedMoment(values.end), who: values.who || null });
    dialog.close("yes");
  };
  const later = h("button", { type: "button", on: { click: () => dialog.close("") } }, t("common.cancel"));
  const field = (name, label) => ({ name, label, kind: "datetime-local", required: true, attributes: { step: 1 } });
  const who = { name: "who", label: t("orders.backfill.who"), attributes: { maxlength: 200 } };
  const fields = [field("start", t("orders.from")), field("end", t("orders.to")), who];
  const values = { start: typedAs(begin), end: typedAs(end) };
  const content = form({ fields, submit, values, action: t("orders.deed.backfill.name"), extra: [later] });
  const dialog = h("dialog", { class: "ask", "aria-label": t("orders.deed.backfill.title") }, h("h2", {}, t("orders.deed.backfill.title")), h("p", {}, t("orders.deed.backfill.text")), content);
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
  });
}

/**
 * Redo, split or skip slices of a platform.
 *
 * @param {"redo"|"split"|"skip"} deed
 * @param {string} platform
 * @param {Array<Object>} slices - as the API lists them
 * @param {number} [others] - how many were chosen besides whose state does not allow it
 * @returns {Promise<boolean>} whether it was done
 * @throws {Problem} if the API refuses it, or does it to none of them
 */
export async function steer(deed, platform, slices, others = 0) {
  const n = slices.length;
  const words = { n, window: n === 1 ? windowText(slices[0].window) : "", orders: slices.reduce((sum, each) => sum + (each.orders ?? each.total ?? 0), 0) };
  const word = (name) => t(`orders.deed.${deed}.${name}`, words);
  const rows = slices.slice(0, 5).map((slice) => h("li", {}, windowText(slice.window)));
  const text = h("div", {}, h("p", {}, word("text")), h("ul", { class: "quiet" }, rows, n > rows.length ? h("li", {}, "…") : null), others ? h("p", {}, t("orders.deed.others", { n: others })) : null);
  const signed = await signFirst({ title: word("title"), text, action: word("action"), danger: deed === "skip" });
  if (!signed) return false;
  const { done, unchanged } = await post(api(platform, `/slices:${deed}`), { slices: slices.map((slice) => slice.slice), ...signed });
  if (!done.length) throw new Problem({ title: t("common.failed"), ...unchanged[0] });
  const why = unchanged.length ? t("common.notDone", { n: unchanged.length, why: unchanged[0].detail }) : "";
  say([t(`orders.deed.${deed}.done`, { n: done.length }), why].join(" ").trim());
  return true;
}

/** Which deeds a slice's state allows. */
export function deedsOf(slice) {
  if (slice.state === "failed") return ["redo", "split", "skip"];
  return slice.state === "done" ? ["redo"] : [];
}

