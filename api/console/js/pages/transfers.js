// Transfers: jobs by window, a job with its targets, a task, a host, and a new transfer.

import { t } from "../i18n.js";
import { stylesheet } from "../stylesheet.js";
import "../words/causes.js";
import "../words/transfers.js";
import { hostPage } from "./transfers/host.js";
import { jobPage } from "./transfers/job.js";
import { jobsPage } from "./transfers/jobs.js";
import { newPage } from "./transfers/new.js";
import { taskPage } from "./transfers/task.js";

await stylesheet("transfers");

export const routes = [
  { path: "/console/transfers", title: () => t("transfers.title"), page: jobsPage },
  { path: "/console/transfers/new", title: () => t("transfers.new"), page: newPage },
  { path: "/console/transfers/jobs/:id*", title: () => t("transfers.job"), page: jobPage },
  { path: "/console/transfers/tasks/:id*", title: () => t("transfers.task"), page: taskPage },
  { path: "/console/transfers/hosts/:id*", title: () => t("transfers.host"), page: hostPage },
];
