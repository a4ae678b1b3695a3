// The sign-in page: one key, and in return a cookie that scripts cannot read.

import { form } from "./components/index.js";
import { h } from "./dom.js";
import { t } from "./i18n.js";
import { signIn } from "./session.js";
import { brand, switches } from "./shell.js";

/** The page. After a right key the session changes, and the console draws the page that the address names. */
export function signInPage() {
  document.title = `${t("common.signIn")} · Haulage`;
  const entry = form({
    fields: [
      {
        name: "key",
        label: t("common.apiKey"),
        kind: "password",
        required: true,
        hint: t("common.apiKeyHint"),
        autocomplete: "current-password",
      },
    ],
    action: t("common.signIn"),
    submit: ({ key }) => signIn(key.trim()),
  });
  return h(
    "main",
    { class: "sign-in", id: "content" },
    h("div", { class: "sign-in-card" }, brand(), h("h1", {}, t("common.signIn")), h("p", { class: "quiet" }, t("common.signInText")), entry),
    h("div", { class: "sign-in-foot" }, switches()),
  );
}
