// The preview of a table: asks the API for the book a moment after the last change, and draws what it answers.

import { send } from "../../api.js";
import { problemBox } from "../../components/index.js";
import { clear, h } from "../../dom.js";
import { t } from "../../i18n.js";
import { readBook } from "./book.js";
import { drawSheet } from "./sheet.js";

const PAUSE_MS = 500;
const BUSY_MS = 1200;

/**
 * A preview.
 *
 * @param {Place} place
 * @param {function(Array<{path: string, message: string}>): void} onFaults - receives all faults, or an empty list
 * @returns {Element} `element.ask(body)` draws soon: `body()` is then the JSON text to send, null where there is nothing to draw
 */
export function preview(place, onFaults) {
  const status = h("p", { role: "status", class: "quiet" });
  const drawn = h("div", { class: "preview-drawn" });
  const save = h("a", { class: "as-button", download: "preview.xlsx", hidden: true }, t("downloads.preview.save"));
  const element = h("section", { class: "preview", "aria-label": t("downloads.preview.title") }, h("div", { class: "preview-head" }, h("h3", {}, t("downloads.preview.title")), status, save), drawn);
  const state = { turn: 0, timer: 0, asked: undefined, url: null };

  element.ask = (body) => {
    clearTimeout(state.timer);
    state.timer = setTimeout(() => {
      const text = body();
      if (text === state.asked) return;
      state.asked = text;
      state.turn += 1;
      if (text !== null) {
        draw(text, state.turn);
        return;
      }
      onFaults([]);
      show(t("downloads.preview.nothing"));
    }, PAUSE_MS);
  };

  async function draw(text, mine) {
    status.textContent = t("downloads.preview.drawing");
    try {
      const response = await send("POST", "/v1/templates/preview", { text });
      const buffer = await response.arrayBuffer();
      const sheets = await readBook(buffer);
      if (mine !== state.turn) return;
      onFaults([]);
      keep(buffer);
      show(t("downloads.preview.drawn"), sheets.map(drawSheet));
    } catch (problem) {
      if (mine === state.turn) refuse(problem, text, mine);
    }
  }

  function refuse(problem, text, mine) {
    // Others are having books drawn: it is our turn in a moment.
    if (problem.code === "previews_busy") state.timer = setTimeout(() => draw(text, mine), BUSY_MS);
    else if (problem.errors?.length) {
      onFaults(problem.errors);
      drawn.classList.add("stale");
      status.textContent = t("downloads.preview.faults", { n: problem.errors.length });
    } else {
      if (problem.name !== "Problem") console.error(problem);
      onFaults([]);
      show("", problemBox(problem));
    }
  }

  function show(words, ...content) {
    status.textContent = words;
    drawn.classList.remove("stale");
    clear(drawn, ...content);
    if (!content.length) save.hidden = true;
  }

  function keep(buffer) {
    if (state.url) URL.revokeObjectURL(state.url);
    state.url = URL.createObjectURL(new Blob([buffer], { type: "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet" }));
    save.href = state.url;
    save.hidden = false;
  }

  place.onLeave(() => {
    clearTimeout(state.timer);
    state.turn += 1;
    if (state.url) URL.revokeObjectURL(state.url);
  });
  return element;
}
