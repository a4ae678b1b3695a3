// Charts as inline SVG, each with its numbers as text for screen readers.

import { clear, h, svg } from "../dom.js";
import { t } from "../i18n.js";
import { number } from "./figures.js";

const WIDTH = 240;
const HEIGHT = 56;
const SPAN_MIN_MS = 60_000;

/**
 * A stacked bar.
 *
 * @param {Array<{label: string, n: number, tone: string}>} parts - tones as of `badge`
 */
export function stackBar(parts) {
  const shown = parts.filter((part) => part.n > 0);
  const total = shown.reduce((sum, part) => sum + part.n, 0);
  const words = shown.map((part) => `${part.label} ${number(part.n)}`).join(", ") || t("common.noData");
  let x = 0;
  const bars = shown.map((part) => {
    const width = (100 * part.n) / total;
    x += width;
    return svg("rect", { x: x - width, y: 0, width, height: 10, class: `tone-${part.tone}` }, svg("title", {}, `${part.label} ${number(part.n)}`));
  });
  const drawing = svg("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", role: "img", "aria-label": words, class: "stack" }, bars);
  const legend = shown.map((part) => h("li", {}, h("i", { class: `dot tone-${part.tone}` }), part.label, " ", h("b", {}, number(part.n))));
  return h("div", { class: "stack-bar" }, drawing, h("ul", { class: "legend", "aria-hidden": "true" }, legend));
}

/**
 * A line chart over time; `element.update(series)` draws newer points.
 *
 * @param {Object} chart
 * @param {Array<{label: string, tone: string, points: Array<[number, number]>}>} chart.series - points are [time, n]
 * @param {string} chart.label - its name, e.g. "Running downloads"
 * @param {number} [chart.span] - how many milliseconds are shown at most, up to the last point; a minute at least, so that
 *   the first points do not fill the whole. By default all points are
 * @returns {LineChart}
 */
export function lineChart({ series, label, span = 0 }) {
  const element = document.createElement("line-chart");
  Object.assign(element, { label, span });
  element.update(series);
  return element;
}

/**
 * A progress bar.
 *
 * @param {number|null} fraction - 0 to 1; null if unknown
 * @param {string} text - the same in words
 */
export function progress(fraction, text) {
  const bar = fraction === null || fraction === undefined ? {} : { value: Math.min(1, Math.max(0, fraction)), max: 1 };
  return h("div", { class: "progress" }, h("progress", { ...bar, "aria-label": text }), h("span", {}, text));
}

/** `<line-chart>`: lines over an area, drawn to fill its box. */
class LineChart extends HTMLElement {
  update(series) {
    const points = series.flatMap((line) => line.points);
    const to = Math.max(...points.map(([at]) => at));
    const first = Math.min(...points.map(([at]) => at));
    const from = this.span ? Math.max(to - this.span, Math.min(first, to - SPAN_MIN_MS)) : first;
    const top = Math.max(1, ...points.map(([, n]) => n));
    const x = (at) => (to > from ? Math.max(0, (at - from) / (to - from)) * WIDTH : WIDTH);
    const y = (n) => HEIGHT - 2 - (n / top) * (HEIGHT - 6);
    const last = series.map((line) => `${line.label} ${number(line.points.at(-1)?.[1] ?? 0)}`).join(", ");
    const lines = series.filter((line) => line.points.length > 1).flatMap((line) => draw(line, x, y));
    clear(
      this,
      svg(
        "svg",
        { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `${this.label}: ${last}` },
        svg("line", { x1: 0, x2: WIDTH, y1: HEIGHT - 2, y2: HEIGHT - 2, class: "axis" }),
        lines,
      ),
    );
  }
}

customElements.define("line-chart", LineChart);

function draw(line, x, y) {
  const path = line.points.map(([at, n], index) => `${index ? "L" : "M"}${x(at).toFixed(1)} ${y(n).toFixed(1)}`).join("");
  const [first, last] = [line.points[0][0], line.points.at(-1)[0]];
  const area = `${path}L${x(last).toFixed(1)} ${y(0)}L${x(first).toFixed(1)} ${y(0)}Z`;
  return [svg("path", { d: area, class: `area tone-${line.tone}` }), svg("path", { d: path, class: `line tone-${line.tone}` })];
}
