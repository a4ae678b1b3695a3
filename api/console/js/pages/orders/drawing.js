// Bands, marks and the axis of a time line, in the units of its view box.

import { svg } from "../../dom.js";
import { locale } from "../../i18n.js";

export const WIDTH = 1000;
const LEFT = 92;
const RIGHT = 992;
const TOP = 36;

/** The lanes, one under the other. */
export const LANES = {
  claimed: { y: TOP, height: 16 },
  complete: { y: TOP + 24, height: 16 },
  slices: { y: TOP + 48, height: 26 },
  sweeps: { y: TOP + 82, height: 10 },
};
const BOTTOM = TOP + 96;
// Steps of the axis in seconds: what people count time in.
const STEPS = [1, 5, 15, 30, 60, 300, 900, 1800, 3600, 10800, 21600, 43200, 86400, 172800, 604800, 1209600, 2592000, 7776000];
const TICKS = 8;

/** Where a moment lies. */
export function at(scale, moment) {
  const time = typeof moment === "number" ? moment : new Date(moment).getTime();
  return LEFT + ((time - scale.from) / (scale.to - scale.from)) * (RIGHT - LEFT);
}

/** A band in a lane, cut to what is shown; nothing of it if it lies outside. */
export function drawBand(scale, lane, from, to, kind, title = "") {
  const [x, end] = [Math.max(LEFT, at(scale, from)), Math.min(RIGHT, at(scale, to))];
  const { y, height } = LANES[lane];
  return svg("rect", { x: x.toFixed(2), y, width: Math.max(0, end - x).toFixed(2), height, class: kind }, title && svg("title", {}, title));
}

/** A line through all lanes, with its name above. */
export function drawMark(scale, moment, kind, name, height) {
  if (!moment) return null;
  const x = at(scale, moment);
  if (x < LEFT - 1 || x > RIGHT + 1) return null;
  const anchor = x > RIGHT - 60 ? "end" : x < LEFT + 60 ? "start" : "middle";
  const line = svg("line", { x1: x, x2: x, y1: kind === "now" ? 14 : TOP - 8, y2: height - 26, class: `mark ${kind}` }, svg("title", {}, `${name}: ${new Date(moment).toISOString()}`));
  const label = kind === "settled" ? null : svg("text", { x, y: kind === "now" ? 10 : TOP - 12, "text-anchor": anchor, class: `mark-name ${kind}` }, name);
  return [line, label].filter(Boolean);
}

/** Times below the lanes. */
export function drawAxis(scale, height) {
  const seconds = (scale.to - scale.from) / 1000;
  const step = STEPS.find((each) => seconds / each <= TICKS) ?? STEPS.at(-1);
  const offset = new Date(scale.from).getTimezoneOffset() * 60_000;
  const first = Math.ceil((scale.from - offset) / (step * 1000)) * step * 1000 + offset;
  const ticks = [];
  for (let moment = first; moment <= scale.to; moment += step * 1000) {
    const x = at(scale, moment);
    ticks.push(svg("line", { x1: x, x2: x, y1: BOTTOM, y2: BOTTOM + 5, class: "axis" }));
    ticks.push(svg("text", { x, y: height - 8, "text-anchor": x > RIGHT - 16 ? "end" : "middle", class: "tick" }, label(moment, step)));
  }
  return [svg("line", { x1: LEFT, x2: RIGHT, y1: BOTTOM, y2: BOTTOM, class: "axis" }), ticks];
}

function label(moment, step) {
  const date = new Date(moment);
  const midnight = date.getHours() === 0 && date.getMinutes() === 0 && date.getSeconds() === 0;
  const format = step >= 86400 || midnight ? { month: "short", day: "numeric" } : { hour: "2-digit", minute: "2-digit", ...(step < 60 ? { second: "2-digit" } : {}) };
  return new Intl.DateTimeFormat(locale(), format).format(date);
}
