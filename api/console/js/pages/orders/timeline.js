// A platform's time line: claimed, complete, what became of the slices, sweeps, now and the marks, as inline SVG.

import { get } from "../../api.js";
import { problemBox } from "../../components/index.js";
import { clear, h, svg } from "../../dom.js";
import { t } from "../../i18n.js";
import { latestOnly } from "../../polling.js";
import { api, windowText } from "./names.js";
import { LANES, WIDTH, drawAxis, drawBand, drawMark } from "./drawing.js";
import { spanOf, zoomed } from "./span.js";

const BUCKETS = 240;
const HEIGHT = 162;
const SPANS = [
  ["all", null],
  ["month", 30 * 86400],
  ["week", 7 * 86400],
  ["day", 86400],
  ["hours", 6 * 3600],
  ["hour", 3600],
];
// Of the states in a part the one that needs the reader most gives it its colour.
const WORST_FIRST = ["failed", "open", "skipped", "done"];
const TONES = { failed: "bad", open: "run", skipped: "off", done: "ok" };

/**
 * The time line; which time it shows is in the address (`from`, `to`, or `span` seconds before now).
 *
 * @param {Place} place
 * @param {string} platform
 * @param {function({start: string, end: string}): void} choose - what a press on a part shows
 * @returns {{element: Element, read: function(): Promise, zoom: function(Object): void, range: function(): Object,
 *   gaps: function(Array): void}} `gaps` are drawn from the next reading on
 */
export function timeline(place, platform, choose) {
  const picture = h("div", { class: "line-picture" });
  const says = h("p", { class: "quiet line-says", role: "status" });
  const spans = h("div", { class: "spans", role: "group", "aria-label": t("orders.line.span") });
  let line = null;
  let gaps = [];
  const read = latestOnly(
    () => get(api(platform, "/timeline"), { ...spanOf(place.query, line?.platform_now), bucket_count: BUCKETS }),
    (found) => {
      line = found;
      show();
    },
    (problem) => clear(picture, problemBox(problem)),
  );

  function show() {
    const first = !picture.firstChild;
    const focused = picture.contains(document.activeElement) ? document.activeElement.dataset.start : null;
    clear(picture, drawing(line, gaps, choose));
    // The focus stays on its part, though the part may be a longer or a shorter one now.
    if (focused) nearest(picture, new Date(focused))?.focus({ preventScroll: true });
    // On a narrow screen the present comes first.
    if (first) picture.scrollLeft = picture.scrollWidth;
    const text = summary(line, gaps);
    if (says.textContent !== text) says.textContent = text;
    showSpans();
  }

  function showSpans() {
    const chosen = place.query.get("from") ? "own" : (place.query.get("span") ?? "all");
    const button = ([name, seconds]) =>
      h("button", { type: "button", "aria-pressed": String(chosen === (seconds === null ? "all" : String(seconds))), on: { click: () => move({ span: seconds, from: null, to: null }) } }, t(`orders.line.spans.${name}`));
    const step = (word, sign, factor) => h("button", { type: "button", "aria-label": t(`orders.line.${word}`), title: t(`orders.line.${word}`), on: { click: () => move(zoomed(line, factor, sign)) } }, { earlier: "←", later: "→", closer: "+", wider: "−" }[word]);
    clear(spans, SPANS.map(button), step("wider", 0, 2), step("closer", 0, 0.5), step("earlier", -0.5, 1), step("later", 0.5, 1));
  }

  function move(changes) {
    place.change(changes);
    return read();
  }

  function zoom({ start, end }) {
    // Some time around it, so that it is seen where it lies.
    const [from, to] = [new Date(start).getTime(), new Date(end).getTime()];
    const rim = (to - from) / 2;
    move({ from: new Date(from - rim).toISOString(), to: new Date(to + rim).toISOString(), span: null });
    picture.scrollIntoView({ block: "nearest" });
  }

  function range() {
    return Object.fromEntries(["from", "to", "span"].map((name) => [name, place.query.get(name)]).filter(([, value]) => value));
  }

  read();
  const element = h("section", { class: "card line-card" }, h("header", { class: "line-head" }, h("h2", {}, t("orders.line.title")), spans), picture, legend(), says);
  return { element, read, zoom, range, gaps: (found) => (gaps = found) };
}

/** The part that can have the focus and begins nearest to a time. */
function nearest(picture, time) {
  const distance = (part) => Math.abs(new Date(part.dataset.start) - time);
  return [...picture.querySelectorAll("[tabindex]")].sort((one, other) => distance(one) - distance(other))[0];
}

/** The window of a part. */
function windowOf(line, part) {
  const from = new Date(line.start).getTime() + part.number * line.bucket_seconds * 1000;
  return { start: new Date(from).toISOString(), end: new Date(from + line.bucket_seconds * 1000).toISOString() };
}

function drawing(line, gaps, choose) {
  const scale = { from: new Date(line.start).getTime(), to: new Date(line.end).getTime() };
  const band = (lane, from, to, kind, title) => drawBand(scale, lane, from, to, kind, title);
  return svg(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "time-line", role: "group", "aria-label": summary(line, gaps) },
    Object.entries(LANES).map(([name, lane]) => svg("text", { x: 0, y: lane.y + lane.height / 2 + 3.5, class: "lane-name" }, t(`orders.line.lanes.${name}`))),
    Object.keys(LANES).map((name) => band(name, line.start, line.end, "ground")),
    line.starts_at && [
      band("claimed", line.starts_at, line.history_to, "claimed", t("orders.line.claimedHistory")),
      band("claimed", line.live_from, line.claimed_to, "claimed", t("orders.line.claimedLive")),
      band("complete", line.starts_at, line.complete_to, "complete", t("orders.line.complete")),
      band("complete", line.complete_to, line.claimed_to, "behind", t("orders.line.behind")),
    ],
    gaps.map((gap) => band("complete", gap.start, gap.end, "gap", `${t("orders.line.gap")}: ${windowText(gap)}`)),
    runsOf(line).flatMap((run) => drawRun(line, scale, run, choose)),
    drawAxis(scale, HEIGHT),
    drawMark(scale, line.complete_to, "mark", t("orders.completeTo"), HEIGHT),
    drawMark(scale, line.settled_to, "settled", t("orders.line.settled"), HEIGHT),
    drawMark(scale, line.platform_now, "now", t("orders.line.now"), HEIGHT),
  );
}

/** Parts side by side that look the same, as one. */
function runsOf(line) {
  const runs = [];
  for (const part of line.buckets) {
    const looks = [WORST_FIRST.find((each) => part[each] > 0), sweepOf(part)].join(" ");
    const last = runs.at(-1);
    if (last?.looks === looks && last.parts.at(-1).number === part.number - 1) last.parts.push(part);
    else runs.push({ looks, parts: [part] });
  }
  return runs;
}

function sweepOf(part) {
  if (part.missed) return "swept late";
  if (!part.swept) return "unswept";
  return part.swept === part.done ? "swept" : "swept partly";
}

function drawRun(line, scale, { parts }, choose) {
  const state = WORST_FIRST.find((each) => parts[0][each] > 0);
  const window = { start: windowOf(line, parts[0]).start, end: windowOf(line, parts.at(-1)).end };
  const words = runWords(window, parts);
  const press = (event) => {
    if (event.type === "keydown" && event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    choose(window);
  };
  const slices = drawBand(scale, "slices", window.start, window.end, `part tone-${TONES[state]}`, words);
  slices.addEventListener("click", press);
  slices.addEventListener("keydown", press);
  slices.dataset.start = window.start;
  // Complete parts need no action: the Tab key stops at the others only.
  const reach = state === "done" ? { role: "img" } : { role: "button", tabindex: 0 };
  for (const [name, value] of Object.entries({ ...reach, "aria-label": words })) slices.setAttribute(name, value);
  return [slices, drawBand(scale, "sweeps", window.start, window.end, sweepOf(parts[0]), words)];
}

function runWords(window, parts) {
  const sum = (name) => parts.reduce((total, part) => total + part[name], 0);
  const missed = sum("missed");
  // A part that holds several states has the worst one's colour, and all of them in words.
  const states = WORST_FIRST.filter((each) => parts.some((part) => part[each])).map((each) => t(`orders.state.${each}`));
  const found = [states.join(" + "), t("orders.line.partOrders", { n: sum("orders") }), missed ? t("orders.missedN", { n: missed }) : ""];
  return `${windowText(window)}: ${found.filter(Boolean).join(", ")}`;
}

function summary(line, gaps) {
  const orders = line.buckets.reduce((total, part) => total + part.orders, 0);
  const [from, to] = [new Date(line.start), new Date(line.end)];
  const seen = gaps.filter((gap) => new Date(gap.start) < to && new Date(gap.end) > from).length;
  return [windowText(line), t("orders.line.partOrders", { n: orders }), seen ? t("orders.line.gapsN", { n: seen }) : t("orders.line.whole")].join(" · ");
}

function legend() {
  const entries = [
    ["claimed", "claimed"],
    ["complete", "complete"],
    ["behind", "behind"],
    ["gap", "gap"],
    ["part tone-ok", "done"],
    ["part tone-run", "open"],
    ["part tone-bad", "failed"],
    ["part tone-off", "skipped"],
    ["swept", "swept"],
    ["swept late", "missed"],
  ];
  const item = ([kind, word]) => h("li", {}, svg("svg", { viewBox: "0 0 12 12", class: "key", "aria-hidden": "true" }, svg("rect", { width: 12, height: 12, rx: 2, class: kind })), t(`orders.line.legend.${word}`));
  return h("ul", { class: "legend" }, entries.map(item));
}
