// The time that a time line shows: a chosen one, the last seconds, hours or days, or all of it.

const LEAST_SECONDS = 60;

/** What the API is asked for; `now` is the platform's, as far as it is known. */
export function spanOf(query, now) {
  if (query.get("from") && query.get("to")) return { start: query.get("from"), end: query.get("to") };
  const span = Number(query.get("span"));
  if (!span) return {};
  const end = now ? new Date(now) : new Date();
  return { start: new Date(end - span * 1000).toISOString() };
}

/**
 * The time beside or around what a line shows.
 *
 * @param {{start: string, end: string}} line
 * @param {number} factor - 2 shows twice as much, 0.5 half
 * @param {number} step - how far to go, in lengths of what is shown
 */
export function zoomed(line, factor, step) {
  const [start, end] = [new Date(line.start).getTime(), new Date(line.end).getTime()];
  const length = Math.max(LEAST_SECONDS * 1000, (end - start) * factor);
  const middle = (start + end) / 2 + step * (end - start);
  return { from: new Date(middle - length / 2).toISOString(), to: new Date(middle + length / 2).toISOString(), span: null };
}
