// Addresses of the pages of orders and of what the API has, and the states of slices in the reader's words.

import { ago, badge, when } from "../../components/index.js";
import { h } from "../../dom.js";
import { locale, t } from "../../i18n.js";

export const SLICE_STATES = ["open", "done", "failed", "skipped", "split"];

const TONES = { open: "run", done: "ok", failed: "bad", skipped: "off", split: "wait" };

export const href = {
  platform: (number, query = "") => `/console/orders/platforms/${encodeURIComponent(number)}${query && `?${query}`}`,
  slice: (number, slice) => `/console/orders/platforms/${encodeURIComponent(number)}/slices/${encodeURIComponent(slice)}`,
};

/** Where the API has a platform; `below` is what follows. */
export const api = (number, below = "") => `/v1/platforms/${encodeURIComponent(number)}${below}`;

/** Where the API has a slice. */
export const apiSlice = (number, slice) => api(number, `/slices/${encodeURIComponent(slice)}`);

/** A slice's state as a badge. */
export const sliceBadge = (state) => badge(t(`orders.state.${state}`), TONES[state]);

/** The state of a requested rereading of a complete slice, as a badge; nothing where there was none. */
export function rereadBadge(reread) {
  if (!reread) return null;
  const tones = { running: "run", succeeded: "ok", failed: "bad" };
  return badge(t(`orders.reread.${reread.state}`), tones[reread.state]);
}

/** A window of time in one line: the day once where it is the same. */
export function windowText({ start, end }) {
  const [from, to] = [new Date(start), new Date(end)];
  const day = new Intl.DateTimeFormat(locale(), { dateStyle: "medium" });
  const time = new Intl.DateTimeFormat(locale(), { timeStyle: "medium" });
  const last = day.format(from) === day.format(to) ? time.format(to) : `${day.format(to)}, ${time.format(to)}`;
  return `${day.format(from)}, ${time.format(from)} – ${last}`;
}

/** A moment, and how long ago that is. */
export function moment(date) {
  return date ? h("span", { class: "moment" }, when(date), " ", h("small", { class: "quiet" }, ago(date))) : "–";
}

/** A moment as a field for times takes it: in the reader's own zone, to the second. */
export function typedAs(date) {
  const moment = new Date(date);
  return new Date(moment - moment.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

/** What such a field says, for the API; null where it says nothing. */
export const typedMoment = (text) => (text ? new Date(text).toISOString() : null);
