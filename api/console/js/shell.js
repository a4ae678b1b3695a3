// The frame around every page: brand, navigation, project, language, theme, sign-out.

import { clear, h, svg } from "./dom.js";
import { LANGUAGES, language, setLanguage, t } from "./i18n.js";
import { icon } from "./icons.js";
import { SECTIONS } from "./navigation.js";
import { PROJECTS_MAX, listProjects } from "./projects.js";
import { onPage } from "./router.js";
import { choose, session, signOut } from "./session.js";

const THEMES = ["auto", "light", "dark"];

/** Create the frame around `main`; `redraw` draws everything again, e.g. in another language. */
export function frame(main, redraw) {
  const entries = SECTIONS.filter((section) => (session.isAdmin || !section.admin) && (session.operates || !section.operates)).map(createEntry);
  onPage((section) => {
    for (const link of entries) {
      if (link.dataset.section === section?.name) {
        link.setAttribute("aria-current", "page");
        link.scrollIntoView({ block: "nearest", inline: "nearest" });
      }
      else link.removeAttribute("aria-current");
    }
  });
  return [
    h("a", { href: "#content", class: "skip", on: { click: skip } }, t("common.skip")),
    h(
      "header",
      { class: "side" },
      brand(),
      h("nav", { "aria-label": t("common.sections") }, entries),
      h("button", { type: "button", class: "menu-button", popovertarget: "menu" }, t("common.menu")),
      h("div", { class: "side-foot", id: "menu", popover: "" }, createProjectChoice(), switches(redraw), h("button", { class: "plain", on: { click: signOut } }, t("common.signOut"))),
    ),
    main,
  ];
}

/** Create the brand, a link to the overview. */
export function brand() {
  const mark = svg("svg", { viewBox: "0 0 32 32", "aria-hidden": "true", class: "mark" }, [
    svg("rect", { width: 32, height: 32, rx: 7 }),
    svg("path", { d: "M9 7v18M23 7v18M9 16h14" }),
  ]);
  return h("a", { href: "/console", class: "brand" }, mark, "Haulage");
}

/** Create the choices of language and theme. */
export function switches(redraw = () => location.reload()) {
  const languages = Object.entries(LANGUAGES).map(([code, name]) => h("option", { value: code, selected: code === language() }, name));
  const themes = THEMES.map((theme) => h("option", { value: theme, selected: theme === currentTheme() }, t(`common.themes.${theme}`)));
  return h(
    "div",
    { class: "switches" },
    h("select", { "aria-label": t("common.language"), on: { change: (event) => changeLanguage(event.target.value, redraw) } }, languages),
    h("select", { "aria-label": t("common.theme"), on: { change: (event) => setTheme(event.target.value) } }, themes),
  );
}

/** Draw everything in another language, and keep the focus on the choice. */
async function changeLanguage(code, redraw) {
  setLanguage(code);
  await redraw();
  document.querySelector(".switches select")?.focus();
}

function createEntry(section) {
  return h("a", { href: section.href, data: { section: section.name } }, icon(section.name), h("span", {}, t(`common.section.${section.name}`)));
}

function createProjectChoice() {
  if (!session.isAdmin) return h("p", { class: "whose" }, h("span", { class: "quiet" }, t("common.project")), session.name || session.projectId);
  const select = h("select", { "aria-label": t("common.project"), on: { change: (event) => choose(event.target.value || null) } });
  const fill = (projects) =>
    clear(
      select,
      h("option", { value: "" }, t("common.allProjects")),
      projects.map((project) => h("option", { value: project.project_id, selected: project.project_id === session.project }, project.name)),
    );
  fill([]);
  const known = (projects) => {
    fill(projects);
    // The project that was chosen last time does not exist any more.
    if (session.project && select.value !== session.project && projects.length < PROJECTS_MAX) choose(null);
  };
  listProjects({ reload: true }).then(known, (problem) => clear(select, h("option", {}, problem.detail)));
  return h("div", { class: "whose" }, h("span", { class: "quiet" }, t("common.project")), select);
}

function skip(event) {
  event.preventDefault();
  document.querySelector("#content h1")?.focus();
}

function currentTheme() {
  return document.documentElement.dataset.theme ?? "auto";
}

function setTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  try {
    if (theme === "auto") localStorage.removeItem("haulage.theme");
    else localStorage.setItem("haulage.theme", theme);
  } catch {
    // Without storage the choice lasts until the page is loaded again.
    return;
  }
}
