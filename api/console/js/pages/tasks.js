// Tasks: types with their queues, lanes, the archive, and single tasks.

import { setProject } from "../api.js";
import { t } from "../i18n.js";
import { session } from "../session.js";
import { stylesheet } from "../stylesheet.js";
import "../words/tasks.js";
import { namedPage } from "./tasks/finding.js";
import { BASE_PATH } from "./tasks/pieces.js";
import { taskPage } from "./tasks/task.js";
import { archivePage, lanesPage, queuePage } from "./tasks/type.js";
import { typesPage } from "./tasks/types.js";

await stylesheet("tasks");

const ofType = (place) => place.params.type;

/** A page of a type. While it is shown, an admin without a project acts for the project in the address. */
const inProject = (page) => (place) => {
  const project = place.query.get("project");
  if (session.isAdmin && !session.project && project) {
    setProject(project);
    place.onLeave(() => setProject(session.project));
  }
  return page(place);
};

export const routes = [
  { path: BASE_PATH, title: () => t("tasks.title"), page: typesPage },
  { path: `${BASE_PATH}/named/:name*`, title: (place) => t("tasks.named", { name: place.params.name }), page: namedPage },
  { path: `${BASE_PATH}/types/:type`, title: ofType, page: inProject(queuePage) },
  { path: `${BASE_PATH}/types/:type/lanes`, title: ofType, page: inProject(lanesPage) },
  { path: `${BASE_PATH}/types/:type/archive`, title: ofType, page: inProject(archivePage) },
  { path: `${BASE_PATH}/tasks/:id*`, title: () => t("tasks.task"), page: taskPage },
];
