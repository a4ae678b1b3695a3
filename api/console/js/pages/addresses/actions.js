// Retry and skip one message or many, after a confirmation with their number; afterwards the result is shown.

import { get, post } from "../../api.js";
import { askFirst, say } from "../../components/index.js";
import { t } from "../../i18n.js";
import { API, FAILED_STATES, postExact, signFirst } from "./shared.js";

/** Retry one message. @returns {Promise<Object|null>} the message afterwards */
export async function retryOne(message) {
  const signed = await signFirst({ title: t("addresses.retryOneTitle", { id: String(message.message_id) }), text: t("addresses.retryText"), action: t("addresses.retry") });
  if (!signed) return null;
  const now = await post(`${API}/messages/${message.message_id}/retry`, signed);
  say(t("addresses.retryOneDone", { id: String(message.message_id) }));
  return now;
}

/** Retry a message and all failed messages that are linked to it. @returns {Promise<Object|null>} the message afterwards */
export async function retryChain(message) {
  const signed = await signFirst({ title: t("addresses.chainTitle", { id: String(message.message_id) }), text: t("addresses.chainText"), action: t("addresses.retryChain") });
  if (!signed) return null;
  const { retried } = await post(`${API}/messages/${message.message_id}/retry-chain`, signed);
  say(t("addresses.retryManyDone", { n: retried }));
  return get(`${API}/messages/${message.message_id}`);
}

/** Skip one message; if modules may have applied it, after a second confirmation. @returns {Promise<Object|null>} the message afterwards */
export async function skipOne(message) {
  const question = { title: t("addresses.skipOneTitle", { id: String(message.message_id) }), action: t("addresses.skip"), danger: true };
  const signed = await signFirst({ ...question, text: t("addresses.skipText") });
  if (!signed) return null;
  const skip = (body) => post(`${API}/messages/${message.message_id}/skip`, { ...signed, ...body });
  try {
    return reportSkipped(await skip({}));
  } catch (problem) {
    if (problem.code !== "message_touched") throw problem;
    // The problem names the modules that have it.
    const sure = await askFirst({ ...question, text: problem.detail, action: t("addresses.skipTouched"), twice: true });
    return sure && reportSkipped(await skip({ though_touched: true }));
  }
}

/**
 * Retry many messages.
 *
 * @param {Array|null} items - messages, or null for all failed ones that `filters` find
 * @returns {Promise<boolean>} whether it was done
 */
export async function retryMany(items, filters = {}) {
  return changeMany(items, filters, "retry", ({ n, touched }) => ({ text: t("addresses.retryManyText"), n, touched }));
}

/** Skip many messages, except those that a module has applied, or may have. */
export async function skipMany(items, filters = {}) {
  return changeMany(items, filters, "skip", ({ n, touched }) => ({
    text: [t("addresses.skipManyText"), touched ? t("addresses.touchedStay", { n: touched }) : ""].join(" ").trim(),
    n: n - touched,
  }));
}

async function changeMany(items, filters, verb, describe) {
  const counted = items ? { messages: items.length, touched: items.filter(isTouched).length, busy: 0 } : await count(filters);
  const { text, n } = describe({ n: counted.messages, touched: counted.touched });
  if (!n) {
    say(counted.touched ? t("addresses.onlyTouched", { n: counted.touched }) : t("addresses.noneFailed"));
    return false;
  }
  const busy = counted.busy ? ` ${t("addresses.busyStay", { n: counted.busy })}` : "";
  const question = { title: t(`addresses.${verb}ManyTitle`, { n }), text: text + busy, action: t(`addresses.${verb}`), danger: verb === "skip", twice: verb === "skip" };
  const signed = await signFirst(question);
  if (!signed) return false;
  const done = items ? await byIds(items, verb, signed) : await byFilter(filters, verb, signed);
  say([t(`addresses.${verb}ManyDone`, { n: done.n }), done.rest ? t("addresses.otherStay", { n: done.rest }) : ""].join(" ").trim());
  return true;
}

async function count(filters) {
  // A filter selects failed messages only.
  if (filters.state && !FAILED_STATES.includes(filters.state)) return { messages: 0, touched: 0, busy: 0 };
  return get(`${API}/messages:count`, filters);
}

async function byIds(items, verb, signed) {
  const ids = items.map((item) => item.message_id);
  const answer = await postExact(`messages:${verb}`, signed, { ids });
  const n = answer.retried ?? answer.skipped;
  return { n, rest: ids.length - n };
}

/** The API changes ten thousand at a time, oldest first. */
async function byFilter({ uprn, ...filters }, verb, signed) {
  let n = 0;
  for (;;) {
    const answer = await postExact(`messages:${verb}`, { ...filters, ...signed }, uprn ? { uprn } : {});
    const changed = answer.retried ?? answer.skipped;
    n += changed;
    if (!answer.remaining || !changed) return { n, rest: answer.busy + answer.remaining + (answer.touched ?? 0) };
  }
}

function isTouched(message) {
  return Object.values(message.acks).some(({ ack }) => ack === "Y") || Boolean(message.waits?.unsure?.length);
}

function reportSkipped(message) {
  say(t("addresses.skipOneDone", { id: String(message.message_id) }));
  return message;
}
