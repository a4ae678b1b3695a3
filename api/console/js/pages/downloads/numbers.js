// Writes numbers as an Excel number format says, near enough for a preview.

const EPOCH_MS = Date.UTC(1899, 11, 30);
const DAY_MS = 86400000;
const COLORS = { black: "#000000", white: "#ffffff", red: "#ff0000", green: "#008000", blue: "#0000ff", yellow: "#ffff00", cyan: "#00ffff", magenta: "#ff00ff" };
const TOKENS = /"([^"]*)"|\\(.)|_(.)|\*(.)|\[([^\]]*)\]|(AM\/PM|A\/P)|([yY]+|[mM]+|[dD]+|[hH]+|[sS]+(?:\.0+)?)|(General)|([0#?][0#?,]*(?:\.[0#?]*)?,*(?:[eE][+-]0+)?|\.[0#?]+)|(%)|(@)|(.)/g;

/**
 * A number as text.
 *
 * @param {number} value
 * @param {string} format - as Excel writes it
 * @returns {{text: string, color: ?string}}
 */
export function written(value, format) {
  const { section, isNegative } = chosen(value, sections(format));
  const tokens = [...section.matchAll(TOKENS)];
  const color = tokens.map((token) => COLORS[token[5]?.toLowerCase()]).find(Boolean) ?? null;
  if (!section || section === "@" || tokens.some((token) => token[8])) return { text: general(value), color };
  const isDate = tokens.some((token) => token[7]);
  return { text: isDate ? dated(value, tokens) : counted(isNegative ? Math.abs(value) : value, tokens), color };
}

/** A number as Excel shows it without a format. */
export function general(value) {
  if (Number.isInteger(value) && Math.abs(value) < 1e11) return String(value);
  if (Math.abs(value) >= 1e11) return String(Number(value.toPrecision(6)).toExponential()).replace("e", "E");
  return String(Number(value.toPrecision(10))).replace("e", "E");
}

function sections(format) {
  const found = [""];
  for (const [piece] of format.matchAll(/"[^"]*"|\\.|\[[^\]]*\]|./g)) {
    if (piece === ";") found.push("");
    else found[found.length - 1] += piece;
  }
  return found;
}

function chosen(value, all) {
  const tests = all.map((section) => /^(?:\[[^\]]*\])*?\[(<=|>=|<>|<|>|=)(-?[\d.]+)\]/.exec(section));
  if (tests.some(Boolean)) {
    const at = all.findIndex((_, index) => !tests[index] || holds(value, tests[index][1], Number(tests[index][2])));
    return { section: all[at] ?? all.at(-1), isNegative: false };
  }
  if (value < 0 && all.length > 1) return { section: all[1], isNegative: true };
  if (value === 0 && all.length > 2) return { section: all[2], isNegative: false };
  return { section: all[0], isNegative: false };
}

function holds(value, operator, bound) {
  return { "<": value < bound, ">": value > bound, "=": value === bound, "<=": value <= bound, ">=": value >= bound, "<>": value !== bound }[operator];
}

function literal(token) {
  return token[1] ?? token[2] ?? (token[3] ? " " : null) ?? (token[4] ? "" : null) ?? bracket(token[5]) ?? token[12] ?? "";
}

/** `[$¥-804]` shows its sign; colours, conditions and locales show nothing. */
function bracket(inside) {
  if (inside === undefined) return null;
  return inside.startsWith("$") ? inside.slice(1).split("-")[0] : "";
}

function counted(value, tokens) {
  const digits = tokens.find((token) => token[9])?.[9];
  if (digits === undefined) return (value < 0 ? "-" : "") + tokens.map((token) => (token[11] ? general(value) : literal(token))).join("");
  const percents = tokens.filter((token) => token[10]).length;
  const thousands = /,+(?=\.|$)/.exec(digits)?.[0].length ?? 0;
  const scaled = (value * 100 ** percents) / 1000 ** thousands;
  const text = shaped(Math.abs(scaled), digits);
  const minus = scaled < 0 ? "-" : "";
  let done = false;
  const parts = tokens.map((token) => {
    if (token[9] === undefined) return token[10] ?? literal(token);
    if (done) return "";
    done = true;
    return text;
  });
  return minus + parts.join("");
}

function shaped(value, digits) {
  const [whole, fraction = ""] = digits.split(/[eE]/)[0].replace(/,+$/, "").split(".");
  const most = fraction.length;
  if (/[eE]/.test(digits)) return value.toExponential(most).replace(/e([+-])(\d)$/, "E$10$2").replace("e", "E");
  const least = fraction.replace(/[#?]+$/, "").length;
  const options = { minimumFractionDigits: least, maximumFractionDigits: most, minimumIntegerDigits: Math.max(1, (whole.match(/0/g) ?? []).length), useGrouping: /[0#?],[0#?]/.test(whole) };
  const text = new Intl.NumberFormat("en-US", options).format(value);
  return whole.includes("0") || value >= 1 ? text : text.replace(/^0(?=\.)/, "");
}

function dated(value, tokens) {
  if (value < 0) return "########";
  const moment = new Date(EPOCH_MS + Math.round(value * 86400) * 1000);
  const halves = tokens.some((token) => token[6]);
  const units = tokens.map((token, index) => (/^m+$/i.test(token[7] ?? "") && isMinute(tokens, index) ? "minute" : null));
  return tokens.map((token, index) => {
    if (token[6]) return moment.getUTCHours() < 12 ? "AM" : "PM";
    if (/^h+$/i.test(token[5] ?? "")) return String(Math.floor((value * DAY_MS) / 3600000 + 1e-9));
    return token[7] ? dateUnit(token[7], moment, units[index], halves) : literal(token);
  }).join("");
}

function isMinute(tokens, index) {
  const units = (list) => list.find((token) => token[7] || /^[hs]+$/i.test(token[5] ?? ""));
  const before = units(tokens.slice(0, index).reverse());
  const after = units(tokens.slice(index + 1));
  return /^h/i.test(before?.[7] ?? before?.[5] ?? "") || /^s/i.test(after?.[7] ?? "");
}

function dateUnit(unit, moment, minute, halves) {
  const two = (n) => String(n).padStart(2, "0");
  const word = (options) => new Intl.DateTimeFormat("en-US", { ...options, timeZone: "UTC" }).format(moment);
  const [letter, length] = [unit[0].toLowerCase(), unit.replace(/\..*/, "").length];
  const number = (n) => (length > 1 ? two(n) : String(n));
  if (minute) return number(moment.getUTCMinutes());
  if (letter === "y") return length > 2 ? String(moment.getUTCFullYear()) : two(moment.getUTCFullYear() % 100);
  if (letter === "m") return length > 2 ? word({ month: length === 3 ? "short" : "long" }) : number(moment.getUTCMonth() + 1);
  if (letter === "d") return length > 2 ? word({ weekday: length === 3 ? "short" : "long" }) : number(moment.getUTCDate());
  if (letter === "h") return number(halves ? moment.getUTCHours() % 12 || 12 : moment.getUTCHours());
  const fraction = /\.(0+)/.exec(unit);
  return number(moment.getUTCSeconds()) + (fraction ? `.${"0".repeat(fraction[1].length)}` : "");
}
