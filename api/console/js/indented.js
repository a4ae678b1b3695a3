// JSON as it was published, with line breaks: parsed numbers would lose digits, so only the text is laid out.

const TOKENS = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;
const STEP = "  ";

/** A text of JSON, a member on each line. What is no JSON stays as it is. */
export function indented(text) {
  try {
    JSON.parse(text);
  } catch {
    return text;
  }
  let depth = 0;
  let before = "";
  let out = "";
  for (const [token] of text.matchAll(TOKENS)) {
    const closes = token === "}" || token === "]";
    const opened = before === "{" || before === "[";
    if (closes) depth -= 1;
    if (closes ? !opened : opened || before === ",") out += `\n${STEP.repeat(depth)}`;
    out += token === ":" ? ": " : token;
    if (token === "{" || token === "[") depth += 1;
    before = token;
  }
  return out;
}
