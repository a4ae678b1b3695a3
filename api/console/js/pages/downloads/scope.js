// Which project a page is for: a download belongs to one, and the admin has none until one is named.

import { setProject } from "../../api.js";
import { h } from "../../dom.js";
import { t } from "../../i18n.js";
import { link } from "../../navigation.js";
import { listProjects } from "../../projects.js";
import { session } from "../../session.js";

/**
 * A page that needs a project. The admin's may be in the address, e.g. in a link from the list of all projects.
 *
 * @param {function(Place, string): Promise<Element>} page
 * @returns {function(Place): Promise<Element>}
 */
export function inProject(page) {
  return async (place) => {
    const project = session.project ?? place.query.get("project");
    if (!project) return choice(place);
    if (!session.project) {
      setProject(project);
      place.onLeave(() => setProject(session.project));
    }
    return page(place, project);
  };
}

/** The query that leads the admin to something of a project; nothing for who has one. */
export function projectQuery(project) {
  return session.isAdmin && !session.project ? `?project=${encodeURIComponent(project)}` : "";
}

/** The query by which the admin's browser opens an address of the API itself, where it can send no header. */
export function openQuery(project) {
  return session.isAdmin ? `?project=${encodeURIComponent(project)}` : "";
}

async function choice(place) {
  const projects = await listProjects();
  return h(
    "div",
    { class: "card choose-project" },
    h("p", {}, t("downloads.chooseProject")),
    projects.length
      ? h("ul", {}, projects.map((each) => h("li", {}, link(`${place.path}?project=${encodeURIComponent(each.project_id)}`, h("bdi", {}, each.name)), " ", h("code", { class: "quiet" }, each.project_id))))
      : h("p", { class: "quiet" }, t("downloads.noProject")),
  );
}
